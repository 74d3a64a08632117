"""Many random verbs on a `World`, from one seed: much faster than drawing each, but nothing can shrink them."""

from __future__ import annotations

import random

from fake_device import Tier
from kv_model import Setting
from kv_world import World


def make_prompts(rng: random.Random, block_size: int) -> list[list[int]]:
    """A few prompts of up to five blocks, which storms then share."""
    return [[rng.randrange(2) for _ in range(rng.randrange(1, 5 * block_size + 2))] for _ in range(4)]


def storm(world: World, prompts: list[list[int]], rng: random.Random, verbs: int) -> None:
    """`verbs` random verbs, weighted so that blocks are short, shared and copied, and steps hold several verbs."""
    size = world.setting.block_size
    for _ in range(verbs):
        verb, pick = rng.randrange(100), rng.randrange(1 << 20)
        if verb < 20:
            prompt = rng.choice(prompts)
            tokens = prompt[: rng.randrange(len(prompt) + 1)] if verb < 6 else [*prompt, pick & 1]
            world.open(tokens, int(rng.randrange(8) == 0), rng.randrange(10) > 0)
        elif verb < 38:
            world.extend(pick, rng.choice((1, 1, 1, 2, size, 2 * size + 1)), rng.choice((0, 1, pick)))
        elif verb < 44:
            world.advance(rng.choice((1, 1, 2)), pick, pick)
        elif verb < 54:
            world.family(pick, [rng.randrange(96) for _ in range(rng.randrange(3, 10))])
        elif verb < 58:
            world.truncate(pick, rng.choice((1, 1, 2, size, 3 * size)))
        elif verb < 72 or len(world.sequences) > 8:
            world.close(pick)
        elif verb < 74:
            world.misuse(pick)
        elif verb < 75:
            world.lose(pick)
        elif verb < 76:
            rare_verb(world, rng.choice(prompts), pick)
        elif verb < 80:
            world.cut_into_what_is_fetched([*rng.choice(prompts), pick & 1], pick)
        elif verb < 88:
            world.launch(pick, rng.randrange(2) == 0, rng.choice((0, 0, 0, 3)))
        else:
            world.land(pick, rng.choice((0, 0, 0, 1, 3)))


def rare_verb(world: World, prompt: list[int], pick: int) -> None:
    """Pins, explanations, and pools that grow and shrink by up to a third of their size."""
    tokens, blocks = prompt[: 1 + pick // 64 % len(prompt)], world.setting.num_blocks
    match pick % 8:
        case 0 | 1:
            world.rare.pin(tokens, int(pick // 8 % 8 == 0))
        case 2:
            world.rare.unpin(pick // 8)
        case 3 | 4:
            world.rare.resize(max(1, blocks - blocks // 3 + pick // 8 % (2 * blocks // 3 + 1)))
        case _:
            world.rare.explain([*tokens, 1], int(pick // 8 % 4 == 0), pick // 32 % 2 == 0)


def random_run(setting: Setting, seed: int, verbs: int, tier: Tier | None = None) -> World:
    """A new world in a storm; AssertionError or KVError at the first thing that is wrong."""
    rng = random.Random(seed)
    world = World(setting, tier)
    storm(world, make_prompts(rng, setting.block_size), rng, verbs)
    world.finish()
    return world

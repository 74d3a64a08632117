"""Prompts that begin alike and are here at once: the beginning is computed once, and nobody waits any longer."""

from __future__ import annotations

import random

import pytest
from fake_engine import Engine, Job, Shape

from octavo.kv import KVCacheManager
from octavo.sched import Limits, Request, Scheduler
from octavo.sched.observer import Observer, Wait

ROOMY = Shape(num_blocks=400, block_size=4, budget=64, max_seqs=16, max_model_len=100)


def needed(prompts: list[tuple[int, ...]], size: int) -> int:
    """Tokens to compute when no full block is computed twice, the one with a prompt's last token aside."""
    blocks, rest = set(), 0
    for prompt in prompts:
        found = [prompt[:end] for end in range(size, len(prompt), size)]
        rest += len(prompt) - len(found) * size
        blocks |= set(found)
    return len(blocks) * size + rest


@pytest.mark.parametrize("seed", range(30))
def test_a_beginning_is_computed_once(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([2, 4, 8])
    engine = Engine(Shape(400, size, budget=rng.choice([12, 40, 200]), max_seqs=8, max_model_len=100))
    roots = [[rng.randrange(1000) for _ in range(60)] for _ in range(2)]
    prompts = []
    for _ in range(24):
        common = rng.choice(roots)[: rng.choice([8, 30, 60])]
        prompts.append((*common, *(rng.randrange(1000, 2000) for _ in range(rng.randint(1, 20)))))
        engine.add(Job(prompts[-1], max_tokens=rng.randint(1, 6)))
        if rng.random() < 0.3:
            engine.step()
    engine.run()
    engine.check_idle()
    generated = sum(len(outcome.tokens) for outcome in engine.outcomes.values()) - sum(map(len, prompts))
    assert engine.scheduler.stats().computed_tokens == needed(prompts, size) + generated - len(prompts)


def test_followers_wait_one_step_and_come_in_together() -> None:
    engine = Engine(ROOMY)
    common = tuple(range(40))
    seqs = [engine.add(Job((*common, 100 + number)))[0] for number in range(4)]
    engine.step()
    assert [row.seq for row in engine.steps[0].rows] == seqs[:1]
    engine.step()
    assert {(row.seq, row.start) for row in engine.steps[1].rows} == {(seqs[0], 41), *((seq, 40) for seq in seqs[1:])}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Job(tuple(range(40))), Job((9, *range(1, 40)))),
        (Job(tuple(range(40))), Job((*range(3), 9, 9))),
        (Job(tuple(range(40))), Job(tuple(range(40)), namespace=b"other")),
        (Job(tuple(range(40))), Job(tuple(range(40)), use_cache=False)),
    ],
    ids=["other tokens", "less than a block", "other namespace", "wants no cache"],
)
def test_who_would_find_nothing_does_not_wait(first: Job, second: Job) -> None:
    engine = Engine(ROOMY)
    engine.add(first)
    (late,) = engine.add(second)
    engine.step()
    assert engine.requests[late].slot is not None


def test_nobody_waits_for_one_that_goes_after() -> None:
    """The urgent one comes in at its place, though what it needs is being computed behind it."""
    engine = Engine(Shape(400, 4, budget=16, max_seqs=8, max_model_len=100, policy="priority"))
    common = tuple(range(40))
    engine.add(Job((*common, 1), priority=1))
    engine.step()
    (urgent,) = engine.add(Job((*common, 2), priority=-1))
    engine.step()
    assert engine.requests[urgent].slot is not None


def test_without_a_cache_nobody_waits() -> None:
    engine = Engine(Shape(400, 4, prefix_cache=False, budget=200, max_seqs=8, max_model_len=100))
    seqs = [engine.add(Job((*range(40), number)))[0] for number in range(4)]
    engine.step()
    assert {row.seq for row in engine.steps[0].rows} == set(seqs)


def test_the_one_that_waits_is_told_why() -> None:
    told: list[str] = []

    class Ear(Observer):
        def waits(self, head: Request, why: Wait) -> None:
            told.append(f"{head.id} {why.reason}")

    scheduler = Scheduler(KVCacheManager(64, 4), Limits(64, 4, 64), observer=Ear())
    for seq in range(2):
        scheduler.add(Request(seq, [*range(40), seq], max_tokens=2))
    step = scheduler.schedule()
    assert [row.seq for row in step.rows] == [0]
    assert told == ["1 prompt"]

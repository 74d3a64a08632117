"""The Hypothesis state machine over `kv_world.World`, and the settings that it draws from."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from kv_model import Setting
from kv_storm import make_prompts, storm
from kv_world import World

SETTINGS = (
    Setting(6, 1),
    Setting(7, 2),
    Setting(12, 4),
    Setting(5, 16),
    Setting(8, 2, pipelined=True),
    Setting(12, 2, prefix_cache=False),
    Setting(7, 2, tier=5),
    Setting(9, 4, tier=4),
    Setting(8, 1, tier=6, pipelined=True),
    Setting(9, 4, tier=40, pipelined=True),
    Setting(12, 4, windows=(5,)),
    Setting(16, 2, windows=(None, 3)),
    Setting(16, 1, windows=(3, 2), tier=9),
    Setting(24, 4, windows=(None, 1, 9), tier=10),
    Setting(20, 2, windows=(4, None, 4), tier=8, pipelined=True),
)

picks = st.integers(0, 1 << 16)
bits = st.lists(st.integers(0, 1), max_size=12)
codes = st.lists(st.integers(0, 95), min_size=3, max_size=9)


class Machine(RuleBasedStateMachine):
    """Random verbs in any order, steps launched and landed at any time. `base` settings; `audit` turns check() off."""

    base: tuple[Setting, ...] = SETTINGS
    audit = True

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        setting = data.draw(st.sampled_from(self.base))
        self.world = World(replace(setting, audit=self.audit))
        self.prompts = make_prompts(random.Random(setting.num_blocks), setting.block_size)
        self.stems = [[0] * (5 * setting.block_size), [1, 0] * (3 * setting.block_size)]

    @rule(stem=st.integers(0, 1), length=picks, tail=bits, other=st.integers(0, 7), enabled=st.integers(0, 9))
    def open(self, stem: int, length: int, tail: list[int], other: int, enabled: int) -> None:
        prompt = self.stems[stem]
        self.world.open(prompt[: length % (len(prompt) + 1)] + tail, int(other == 7), enabled < 9)

    @rule(stem=st.integers(0, 1), seed=picks)
    def open_and_compute(self, stem: int, seed: int) -> None:
        """A whole prompt in one step, as far as there is room."""
        self.world.open([*self.stems[stem], seed & 1], 0)
        last = len(self.world.sequences) - 1
        for _ in range(3):
            self.world.extend(last, 2 * self.world.setting.block_size, 0)
        self.world.launch(seed, True, 0)
        self.world.land(seed, 0)

    @rule(pick=picks, n=st.sampled_from((1, 1, 2, 3, 9)), filler=picks)
    def extend(self, pick: int, n: int, filler: int) -> None:
        self.world.extend(pick, n, filler)

    @rule(pick=picks, codes=codes)
    def family(self, pick: int, codes: list[int]) -> None:
        self.world.family(pick, codes)

    @rule(pick=picks, back=st.integers(0, 20))
    def truncate(self, pick: int, back: int) -> None:
        self.world.truncate(pick, back)

    @rule(pick=picks)
    def close(self, pick: int) -> None:
        self.world.close(pick)

    @precondition(lambda self: len(self.world.sequences) > 5)
    @rule()
    def close_the_oldest(self) -> None:
        for _ in range(3):
            self.world.close(0)

    @rule(pick=picks)
    def misuse(self, pick: int) -> None:
        self.world.misuse(pick)

    @rule(stem=st.integers(0, 1), length=picks, other=st.integers(0, 7))
    def pin(self, stem: int, length: int, other: int) -> None:
        prompt = self.stems[stem]
        self.world.rare.pin(prompt[: 1 + length % len(prompt)], int(other == 7))

    @rule(pick=picks)
    def unpin(self, pick: int) -> None:
        self.world.rare.unpin(pick)

    @rule(more=st.integers(-8, 8))
    def resize(self, more: int) -> None:
        self.world.rare.resize(max(1, self.world.setting.num_blocks + more))

    @rule(stem=st.integers(0, 1), length=picks, other=st.booleans(), operator=st.booleans())
    def explain(self, stem: int, length: int, other: bool, operator: bool) -> None:
        prompt = self.stems[stem]
        self.world.rare.explain(prompt[: 1 + length % len(prompt)], int(other), operator)

    @precondition(lambda self: self.world.tier is not None)
    @rule(stem=st.integers(0, 1), seed=picks)
    def cut_into_what_is_fetched(self, stem: int, seed: int) -> None:
        self.world.cut_into_what_is_fetched([*self.stems[stem], seed & 1], seed)

    @precondition(lambda self: self.world.tier is not None)
    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        self.world.lose(pick)

    @rule(seed=picks, now=st.booleans(), fail=st.sampled_from((0, 0, 3)))
    def launch(self, seed: int, now: bool, fail: int) -> None:
        self.world.launch(seed, now, fail)

    @rule(seed=picks, drop=st.sampled_from((0, 0, 0, 1, 3)))
    def land(self, seed: int, drop: int) -> None:
        self.world.land(seed, drop)

    @rule(n=st.integers(1, 2), filler=picks, seed=picks)
    def advance(self, n: int, filler: int, seed: int) -> None:
        self.world.advance(n, filler, seed)

    @rule(seed=picks, verbs=st.integers(0, 150))
    def storm(self, seed: int, verbs: int) -> None:
        storm(self.world, self.prompts, random.Random(seed), verbs)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


def run_machine(machine: type[Machine], examples: int, steps: int) -> None:
    """Run it the same way every time, without shrinking what it finds."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )

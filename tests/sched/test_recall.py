"""Sequences whose cached beginning was lost before their rows ran: taken out of the step, and none the worse for it."""

from __future__ import annotations

import pytest

from octavo.kv import Fetch, KVCacheManager, Spill
from octavo.sched.limits import Limits
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.step import Step


class Tier:
    """Keys alone; `begin_step` and the rest are for tiers with bytes."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()

    def contains(self, key: bytes) -> bool:
        return key in self.keys


class Bench:
    """A scheduler over a tier; every row that samples gets token 5."""

    def __init__(self) -> None:
        self.tier = Tier()
        self.kv = KVCacheManager(8, 4, lower_tier=self.tier)
        self.scheduler = Scheduler(self.kv, Limits(max_batched_tokens=64, max_seqs=4, max_model_len=64))

    def add(self, seq: int, first: int, length: int = 13) -> None:
        self.scheduler.add(Request(seq, list(range(first, first + length)), max_tokens=3))

    def land(self, step: Step) -> None:
        for op in step.ops:
            if isinstance(op, Spill):
                self.tier.keys.add(op.key)
        self.scheduler.apply(step, {row.seq: 5 for row in step.rows if row.sample})
        self.kv.end_step()
        self.kv.check()
        self.scheduler.check()

    def run(self) -> None:
        while self.scheduler.has_work:
            self.land(self.scheduler.schedule())


def test_a_lost_block_undoes_the_admission() -> None:
    bench = Bench()
    for seq, first in ((1, 100), (2, 200), (3, 300)):
        bench.add(seq, first)
        bench.run()
    before = bench.scheduler.stats()
    bench.add(4, 100)
    step = bench.scheduler.schedule()
    fetched = [op for op in step.ops if isinstance(op, Fetch)]
    assert fetched
    assert step.rows[0].start == 12
    bench.tier.keys.clear()  # all of it is lost
    holders = {seq for op in fetched for seq in bench.kv.lost(op.block)}
    assert holders == {4}
    step = bench.scheduler.recall(sorted(holders))
    assert (step.rows, step.preempted) == ((), (4,))
    bench.land(step)
    stats = bench.scheduler.stats()
    assert (stats.cached_tokens, stats.prompt_tokens) == (before.cached_tokens, before.prompt_tokens)
    step = bench.scheduler.schedule()
    (row,) = step.rows
    assert (row.seq, row.start + row.count) == (4, 13)
    assert row.start == bench.scheduler.request(4).cached_tokens < 12
    bench.land(step)
    bench.run()
    assert bench.scheduler.stats().preemptions == 0


def test_younger_ones_go_with_it_and_older_ones_run_on() -> None:
    bench = Bench()
    for seq, first in ((1, 100), (2, 200), (3, 300)):
        bench.add(seq, first)
        bench.run()
    bench.add(4, 400, length=3)
    bench.land(bench.scheduler.schedule())
    bench.add(5, 100, length=6)
    bench.add(6, 600, length=2)
    step = bench.scheduler.schedule()
    assert [row.seq for row in step.rows] == [4, 5, 6]
    step = bench.scheduler.recall([5])
    assert [row.seq for row in step.rows] == [4]
    assert set(step.preempted) == {5, 6}
    bench.land(step)
    step = bench.scheduler.schedule()
    assert [row.seq for row in step.rows][:1] == [4]
    assert {5, 6} <= {row.seq for row in step.rows}
    bench.land(step)
    bench.run()


def test_recall_of_nobody_and_out_of_turn() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError, match="between schedule"):
        bench.scheduler.recall([1])
    bench.add(1, 100)
    step = bench.scheduler.schedule()
    assert bench.scheduler.recall([]).rows == step.rows
    assert bench.scheduler.recall([99]).rows == step.rows

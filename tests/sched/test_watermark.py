"""Under pressure admission shrinks before work is thrown out, and only then; and what it did is told."""

from __future__ import annotations

import random

import pytest

from octavo.kv import KVCacheManager
from octavo.sched import Limits, Request, Scheduler
from octavo.sched.watermark import EASE, MOST, Watermark


def test_the_margin_doubles_and_sinks() -> None:
    mark = Watermark()
    assert mark.blocks == 0
    margins = []
    for _ in range(6):
        mark.step(2, 80)
        margins.append(mark.blocks)
    assert margins == [1, 2, 4, 8, 10, 10], "never more than one in eight"
    for _ in range(round(1 / EASE)):
        mark.step(0, 80)
    assert mark.blocks == 3, "a factor of e in 1 / EASE steps"
    mark.step(1, MOST - 1)
    assert mark.blocks == 0, "the pool may have shrunk"


def saturate() -> Scheduler:
    """Far more work than a pool holds: 200 requests of random lengths."""
    rng, kv = random.Random(0), KVCacheManager(300, 4)
    scheduler = Scheduler(kv, Limits(256, 32, 512))
    for seq in range(200):
        tokens = [rng.randrange(1000) for _ in range(rng.randint(4, 60))]
        scheduler.add(Request(seq, tokens, max_tokens=min(300, 1 + int(rng.expovariate(1 / 60)))))
    while scheduler.has_work:
        step = scheduler.schedule()
        scheduler.apply(step, {row.seq: 1 for row in step.rows if row.sample})
        kv.end_step()
        scheduler.check()
    return scheduler


def test_less_work_is_thrown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = saturate().stats()
    monkeypatch.setattr("octavo.sched.watermark.MOST", 1 << 40)
    without = saturate().stats()
    assert without.held_back == without.watermark == 0
    assert with_it.held_back > 0
    assert without.preemptions > 30
    assert with_it.preemptions < 0.7 * without.preemptions
    assert with_it.computed_tokens < without.computed_tokens


@pytest.mark.parametrize("free", [0, 1])
def test_it_never_keeps_out_the_only_one(free: int) -> None:
    kv = KVCacheManager(8, 4)
    scheduler = Scheduler(kv, Limits(64, 4, 32))
    for _ in range(10):
        scheduler._room.watermark.step(1, 8)
    scheduler.add(Request(0, list(range(27 - free)), max_tokens=5))
    assert scheduler.schedule().rows

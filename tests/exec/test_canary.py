"""The slot canary: quiet on what is right, and each kind of fault is seen at the step that would have read it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from octavo.errors import KVError
from octavo.exec.batch import Batch, BatchEncoder
from octavo.exec.canary import Canary
from octavo.kv import Copy, Fetch, KVCacheManager
from octavo.sched import Limits, Request, Scheduler, Step

Fault = Callable[["Loop"], None]


class Tier:
    """Keeps every key it was ever offered."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()

    def contains(self, key: bytes) -> bool:
        return key in self.keys


class Loop:
    """Steps of random work on a tiny pool, with whatever a test breaks before the canary looks."""

    def __init__(self, windows: tuple[int | None, ...] = (None,), tier: bool = False) -> None:
        self.tier = Tier() if tier else None
        self.kv = KVCacheManager(20, 4, windows=windows, lower_tier=self.tier)
        self.scheduler = Scheduler(self.kv, Limits(max_batched_tokens=32, max_seqs=4, max_model_len=40))
        self.encoder = BatchEncoder(self.kv, self.scheduler.tokens, max_seqs=4, max_model_len=40)
        self.canary = Canary(20, 4, windows)
        self.rng = random.Random(0)
        self.seq = 0
        self.spoil_ops: Callable[[Step], Step] = lambda step: step
        self.spoil_batch: Callable[[Batch], None] = lambda batch: None

    def run(self, steps: int) -> Canary:
        for _ in range(steps):
            if self.rng.random() < 0.5:
                self._add()
            if not self.scheduler.has_work:
                continue
            step = self.scheduler.schedule()
            if self.tier is not None:
                self.tier.keys.update(op.key for op in step.ops if hasattr(op, "namespace"))
            self.canary.moved(self.spoil_ops(step).ops, [])
            batch = self.encoder.encode(step)
            self.spoil_batch(batch)
            self.canary.check(step.rows, batch.inputs, self.scheduler.request)
            self.scheduler.apply(step, {row.seq: self.rng.randrange(50) for row in step.rows if row.sample})
            self.kv.end_step()
        return self.canary

    def _add(self) -> None:
        n = self.rng.choice([1, 1, 2])
        prompt = [number % 7 for number in range(self.rng.choice([3, 9, 16, 21]))]
        ids = tuple(range(self.seq, self.seq + n))
        self.seq += n
        namespace = self.rng.choice([b"", b"tenant"])
        self.scheduler.add(Request(ids[0], prompt, max_tokens=12, n=n, children=ids[1:], namespace=namespace))


@pytest.mark.parametrize("windows", [(None,), (None, 5), (6,)])
@pytest.mark.parametrize("tier", [False, True])
def test_it_is_quiet_on_what_is_right_and_sees_what_it_injects(windows: tuple[int | None, ...], tier: bool) -> None:
    canary = Loop(windows, tier).run(300)
    assert canary.slots_read > 5000
    assert canary.faults_seen > 10


def _swapped_blocks(loop: Loop) -> None:
    def spoil(batch: Batch) -> None:
        table = batch.inputs.meta.block_table
        if table.shape[2] > 1:
            table[0, 0, :2] = table[0, 0, 1::-1]

    loop.spoil_batch = spoil


def _another_rows_slots(loop: Loop) -> None:
    def spoil(batch: Batch) -> None:
        slots = batch.inputs.meta.slot_mapping
        slots[0, -1] = slots[0, 0]

    loop.spoil_batch = spoil


def _a_slot_off(loop: Loop) -> None:
    def spoil(batch: Batch) -> None:
        batch.inputs.meta.slot_mapping[:] ^= 1

    loop.spoil_batch = spoil


def _without(kind: type[Copy] | type[Fetch]) -> Fault:
    def break_it(loop: Loop) -> None:
        def spoil(step: Step) -> Step:
            ops = tuple(op for op in step.ops if not isinstance(op, kind))
            return Step(step.id, step.rows, ops, step.preempted, step.finished)

        loop.spoil_ops = spoil

    return break_it


def _copied_backwards(loop: Loop) -> None:
    def spoil(step: Step) -> Step:
        ops = tuple(Copy(op.dst, op.src) if isinstance(op, Copy) else op for op in step.ops)
        return Step(step.id, step.rows, ops, step.preempted, step.finished)

    loop.spoil_ops = spoil


@pytest.mark.parametrize(
    "fault", [_swapped_blocks, _another_rows_slots, _a_slot_off, _without(Copy), _without(Fetch), _copied_backwards]
)
def test_each_fault_is_seen(fault: Fault) -> None:
    loop = Loop(tier=True)
    fault(loop)
    with pytest.raises(KVError, match="canary"):
        loop.run(300)


def test_another_tenants_block_is_another_block() -> None:
    canary = Canary(2, 4, (None,))
    ours, theirs = Request(0, [1, 2, 3], namespace=b"a"), Request(1, [1, 2, 3], namespace=b"b")
    assert not np.array_equal(canary._tags(ours, 3), canary._tags(theirs, 3))


def test_a_canary_that_sees_nothing_says_so() -> None:
    loop = Loop()
    loop.canary._verify = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(KVError, match="went unseen"):
        loop.run(100)

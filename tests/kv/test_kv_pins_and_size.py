"""Pinned beginnings outlast pressure and stay within their share; pools grow and shrink without moving a block."""

from __future__ import annotations

import pytest
from test_kv_misses import SIZE, compute

from octavo.errors import KVError
from octavo.kv import KVCacheManager, Spill


def cached(kv: KVCacheManager, tokens: range) -> int:
    kv.open(99, list(tokens))
    found = kv.committed(99)
    kv.close(99)
    return found


@pytest.mark.parametrize("first", [True, False], ids=["cached before", "cached later"])
def test_what_is_pinned_outlasts_any_traffic(first: bool) -> None:
    kv = KVCacheManager(8, SIZE)
    if first:
        compute(kv, 0, range(9))
    pin = kv.pins.add(range(9))
    if not first:
        compute(kv, 0, range(9))
    for seq in range(1, 20):
        compute(kv, seq, range(100 * seq, 100 * seq + 20))
        kv.check()
    assert cached(kv, range(9)) == 8
    assert kv.stats().pinned == 2
    assert (kv.stats().used, kv.num_free, kv.capacity) == (0, 6, 6)
    assert kv.pins.remove(pin)
    assert not kv.pins.remove(pin)
    assert (kv.stats().pinned, kv.num_free) == (0, 8)
    for seq in range(20, 30):
        compute(kv, seq, range(100 * seq, 100 * seq + 28))
    assert cached(kv, range(9)) == 0


def test_two_pins_of_one_beginning_count_once_and_hold_until_the_last() -> None:
    kv = KVCacheManager(8, SIZE)
    compute(kv, 0, range(17))
    pins = [kv.pins.add(range(12)), kv.pins.add(range(16))]
    assert kv.stats().pinned == 4
    kv.pins.remove(pins[1])
    assert kv.stats().pinned == 3
    kv.check()


def test_no_more_than_half_of_the_pool() -> None:
    kv = KVCacheManager(8, SIZE)
    kv.pins.add(range(8))
    with pytest.raises(KVError, match="cannot pin 3 blocks more: 2 are pinned and the pool of 8 may have 4"):
        kv.pins.add(range(50, 62))
    with pytest.raises(KVError, match="3 tokens fill no block of 4"):
        kv.pins.add(range(3))
    with pytest.raises(KVError, match="prefix_cache=False"):
        KVCacheManager(8, SIZE, prefix_cache=False).pins.add(range(8))
    assert kv.capacity == 6


def test_a_namespace_that_is_forgotten_is_kept_no_more() -> None:
    kv = KVCacheManager(8, SIZE)
    kv.pins.add(range(8), b"n")
    compute(kv, 0, range(9), b"n")
    assert kv.stats().pinned == 2
    assert kv.forget(b"n") == 2
    assert (kv.stats().pinned, kv.num_free) == (0, 8)
    kv.check()


def test_growing_gives_room_at_once() -> None:
    kv = KVCacheManager(2, SIZE)
    kv.open(1, list(range(12)))
    assert not kv.extend(1, 12)
    assert kv.resize(3) == ()
    assert kv.extend(1, 12)
    assert sorted(kv.block_ids(1)) == [0, 1, 2]
    kv.check()


def test_shrinking_waits_for_those_who_hold_blocks_and_spills_what_is_cached() -> None:
    class Nothing:
        def contains(self, key: bytes) -> bool:
            return False

    kv = KVCacheManager(6, SIZE, lower_tier=Nothing())
    compute(kv, 1, range(9))  # blocks 0, 1 and, not full, 2
    tokens = list(range(50, 66))
    kv.open(2, tokens)
    assert kv.extend(2, 16)
    kv.take_ops()
    kv.commit(2, 16)
    kv.end_step()
    held = [block for block in kv.block_ids(2) if block >= 2]
    assert held
    assert kv.resize(2) == (2,)
    assert (kv.num_blocks, kv.span) == (2, max(held) + 1)
    kv.close(2)
    spilled = [op.block for op in kv.take_ops() if isinstance(op, Spill)]
    assert set(held) <= set(spilled)
    assert kv.span > 2, "memory that a spill still reads is gone"
    kv.end_step()
    assert kv.span == kv.num_blocks == kv.num_free == 2
    kv.check()
    with pytest.raises(KVError, match="num_blocks is 0"):
        kv.resize(0)


def test_memory_that_a_planned_spill_reads_stays_until_it_has() -> None:
    """Evicted for a sequence that is closed again while the step is planned: nobody holds the block any more."""

    class Nothing:
        def contains(self, key: bytes) -> bool:
            return False

    kv = KVCacheManager(4, SIZE, lower_tier=Nothing())
    compute(kv, 1, range(16))
    kv.open(2, list(range(50, 66)))
    assert kv.extend(2, 16)
    kv.close(2)
    assert kv.resize(2) == ()
    assert kv.span == 4
    assert {op.block for op in kv.take_ops() if isinstance(op, Spill)} == {0, 1, 2, 3}
    assert kv.span == 4
    kv.end_step()
    assert kv.span == 2
    kv.check()

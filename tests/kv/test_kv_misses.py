"""Why a beginning is not cached: each reason, told to the operator and to a tenant."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv import Accounting, KVCacheManager, Miss
from octavo.kv import misses as kv_misses

SIZE = 4


def compute(kv: KVCacheManager, seq: int, tokens: Sequence[int], namespace: bytes = b"") -> int:
    """All of `tokens` in a step of their own; how many were cached."""
    cached = kv.open(seq, list(tokens), namespace)
    assert kv.extend(seq, len(tokens) - cached)
    kv.take_ops()
    kv.commit(seq, len(tokens) - cached)
    kv.end_step()
    kv.close(seq)
    return cached


def test_never_seen() -> None:
    kv = KVCacheManager(8, SIZE)
    assert kv.misses.explain(range(9)) == Miss(0, "unknown")
    assert kv.misses.explain(range(4)) is None, "no full block before the last token: nothing to find"


def test_the_first_token_that_differs() -> None:
    kv = KVCacheManager(16, SIZE)
    compute(kv, 1, range(13))
    assert kv.misses.explain(range(13)) is None
    assert kv.misses.explain([0, 1, 2, 3, 4, 5, 99, 7, 8]) == Miss(4, "differs", token=6)
    compute(kv, 2, [0, 1, 2, 3, 99, 98, 97, 96])
    assert kv.misses.explain([0, 1, 2, 3, 4, 5, 99, 7, 8]) == Miss(4, "differs", token=6), "the nearest counts"
    assert kv.misses.explain([7, *range(12)]) == Miss(0, "differs", token=0)


def test_evicted_when_and_by_whom() -> None:
    """Case A06: what took its block is named, to the operator alone."""
    now = [5.0]
    kv = KVCacheManager(4, SIZE, accounting=Accounting(clock=lambda: now[0]))
    compute(kv, 1, range(9))
    now[0] = 7.5
    compute(kv, 2, range(50, 66))
    assert kv.misses.explain(range(9), operator=True) == Miss(0, "evicted", step=2, time=7.5, by=2)
    assert kv.misses.explain(range(9)) == Miss(0, "evicted", step=2, time=7.5)


def test_another_namespace_is_the_operators_to_know() -> None:
    kv = KVCacheManager(16, SIZE)
    compute(kv, 1, range(13), b"tenant")
    assert kv.misses.explain(range(13), b"other", operator=True) == Miss(0, "other_namespace")
    assert kv.misses.explain(range(13), b"other") == Miss(0, "unknown")
    compute(kv, 2, [0, 1, 2, 3, 9, 9, 9, 9, 9], b"other")
    assert kv.misses.explain(range(13), b"other", operator=True) == Miss(4, "other_namespace")
    assert kv.misses.explain(range(13), b"other") == Miss(4, "differs", token=4)


def test_a_tier_has_it_and_no_block_is_free() -> None:
    class Everything:
        def contains(self, key: bytes) -> bool:
            return True

    kv = KVCacheManager(2, SIZE, lower_tier=Everything())
    assert kv.misses.explain(range(13)) == Miss(8, "no_room")


def test_windows_name_the_block_that_is_missing() -> None:
    kv = KVCacheManager(32, SIZE, windows=(None, 5))
    compute(kv, 1, range(25))
    assert kv.misses.explain(range(25)) is None
    assert kv.misses.explain([*range(18), 99, *range(7)]) == Miss(16, "differs", token=18)


def test_the_log_of_evictions_is_bounded() -> None:
    log = kv_misses.EvictionLog(lambda: 0.0)
    for number in range(kv_misses.EVICTIONS_KEPT + 10):
        log.by = number
        log.note(number.to_bytes(8, "little"))
    assert log.find((9).to_bytes(8, "little")) is None
    assert log.find((10).to_bytes(8, "little")) == (1, 0.0, 10)
    assert len(log._records) == kv_misses.EVICTIONS_KEPT

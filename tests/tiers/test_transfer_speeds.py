"""A tier that is slower than computing is passed over, on the way down and back, and tried again with a few blocks."""

from __future__ import annotations

import pytest

from octavo.tiers import HostTier, TierStack
from octavo.tiers.speed import SURE_AFTER, TRY_KEYS, TransferSpeeds

KEY = b"\1" * 33


def known(fetch: float, recompute: float | None, spill: float = 0.0) -> TransferSpeeds:
    speeds = TransferSpeeds(["host", "disk"])
    speeds.recompute_s = recompute
    for _ in range(SURE_AFTER):
        speeds.fetched("disk", fetch)
        speeds.spilled("disk", spill)
    return speeds


def test_what_is_not_known_well_is_tried() -> None:
    assert known(9.0, None).worth_fetching("disk", KEY)
    speeds = TransferSpeeds(["disk"])
    speeds.recompute_s = 0.001
    for _ in range(SURE_AFTER - 1):
        speeds.fetched("disk", 9.0)
        assert speeds.worth_fetching("disk", KEY)
    assert speeds.fetch_s == {"disk": 0.0}
    speeds.fetched("disk", 9.0)
    assert not speeds.worth_fetching("disk", KEY)
    assert speeds.fetch_s == {"disk": pytest.approx(9.0)}


def test_the_slower_way_is_passed_over_but_for_some_keys() -> None:
    assert known(0.001, 0.002).worth_fetching("disk", KEY)
    slow = known(0.003, 0.002)
    keys = [bytes((first,)) * 33 for first in range(256)]
    tried = [key for key in keys if slow.worth_fetching("disk", key)]
    assert len(tried) == 256 / TRY_KEYS
    assert tried == [key for key in keys if slow.worth_spilling("disk", key)], "else none of them would be found"
    assert slow.worth_fetching("host", KEY), "another tier is another matter"
    for _ in range(200):
        slow.fetched("disk", 0.001)
    assert slow.worth_fetching("disk", KEY), "it has become faster"


def test_a_block_goes_down_where_both_ways_are_sooner_than_computing() -> None:
    assert known(0.001, 0.003, spill=0.001).worth_spilling("disk", KEY)
    speeds = known(0.001, 0.003, spill=0.0025)
    assert not speeds.worth_spilling("disk", KEY)
    assert speeds.worth_fetching("disk", KEY), "what is there already may come back"


def test_a_stack_says_no_where_computing_is_sooner() -> None:
    stack = TierStack(host=HostTier(1 << 12, 64))
    keys = [bytes([number]) * 33 for number in range(1, 9)]
    for key in keys:
        stack.put(key, b"", bytes(64))
    for _ in range(SURE_AFTER):
        assert list(stack.fetch(keys[:1])) == [bytes(64)]
    stack.speeds.recompute_s = 1e-12
    assert not stack.contains(keys[0])
    assert stack.speeds.passed == {"host": 1}
    stack.speeds.recompute_s = 1.0
    assert stack.contains(keys[0])
    stack.speeds.recompute_s = 1e-12
    assert stack.contains(keys[0]), "promised in the step that is planned"
    stack.begin_step()
    stack.end_step()
    assert not stack.contains(keys[1])
    stack.check()
    stack.close()


def test_a_stack_stores_nothing_where_computing_is_sooner() -> None:
    stack = TierStack(host=HostTier(1 << 12, 64))
    stack.put(KEY, b"", bytes(64))
    for _ in range(SURE_AFTER):
        assert list(stack.fetch([KEY])) == [bytes(64)]
    stack.speeds.recompute_s = 1e-12
    new, tried = b"\2" * 33, bytes(33)
    assert not stack.wants(new)
    stack.put(new, b"", bytes(64))
    assert stack.stats()[0].used == 1
    assert stack.speeds.kept_out == {"host": 1}
    assert stack.wants(tried)
    stack.put(tried, b"", bytes(64))
    assert stack.contains(tried)
    stack.speeds.recompute_s = 1.0
    assert stack.wants(new)
    stack.close()

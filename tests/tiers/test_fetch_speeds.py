"""A tier that is slower than computing is passed over, and tried again now and then."""

from __future__ import annotations

import pytest

from octavo.tiers import HostTier, TierStack
from octavo.tiers.speed import SURE_AFTER, TRY_EVERY, FetchSpeeds


def known(seconds: float, recompute_s: float | None) -> FetchSpeeds:
    speeds = FetchSpeeds()
    speeds.recompute_s = recompute_s
    for _ in range(SURE_AFTER):
        speeds.see("disk", seconds)
    return speeds


def test_what_is_not_known_well_is_tried() -> None:
    assert known(9.0, None).worth("disk")
    speeds = FetchSpeeds()
    speeds.recompute_s = 0.001
    for _ in range(SURE_AFTER - 1):
        speeds.see("disk", 9.0)
        assert speeds.worth("disk")
    assert speeds.seconds == {}
    speeds.see("disk", 9.0)
    assert not speeds.worth("disk")
    assert speeds.seconds == {"disk": 9.0}


def test_the_slower_way_is_passed_over() -> None:
    assert known(0.001, 0.002).worth("disk")
    slow = known(0.003, 0.002)
    assert [slow.worth("disk") for _ in range(TRY_EVERY)] == [False] * (TRY_EVERY - 1) + [True]
    assert slow.passed == {"disk": TRY_EVERY}
    assert slow.worth("host"), "another tier is another matter"
    for _ in range(200):
        slow.see("disk", 0.001)
    assert slow.worth("disk"), "it has become faster"
    assert slow.seconds["disk"] == pytest.approx(0.001)


def test_a_stack_says_no_where_computing_is_sooner() -> None:
    stack = TierStack(host=HostTier(1 << 12, 64))
    keys = [bytes([number]) * 33 for number in range(8)]
    for key in keys:
        stack.put(key, b"", bytes(64))
    for _ in range(SURE_AFTER):
        assert list(stack.fetch(keys[:1])) == [bytes(64)]
    stack.speeds.recompute_s = 1e-12
    assert not stack.contains(keys[0])
    stack.speeds.recompute_s = 1.0
    assert stack.contains(keys[0])
    stack.speeds.recompute_s = 1e-12
    assert stack.contains(keys[0]), "promised in the step that is planned"
    stack.begin_step()
    stack.end_step()
    assert not stack.contains(keys[1])
    stack.check()
    stack.close()

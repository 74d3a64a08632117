"""The cheapest way back, and the cheapest manner of giving way: as arithmetic, and as what the scheduler loses."""

from __future__ import annotations

import pytest
from fake_engine import Engine, Job, Shape

from octavo.sched.cost import RECOMPUTE, Speeds, cheaper_manner


def prompt(length: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + length))


def test_a_block_comes_back_the_fastest_way() -> None:
    speeds = Speeds(prefill=1000.0, fetch_s={"host": 0.004, "disk": 0.010})
    assert [speeds.way_back(size) for size in (1, 3, 5, 16)] == [RECOMPUTE, RECOMPUTE, "host", "host"]
    assert speeds.back_s(10, 16) == pytest.approx(0.04)
    assert speeds.back_s(10, 2) == pytest.approx(0.02)


def test_a_tier_that_was_not_measured_yet_is_tried_first() -> None:
    assert Speeds(prefill=1000.0, fetch_s={"host": 0.0, "disk": 0.010}).way_back(16) == "host"
    assert Speeds(fetch_s={"host": 0.0, "disk": 0.0}).way_back(16) == "host"
    assert Speeds().way_back(16) == RECOMPUTE


@pytest.mark.parametrize(
    ("speeds", "kept", "manner"),
    [
        (Speeds(), True, "close"),
        (Speeds(), False, "cut"),
        (Speeds(prefill=1000.0), True, "close"),
        (Speeds(prefill=1000.0), False, "cut"),
        (Speeds(prefill=1000.0, fetch_s={"host": 0.001}), True, "close"),
        (Speeds(prefill=1000.0, fetch_s={"host": 0.001}), False, "cut"),
    ],
)
def test_who_would_lose_all_is_cut_back(speeds: Speeds, kept: bool, manner: str) -> None:
    assert cheaper_manner(speeds, 400, 2, kept=kept, block_size=16) == manner
    assert cheaper_manner(speeds, 400, 25, kept=kept, block_size=16) == "close", "nothing would be left"


def pressure(**how: bool) -> Engine:
    """Two long ones in a pool that holds one and a half: the second gives way again and again."""
    engine = Engine(Shape(num_blocks=30, block_size=4, max_model_len=100, budget=64, prefix_cache=how["prefix_cache"]))
    for at in range(2):
        engine.add(Job(prompt(30, 1000 * at), max_tokens=50, use_cache=how["use_cache"]))
    engine.run()
    engine.check_idle()
    return engine


@pytest.mark.parametrize(
    "how", [{"prefix_cache": False, "use_cache": True}, {"prefix_cache": True, "use_cache": False}]
)
def test_only_tail_blocks_are_lost_where_nothing_is_cached(
    how: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = pressure(**how).scheduler.stats()
    monkeypatch.setattr("octavo.sched.room.cheaper_manner", lambda *_, **__: "close")
    closed = pressure(**how).scheduler.stats()
    needed = 2 * (30 + 50) - 2
    assert cut.preemptions >= 1
    assert closed.computed_tokens - needed > 30
    assert cut.victims["cut"] > 0
    assert closed.victims == {"recompute": closed.preemptions}
    assert cut.computed_tokens - needed < 0.7 * (closed.computed_tokens - needed)


def test_only_what_was_taken_is_lost_where_all_is_cached() -> None:
    """Closing a victim is dropping its tail: eviction takes the end of a beginning first, and only what is needed."""
    engine = Engine(Shape(num_blocks=20, block_size=4, max_model_len=100, budget=64))
    (first,) = engine.add(Job(prompt(20, 1000), max_tokens=20))
    (victim,) = engine.add(Job(prompt(30, 2000), max_tokens=20))
    engine.run()
    engine.check_idle()
    assert engine.outcomes[victim].preemptions >= 1
    assert engine.outcomes[first].preemptions == 0
    again = engine.scheduler.stats().computed_tokens - (20 + 20 - 1) - (30 + 20 - 1)
    taken = 40 // 4 - 6  # what the first still needed when the second was closed, in blocks
    assert 0 < again <= (taken + 1) * 4 * engine.outcomes[victim].preemptions


def test_the_cut_go_on_only_when_all_can_grow() -> None:
    """Else each block that comes free would be computed for nothing."""
    engine = pressure(prefix_cache=False, use_cache=True)
    cut = [number for number, step in enumerate(engine.steps) if step.preempted]
    assert len(cut) <= 2 + engine.outcomes[1].preemptions * 10
    assert engine.outcomes[1].preemptions <= 5

"""Beams of one search: what they share, when they wait, what the door says. The search itself is a fake one."""

from __future__ import annotations

import random

import pytest
from fake_engine import Engine, Job, Shape
from workloads import smallest_pool

from octavo.errors import InvalidRequest
from octavo.kv import KVCacheManager
from octavo.sched import Request, Scheduler
from octavo.sched.limits import Limits
from octavo.sched.policies import RankedQueue, by_priority


def beams(engine: Engine, width: int, prompt: int, new: int) -> tuple[int, ...]:
    return engine.add(Job(tuple(range(prompt)), max_tokens=new, n=width, beams=True))


def test_beams_share_all_full_blocks_and_copy_the_last_one_when_they_part() -> None:
    """The prompt's two full blocks are there once; each beam has its own copy of the third, made by its first write."""
    engine = Engine(Shape(block_size=4, prefix_cache=False))
    seqs = beams(engine, 3, 10, 8)
    engine.step()
    assert engine.kv.num_blocks - engine.kv.num_free == 3
    tables: list[list[int]] = []
    engine.in_flight = lambda _: tables.extend(list(engine.kv.block_ids(seq)) for seq in seqs)
    engine.step()
    engine.in_flight = None
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3
    engine.run()
    engine.check_idle()


def test_a_beam_that_is_given_up_returns_its_blocks() -> None:
    kv = KVCacheManager(16, 4, prefix_cache=False)
    scheduler = Scheduler(kv, Limits(16, 4, 32))
    scheduler.add(Request(0, list(range(8)), max_tokens=9, n=2, children=(1,), beams=True))
    for branch in ({0: (0, 1), 1: (0, 2)}, {0: (0, 3), 1: (1, 4)}, {0: (1, 5), 1: (1, 6)}):
        step = scheduler.schedule()
        scheduler.apply(step, {})
        scheduler.branch(branch)
        kv.end_step()
    assert scheduler.tokens(0)[8:] == [2, 4, 5]
    assert scheduler.tokens(1)[8:] == [2, 4, 6]
    assert list(kv.block_ids(0)) == list(kv.block_ids(1))
    assert kv.num_blocks - kv.num_free == 3


def test_beams_that_lost_what_they_go_on_with_wait_and_share_again() -> None:
    """Sequence 2 is closed when the search goes on with it."""
    kv = KVCacheManager(32, 4, prefix_cache=False)
    scheduler = Scheduler(kv, Limits(16, 4, 32))
    scheduler.add(Request(0, list(range(8)), max_tokens=9, n=3, children=(1, 2), beams=True))
    scheduler.apply(scheduler.schedule(), {})
    scheduler.branch({0: (0, 20), 1: (0, 21), 2: (0, 22)})
    kv.end_step()
    scheduler.schedule()
    scheduler.apply(scheduler.recall([2]), {})
    scheduler.branch({0: (0, 30), 1: (2, 31), 2: (2, 32)})
    assert [scheduler.tokens(seq)[8:] for seq in (0, 1, 2)] == [[20, 30], [22, 31], [22, 32]]
    assert (scheduler.running, scheduler.waiting) == (1, 2)
    scheduler.check()
    step = scheduler.schedule()
    assert {1} <= set(step.finished)
    assert {row.seq for row in step.rows} == {0, 1}
    assert list(kv.block_ids(1))[:2] == list(kv.block_ids(0))[:2]
    scheduler.apply(step, {})
    kv.end_step()
    assert {row.seq for row in scheduler.schedule().rows} == {2}
    kv.check()


@pytest.mark.parametrize("windows", [(None,), (None, 5), (3, 3)])
def test_a_search_runs_in_the_smallest_pool_that_the_door_lets_it_into(windows: tuple[int | None, ...]) -> None:
    generator = random.Random(5)
    for _ in range(40):
        size, prompt, new, width = (generator.randint(1, most) for most in (5, 20, 20, 6))
        job = Job(tuple(range(prompt)), max_tokens=new, n=max(2, width), beams=True)
        blocks = smallest_pool(job, KVCacheManager(1, size, windows=windows))
        shape = Shape(blocks, size, windows, generator.random() < 0.5, max_seqs=6)
        engine = Engine(shape)
        engine.add(job)
        engine.run()
        engine.check_idle()
        with pytest.raises(InvalidRequest, match=f"for {job.n} beams"):
            Engine(Shape(blocks - 1, size, windows, max_seqs=6)).add(job)


def test_a_width_that_cannot_run_together_is_refused() -> None:
    """Case B05: and not left waiting for ever."""
    engine = Engine(Shape(max_seqs=3))
    with pytest.raises(InvalidRequest, match="beam_width 4 is more than the 3 sequences that run at once") as refused:
        beams(engine, 4, 5, 5)
    assert refused.value.param == "beam_width"
    assert not engine.scheduler.has_work


def test_a_pool_without_room_for_all_beams_is_refused_with_what_fits() -> None:
    engine = Engine(Shape(num_blocks=8, block_size=4))
    with pytest.raises(
        InvalidRequest, match=r"need 17 KV blocks of 4 tokens for 4 beams .* 8, enough for 4 tokens"
    ) as no:
        beams(engine, 4, 8, 8)
    assert (no.value.param, no.value.code) == ("prompt", "pool_too_small")


def test_two_searches_that_have_a_place_each_do_not_wait_for_each_other() -> None:
    """The one with the better rank takes the other's place: neither could go on with one beam of two."""
    kv = KVCacheManager(32, 4)
    scheduler = Scheduler(kv, Limits(16, 2, 32), policy=RankedQueue(by_priority, overtakes=True))
    for first, priority in ((0, 0), (2, -1)):
        scheduler.add(
            Request(first, [first, 1, 2], max_tokens=4, n=2, children=(first + 1,), beams=True, priority=priority)
        )
        step = scheduler.schedule()
        landed = {row.seq for row in step.rows}
        scheduler.apply(step, {})
        scheduler.branch({seq + more: (seq, 9 + more) for seq in landed for more in (0, 1)})
        kv.end_step()
    rows = [row.seq for row in scheduler.schedule().rows]
    assert set(rows) == {2, 3}

"""The scheduler on small inputs with known answers: limits, endings, aborts, children, the prefix cache."""

from __future__ import annotations

import pytest
from fake_engine import Engine, Job, Outcome, Shape, solo

from octavo.errors import InvalidRequest
from octavo.sched import Limits, Request, Scheduler, Step


def prompt(length: int) -> tuple[int, ...]:
    return tuple(range(100, 100 + length))


def run(shape: Shape, *jobs: Job) -> Engine:
    engine = Engine(shape)
    for job in jobs:
        engine.add(job)
    engine.run()
    engine.check_idle()
    return engine


def refusal(shape: Shape, job: Job) -> InvalidRequest:
    engine = Engine(shape)
    with pytest.raises(InvalidRequest) as caught:
        engine.add(job)
    assert not engine.scheduler.has_work
    assert engine.kv.num_free == shape.num_blocks
    return caught.value


POOL_OF_12 = Shape(num_blocks=12, block_size=16, max_model_len=512, budget=64)


# -- the door


def test_what_the_pool_can_never_hold_is_refused_with_the_arithmetic() -> None:
    """Case D02 and choice 16."""
    error = refusal(POOL_OF_12, Job(prompt(100), max_tokens=200))
    assert error.code == "pool_too_small"
    assert error.param == "max_tokens"
    for number in ("100", "200", "19", "12", "192", "92"):  # prompt, asked, needed, have, holds, and what would do
        assert number in str(error)
    assert run(POOL_OF_12, Job(prompt(100), max_tokens=92)).outcomes[0].reason == "length"
    assert refusal(POOL_OF_12, Job(prompt(100), max_tokens=93)).code == "pool_too_small"
    assert refusal(POOL_OF_12, Job(prompt(300), max_tokens=None)).param == "prompt"


def test_what_the_context_cannot_hold_is_refused_with_both_lengths() -> None:
    """Choices 2, 22 and 24."""
    shape = Shape(max_model_len=64)
    for job, param in ((Job(prompt(64), max_tokens=None), "prompt"), (Job(prompt(60), max_tokens=5), "max_tokens")):
        error = refusal(shape, job)
        assert (error.code, error.param) == ("context_length_exceeded", param)
        assert "64" in str(error)
        assert str(len(job.prompt)) in str(error)
    assert refusal(shape, Job(())).param == "prompt"


def test_without_max_tokens_it_ends_where_the_context_or_the_pool_does() -> None:
    """Cases D10 and D11."""
    assert len(run(Shape(max_model_len=64), Job(prompt(10), max_tokens=None)).outcomes[0].tokens) == 64
    assert len(run(Shape(max_model_len=64, num_blocks=5), Job(prompt(10), max_tokens=None)).outcomes[0].tokens) == 20


def test_a_window_lets_a_small_pool_hold_a_long_sequence() -> None:
    shape = Shape(num_blocks=4, windows=(6,), max_model_len=60)
    outcome = run(shape, Job(prompt(30), max_tokens=None)).outcomes[0]
    assert len(outcome.tokens) == 60


def test_ids_in_use_are_refused() -> None:
    """Case E05."""
    engine = Engine(Shape())
    engine.add(Job(prompt(4), n=2))
    for ids in ((0,), (1,), (5, 0), (5, 5)):
        with pytest.raises(InvalidRequest) as caught:
            engine.scheduler.add(Request(ids[0], [1, 2], n=len(ids), children=ids[1:]))
        assert caught.value.code == "duplicate_id"
    with pytest.raises(ValueError, match="children"):
        engine.scheduler.add(Request(9, [1, 2], n=3, children=(10,)))
    engine.run()
    engine.check_idle()


# -- endings


@pytest.mark.parametrize("most", [1, 2, 3])
def test_small_max_tokens_are_exact(most: int) -> None:
    """Case D09."""
    outcome = run(Shape(), Job(prompt(9), max_tokens=most)).outcomes[0]
    assert (len(outcome.tokens), outcome.reason) == (9 + most, "length")


@pytest.mark.parametrize("n", [1, 3])
def test_no_new_tokens_computes_the_prompt_and_samples_nothing(n: int) -> None:
    """Case D08: in chunks, and it ends after the last one."""
    engine = run(Shape(budget=16), Job(prompt(40), max_tokens=0, n=n))
    assert all(outcome == Outcome(list(prompt(40)), "length") for outcome in engine.outcomes.values() if n == 1)
    assert [outcome.reason for outcome in engine.outcomes.values()] == ["length"] * n
    assert not any(row.sample for step in engine.steps for row in step.rows)
    assert [row.count for step in engine.steps for row in step.rows][:3] == [16, 16, 8]


def test_stop_ids_wait_for_min_tokens() -> None:
    """Case F06: a stop id among the first `min_tokens` is text, the next one ends it and is counted."""
    everything = frozenset(range(61))
    engine = run(Shape(), Job(prompt(5), max_tokens=10, min_tokens=5, stop_ids=everything))
    outcome = engine.outcomes[0]
    assert (len(outcome.tokens), outcome.reason, outcome.stop_token) == (11, "stop", outcome.tokens[-1])
    outcome = run(Shape(), Job(prompt(5), max_tokens=6, min_tokens=5, stop_ids=everything)).outcomes[0]
    assert (len(outcome.tokens), outcome.reason) == (11, "stop")


def test_a_caller_may_finish_a_sequence_for_reasons_of_its_own() -> None:
    engine = Engine(Shape())
    (seq,) = engine.add(Job(prompt(5)))
    engine.step()
    assert engine.scheduler.finish(seq, "stop")
    assert not engine.scheduler.finish(seq, "stop")
    assert engine.kv.num_free == engine.kv.num_blocks
    engine.scheduler.add(Request(7, [1, 2]))
    assert engine.scheduler.schedule().finished == (seq,)


def test_lengths_around_block_boundaries() -> None:
    """Case D05: with the cache and without; the table always has the blocks of its tokens and no more."""
    for cached in (True, False):
        engine = Engine(Shape(num_blocks=40, block_size=16, prefix_cache=cached, budget=64, max_model_len=128))

        def right_table(step: Step, engine: Engine = engine) -> None:
            for row in step.rows:
                assert len(engine.kv.block_ids(row.seq)) == -(-(row.start + row.count) // 16)

        engine.in_flight = right_table
        for length in range(1, 50):
            engine.add(Job(prompt(length), max_tokens=20))
            engine.run()
        engine.check_idle()


# -- aborts


def test_aborting_what_is_not_there_does_nothing() -> None:
    """Case E04."""
    engine = Engine(Shape())
    assert not engine.scheduler.abort(0)
    (seq,) = engine.add(Job(prompt(5), max_tokens=2))
    engine.run()
    before = engine.scheduler.stats()
    assert not engine.scheduler.abort(seq)
    assert not engine.scheduler.abort(seq)
    assert engine.scheduler.stats() == before


def test_cancelled_ones_in_the_queue_never_wedge_it() -> None:
    """Case E03."""
    engine = Engine(Shape(max_seqs=1))
    engine.add(Job(prompt(5), max_tokens=40))
    queued = [engine.add(Job(prompt(6), max_tokens=4))[0] for _ in range(50)]
    for number, seq in enumerate(queued):
        if number % 3 == 0:
            engine.step()
        if number != 30:
            assert engine.abort(seq)
    engine.run()
    engine.check_idle()
    assert engine.outcomes[queued[30]].reason == "length"


@pytest.mark.parametrize("steps_before", range(8))
def test_aborting_any_part_of_a_request_with_n_leaves_the_others(steps_before: int) -> None:
    """Case B03: the parent before, amid and after its prompt; a child waiting, forked or running."""
    for victims in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
        engine = Engine(Shape(budget=8))
        engine.add(Job(prompt(20), max_tokens=9, n=3))
        for _ in range(steps_before):
            engine.step()
        for seq in victims:
            engine.abort(seq)
        engine.run()
        engine.check_idle()


def test_the_token_of_one_aborted_in_flight_is_ignored() -> None:
    engine = Engine(Shape())
    first, second = engine.add(Job(prompt(5)))[0], engine.add(Job(prompt(7)))[0]
    engine.in_flight = lambda step: engine.abort(first) and None
    engine.step()
    engine.in_flight = None
    assert engine.outcomes[first].tokens == list(prompt(5))
    engine.run()
    engine.check_idle()
    assert engine.outcomes[second].reason == "length"


def test_no_request_leaves_anything_behind() -> None:
    """Case E06."""
    engine = Engine(Shape())
    for number in range(600):
        ids = engine.add(Job(prompt(1 + number % 7), max_tokens=1, n=1 + number % 2))
        if number % 5 == 0:
            engine.abort(ids[-1])
        if number % 3 == 0:
            engine.step()
    engine.run()
    engine.check_idle()
    engine.scheduler.add(Request(10**9, [1], max_tokens=1))
    last = engine.scheduler.schedule()
    engine.scheduler.apply(last, {10**9: 1})
    left = {name: value for name, value in vars(engine.scheduler).items() if hasattr(value, "__len__") and value}
    assert set(left) <= {"_slots", "_ended", "_refused"}
    assert left["_ended"] == [10**9]


# -- steps in turn


def test_steps_are_scheduled_and_applied_in_turn() -> None:
    engine = Engine(Shape())
    engine.add(Job(prompt(5)))
    scheduler = engine.scheduler
    step = scheduler.schedule()
    with pytest.raises(RuntimeError, match="apply"):
        scheduler.schedule()
    with pytest.raises(ValueError, match="no sampled token"):
        scheduler.apply(step, {})
    assert scheduler.apply(step, {0: 7}) == []
    assert scheduler.request(0).tokens == [*prompt(5), 7]
    with pytest.raises(RuntimeError, match="in flight"):
        scheduler.apply(step, {0: 7})


def test_settings_below_one_are_refused() -> None:
    kv = Engine(Shape()).kv
    for budget, seqs, length in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            Scheduler(kv, Limits(budget, seqs, length))


# -- n > 1


def test_children_share_the_prompt_and_wait_for_slots_in_waves() -> None:
    """Case B05: more answers than may run; each is its own solo run, and only the shared last block is copied."""
    job = Job(prompt(30), max_tokens=6, n=16)
    engine = run(Shape(max_seqs=4, budget=64), job)
    assert [engine.outcomes[i].tokens for i in range(16)] == [solo(job, i, (None,), 6).tokens for i in range(16)]
    assert engine.kv.stats().copies == 3
    assert all(engine.outcomes[i].cached_tokens == 0 for i in range(16)), "the prompt was counted with the parent's"
    computed = sum(row.count for step in engine.steps for row in step.rows)
    assert computed < 30 + 16 * (6 + 4)  # the prompt once, its tail block at most once more for each


def test_children_without_room_wait_instead_of_being_thrown_out() -> None:
    engine = run(Shape(num_blocks=3), Job(prompt(8), max_tokens=4, n=4))
    assert engine.scheduler.stats().preemptions == 0


def test_children_of_a_parent_that_ends_with_its_prompt_are_served() -> None:
    engine = run(Shape(), Job(prompt(9), max_tokens=1, n=5), Job(prompt(8), max_tokens=1, n=2, use_cache=False))
    assert len(engine.outcomes) == 7


# -- the prefix cache


BIG = Shape(num_blocks=64, block_size=16, max_model_len=400, budget=16)


def test_a_prefix_in_the_making_is_not_a_hit() -> None:
    """Case A08: aborted in its third chunk; what was computed may be reused, the rest may not."""
    engine = Engine(BIG)
    (seq,) = engine.add(Job(prompt(256)))
    engine.step()
    engine.step()
    engine.in_flight = lambda step: engine.abort(seq) and None
    engine.step()
    engine.in_flight = None
    second, third = engine.add(Job(prompt(256)))[0], engine.add(Job((*prompt(256), 7)))[0]
    engine.run()
    engine.check_idle()
    assert engine.outcomes[second].cached_tokens <= 32
    assert engine.outcomes[third].cached_tokens <= 256


def test_two_with_one_prefix_in_the_same_step() -> None:
    """Case A09."""
    engine = Engine(Shape(num_blocks=64, block_size=16, max_model_len=400, budget=256))
    first, second = engine.add(Job((*prompt(64), 1)))[0], engine.add(Job((*prompt(64), 2)))[0]
    engine.step()
    assert {row.count for row in engine.steps[0].rows} == {65}
    engine.abort(second)
    (third,) = engine.add(Job((*prompt(64), 3)))
    engine.run()
    engine.check_idle()
    assert engine.outcomes[third].cached_tokens == 64
    assert engine.outcomes[first].cached_tokens == 0


def test_cached_blocks_are_counted_when_admitted_and_not_before() -> None:
    """Case A10: B is looked up while A's blocks are cached, admitted after others have taken them."""
    shape = Shape(num_blocks=8, block_size=4, max_model_len=32, budget=32)
    engine = Engine(shape)
    engine.add(Job(prompt(12), max_tokens=1))
    engine.run()
    engine.add(Job(tuple(range(16)), max_tokens=16))
    engine.step()
    (late,) = engine.add(Job((*prompt(12), 9, 9, 9, 9, 9), max_tokens=3))
    engine.step()
    assert engine.scheduler.waiting == 1
    engine.run()
    engine.check_idle()
    assert engine.outcomes[late].cached_tokens == 0


def test_matched_blocks_are_never_the_ones_evicted() -> None:
    """Case A07: six blocks, four of them cached; seven are refused, six fit and start with the four."""
    shape = Shape(num_blocks=6, block_size=4, max_model_len=100, budget=100)
    engine = Engine(shape)
    engine.add(Job(prompt(17), max_tokens=1))
    seen: list[list[int]] = []
    engine.in_flight = lambda step: seen.append(list(engine.kv.block_ids(step.rows[0].seq)))
    engine.run()
    with pytest.raises(InvalidRequest, match="need 7 KV blocks"):
        engine.add(Job((*prompt(16), *range(11)), max_tokens=1))
    (seq,) = engine.add(Job((*prompt(16), *range(7)), max_tokens=1))
    engine.run()
    engine.check_idle()
    assert engine.outcomes[seq].cached_tokens == 16
    assert seen[-1][:4] == seen[0][:4]


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    """Case A18: what a preempted sequence finds of its own work is no hit; a repeat is."""
    shape = Shape(num_blocks=12, block_size=4, max_model_len=48, budget=48)
    engine = Engine(shape)
    jobs = [Job(tuple(range(i, i + 10)), max_tokens=30) for i in (0, 100, 200)]
    ids = [engine.add(job)[0] for job in jobs]
    while engine.scheduler.has_work:
        engine.step()
        for seq in ids:
            if seq not in engine.outcomes:
                assert not engine.scheduler.request(seq).cached_tokens
    assert sum(engine.outcomes[seq].preemptions for seq in ids) > 0
    assert all(engine.outcomes[seq].cached_tokens == 0 for seq in ids)
    (again,) = engine.add(jobs[-1])
    engine.run()
    engine.check_idle()
    assert engine.outcomes[again].cached_tokens == 8
    stats = engine.scheduler.stats()
    assert (stats.cached_tokens, stats.prompt_tokens) == (8, 40)


def test_a_request_may_refuse_the_cache() -> None:
    """Its whole prompt is computed, after a preemption too; what it computed serves others."""
    engine = Engine(Shape())
    engine.add(Job(prompt(20)))
    engine.run()
    (cold,) = engine.add(Job(prompt(20), use_cache=False))
    engine.step()
    assert (engine.steps[-1].rows[0].start, engine.steps[-1].rows[0].count) == (0, 16)
    engine.run()
    (warm,) = engine.add(Job((*prompt(20), 1)))
    engine.run()
    engine.check_idle()
    assert engine.outcomes[cold].cached_tokens == 0
    assert engine.outcomes[warm].cached_tokens == 20


# -- the batching window


def test_the_first_of_an_idle_engine_waits_for_company() -> None:
    engine = Engine(Shape(window_s=5.0))
    engine.add(Job(prompt(4)))
    assert [engine.scheduler.wait_s(now) for now in (0.0, 3.0, 5.0)] == [5.0, 2.0, 0.0]
    for _ in range(3):
        assert engine.step() == []
    engine.add(Job(prompt(3)))
    while not engine.steps[-1].rows:
        engine.step()
    assert (len(engine.steps), len(engine.steps[-1].rows)) == (6, 2), "both in one step, five seconds after the first"
    engine.add(Job(prompt(6)))
    engine.step()
    assert len(engine.steps[-1].rows) == 3, "nobody waits while something runs"
    engine.run()
    engine.check_idle()


@pytest.mark.parametrize(("count", "length"), [(8, 1), (1, 16), (2, 8)])
def test_a_full_batch_waits_for_nobody(count: int, length: int) -> None:
    """As many as may run, or as many tokens as a step has."""
    engine = Engine(Shape(window_s=5.0))
    for _ in range(count):
        engine.add(Job(prompt(length)))
    assert engine.scheduler.wait_s(0.0) == 0.0
    engine.step()
    assert engine.steps[-1].rows

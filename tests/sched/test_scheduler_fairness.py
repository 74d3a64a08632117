"""Nobody starves, nobody is thrown out without end, and decoding goes on beside long prompts: the bounds by number."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from fake_engine import Engine, Job, Shape

from octavo.kv import KVCacheManager
from octavo.sched import preemption_bound, running_limit
from octavo.sched.bounds import horizon


def prompt(length: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + length))


def steps_to_first_token(engine: Engine, seq: int) -> int:
    before = len(engine.steps)
    while seq not in engine.emitted:
        engine.step()
    return len(engine.steps) - before


# -- shares of the budget


@pytest.mark.parametrize("budget", range(1, 100))
def test_the_share_of_chunks_is_a_quarter_and_one_may_always_run(budget: int) -> None:
    limit = running_limit(budget, 1000)
    assert 1 <= limit <= budget
    assert budget - (limit - 1) >= budget / 4
    assert running_limit(budget, 3) <= 3
    assert running_limit(2048, 64) == 64


def test_streams_go_on_at_every_step_of_a_long_prompt() -> None:
    """Case N06: one token a step for A while B's 2,000 tokens come in chunks."""
    engine = Engine(Shape(num_blocks=400, block_size=16, budget=64, max_model_len=3000))
    (stream,) = engine.add(Job(prompt(5), max_tokens=500))
    engine.step()
    (long,) = engine.add(Job(prompt(2000, 1000), max_tokens=2))
    had, steps = len(engine.emitted[stream]), steps_to_first_token(engine, long)
    assert steps == -(-2000 // 63)
    assert len(engine.emitted[stream]) - had == steps
    engine.run()
    engine.check_idle()


@pytest.mark.parametrize(("budget", "seqs"), [(8, 8), (16, 8), (64, 8), (9, 64)])
def test_a_long_prompt_gets_its_first_token_beside_constant_short_ones(budget: int, seqs: int) -> None:
    """Case C08: within four times its chunks, and the time in which one that runs ends; the short ones go on after."""
    engine = Engine(
        Shape(num_blocks=300, block_size=16, budget=budget, max_seqs=seqs, max_model_len=1100), check_every=50
    )
    for _ in range(60):
        engine.add(Job(prompt(4), max_tokens=32))
        engine.step()
    (long,) = engine.add(Job(prompt(1000, 1000), max_tokens=4))
    ahead, before = engine.scheduler.waiting - 1, len(engine.steps)
    while long not in engine.emitted:  # it has not decoded yet, so all of its rows are chunks
        engine.add(Job(prompt(4), max_tokens=32))
        engine.step()
    limit = running_limit(budget, seqs)
    waves = ahead // limit + 1  # those who came before it
    assert len(engine.steps) - before <= 4 * -(-1000 // budget) + (waves + 1) * (32 + limit)
    chunks = [step for step in engine.steps if any(row.seq == long for row in step.rows)]
    assert len(chunks) <= -(-4 * 1000 // budget)
    engine.run()
    engine.check_idle()


# -- blocks run out


def test_the_preempted_come_back_with_all_they_had() -> None:
    engine = Engine(Shape(num_blocks=12, block_size=4, max_model_len=48, budget=48))
    ids = [engine.add(Job(prompt(10, 100 * at), max_tokens=30))[0] for at in range(3)]
    engine.run()
    engine.check_idle()
    preempted = [(number, seq) for number, step in enumerate(engine.steps) for seq in step.preempted]
    assert preempted
    assert {seq for _, seq in preempted} <= set(ids[1:]), "the oldest never gives way"
    for number, seq in preempted:
        again = next(row for step in engine.steps[number + 1 :] for row in step.rows if row.seq == seq)
        last = [row for step in engine.steps[:number] for row in step.rows if row.seq == seq][-1]
        assert again.start + again.count == last.start + last.count + 1, "the prompt and all of the output, at once"


def test_two_half_admitted_ones_never_block_each_other() -> None:
    """Case C09: twelve blocks, two sequences of eight that are let in together."""
    engine = Engine(Shape(num_blocks=12, block_size=4, max_model_len=32, budget=32))
    for at in (0, 100):
        engine.add(Job(prompt(8, at), max_tokens=24))
    engine.step()
    assert engine.scheduler.running == 2
    engine.run(most_steps=2 * 32)
    engine.check_idle()


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_the_smallest_pool_serves_all_one_after_another(size: int) -> None:
    """No livelock where each needs the whole pool."""
    engine = Engine(Shape(num_blocks=-(-32 // size), block_size=size, max_model_len=32, budget=8))
    for at in range(12):
        engine.add(Job(prompt(4 + at, 100 * at), max_tokens=28 - at, n=1 + at % 2))
    engine.run(most_steps=18 * 32)
    engine.check_idle()


def test_preemptions_stay_within_the_bound_under_lasting_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case C08: blocks of one token, so that the horizon starts as short as it can; were it constant, it would hurt.
    The watermark, which would help as well, is off."""

    def pressure() -> Engine:
        shape = Shape(num_blocks=200, block_size=1, max_model_len=128, budget=120, max_seqs=30)
        engine = Engine(shape, check_every=20)
        for at in range(60):
            engine.add(Job((at,), max_tokens=30 + at))
        engine.run()
        engine.check_idle()
        return engine

    monkeypatch.setattr("octavo.sched.watermark.MOST", 1 << 40)
    engine = pressure()
    most = max(outcome.preemptions for outcome in engine.outcomes.values())
    assert 2 <= most <= preemption_bound(128, 1) == 7
    with patch("octavo.sched.sharing.horizon", lambda preemptions, block_size: block_size):
        constant = pressure()
    assert most < max(outcome.preemptions for outcome in constant.outcomes.values())
    assert engine.scheduler.stats().preemptions < 0.8 * constant.scheduler.stats().preemptions


def test_the_bound_is_where_the_horizon_covers_everything() -> None:
    for length in (1, 2, 15, 16, 17, 100, 8192):
        for size in (1, 2, 16, 128):
            bound = preemption_bound(length, size)
            assert horizon(bound, size) >= length
            assert bound == 0 or horizon(bound - 1, size) < length


def test_a_stalled_prompt_shrinks_its_chunk_before_anyone_is_thrown_out() -> None:
    """What a chunk asks for beyond the free blocks is not worth the work of a running sequence."""
    engine = Engine(Shape(num_blocks=14, block_size=4, max_model_len=48, budget=32))
    (long,) = engine.add(Job(prompt(40), max_tokens=8))
    engine.step()
    engine.add(Job(prompt(3, 500), max_tokens=3))
    engine.run()
    engine.check_idle()
    assert engine.scheduler.stats().preemptions == 0
    assert engine.outcomes[long].reason == "length"


def test_nobody_is_admitted_into_what_a_short_prompt_could_not_get() -> None:
    """A chunk that was cut for want of blocks leaves some free; they are its own for the next step."""
    engine = Engine(Shape(num_blocks=15, block_size=1, windows=(3,), budget=17, max_model_len=48))
    (long,) = engine.add(Job(prompt(30), max_tokens=9))
    (late,) = engine.add(Job(prompt(1, 500), max_tokens=2))
    steps_to_first_token(engine, late)
    assert [row.count for row in engine.steps[0].rows] == [8]
    assert len(engine.emitted[long]) >= 1
    engine.run()
    engine.check_idle()


def test_a_head_without_room_is_asked_again_when_blocks_come_back_and_not_before() -> None:
    engine = Engine(Shape(num_blocks=12, block_size=4, max_model_len=48, budget=48))
    first, second = engine.add(Job(prompt(15), max_tokens=4))[0], engine.add(Job(prompt(15, 200), max_tokens=17))[0]
    engine.step()
    (head,) = engine.add(Job(prompt(20, 300), max_tokens=4))
    with patch.object(KVCacheManager, "open", autospec=True, side_effect=KVCacheManager.open) as opened:
        while first not in engine.outcomes:
            engine.step()
        assert opened.call_count == 1
        engine.step()
    assert engine.requests[head].slot is not None
    assert second not in engine.outcomes
    engine.run()
    engine.check_idle()

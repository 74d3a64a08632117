"""Waits: predicted from what was measured, refused when too long, given up when the deadline passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy import ToyFactory

from octavo import EngineConfig, RequestOptions, SamplingParams, Tenant
from octavo.engine.engine import Engine
from octavo.engine.outputs import Delta, RequestOutput
from octavo.engine.pace import Pace
from octavo.engine.waiting_room import SWEEP
from octavo.errors import InvalidRequest, Overloaded
from octavo.sched.outlook import Outlook

CHAIN = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p")


class Clock:
    """A second passes between the beginning of a step and its end, and none otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(Engine):
    """Steps of one second by a clock of their own."""

    def step(self) -> list[Delta]:
        clock = self._parts.clock
        assert isinstance(clock, Clock)
        apply = self._scheduler.apply

        def later(*arguments: object) -> object:
            clock.now += 1.0
            return apply(*arguments)  # type: ignore[arg-type]

        self._scheduler.apply = later  # type: ignore[method-assign, assignment]
        try:
            return super().step()
        finally:
            self._scheduler.apply = apply  # type: ignore[method-assign]


@pytest.fixture
def engine(toy: ToyFactory) -> Engine:
    """One place, a second a step."""
    llm = toy(CHAIN, max_seqs=1)
    return Slow(replace(llm.engine._parts, clock=Clock()), llm.config)


def add(engine: Engine, tokens: int = 10, deadline_s: float | None = None) -> int:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    return engine.add("a", params, seed=0, options=RequestOptions(deadline_s=deadline_s))


def run(engine: Engine) -> dict[int, RequestOutput]:
    outputs = {}
    while engine.has_work:
        for delta in engine.step():
            if delta.output is not None:
                outputs[delta.request_id] = delta.output
    return outputs


def test_pace_tells_chunks_from_single_tokens() -> None:
    pace = Pace()
    assert pace.wait_s(Outlook(1000, 5), 1.0) == 0.0, "nothing is known"
    pace.see_step(0.5, 0, 8)
    assert (pace.decode.value, pace.prefill.value) == (16.0, None)
    pace.see_step(1.0, 100, 8)  # half of it was for the eight
    assert pace.prefill.value == pytest.approx(200.0)
    pace.see_step(0.0, 100, 8)
    pace.see_end(32)
    assert pace.turn_s == 2.0
    assert pace.wait_s(Outlook(400, 3), 0.25) == pytest.approx(0.5 + 6.0)
    for _ in range(200):
        pace.see_step(1.0, 0, 64)
    assert pace.decode.value == pytest.approx(64.0)


def test_what_was_predicted_comes_true(engine: Engine) -> None:
    """One place, each answer ten steps: the wait of the k-th in the queue, to a step or two each."""
    add(engine)
    run(engine)
    began = engine._parts.clock()
    predicted = {}
    stats = engine.stats()
    assert (stats.decode_tokens_per_second, stats.predicted_wait_s) == (1.0, 0.0)
    for _ in range(5):
        wait = engine.predicted_wait_s()
        predicted[add(engine)] = wait
    waited = {id: output.metrics.first_token_s for id, output in run(engine).items()}
    assert began > 0
    for id, wait in list(predicted.items())[1:]:
        assert waited[id] == pytest.approx(wait, rel=0.3)


def test_who_would_come_too_late_is_turned_away_with_the_wait(engine: Engine) -> None:
    assert add(engine, deadline_s=0.001) == 0, "nothing is known yet, so nothing is refused"
    engine.step()
    for _ in range(3):
        add(engine)
    for _ in range(12):
        engine.step()
    free = engine.stats().blocks_used
    with pytest.raises(Overloaded, match="predicted after") as caught:
        add(engine, deadline_s=5.0)
    error = caught.value
    assert error.code == "deadline"
    assert 15 <= error.predicted_wait_s <= 45
    assert error.retry_after_s == pytest.approx(error.predicted_wait_s - 5.0, abs=1.0)
    assert engine.stats().blocks_used == free
    add(engine, deadline_s=error.predicted_wait_s + 1)
    outputs = run(engine)
    assert [output.error for output in outputs.values()] == [None] * len(outputs)


def test_who_has_waited_up_to_its_deadline_is_given_up(engine: Engine) -> None:
    first, late, third = add(engine), add(engine, deadline_s=4.0), add(engine, deadline_s=400.0)
    outputs = run(engine)
    assert [outputs[id].error for id in (first, third)] == [None, None]
    error = outputs[late].error
    assert isinstance(error, Overloaded)
    assert error.code == "deadline"
    assert outputs[late].choices[0].finish_reason == "error"
    assert outputs[late].choices[0].tokens == ()
    assert outputs[late].metrics.total_s == pytest.approx(4.0, abs=1.0)
    assert engine.stats().blocks_used == 0


def test_a_deadline_passes_while_all_are_held_by_a_quota(toy: ToyFactory) -> None:
    """The engine is asked again then, not when the quota is full again."""
    llm = toy(CHAIN, policy="fair")
    clock = Clock()
    engine = Slow(replace(llm.engine._parts, clock=clock), llm.config)
    options = RequestOptions(tenant=Tenant("t", tokens_a_minute=1, hard=True), deadline_s=5.0)
    first = engine.add("a", SamplingParams(max_tokens=4, ignore_eos=True), seed=0, options=options)
    outputs = run(engine)
    assert outputs[first].error is None
    engine.add("a", SamplingParams(max_tokens=4), seed=0, options=options)
    assert engine.step() == []
    assert engine.wait_s() == pytest.approx(5.0)
    clock.now += 5.0
    (delta,) = engine.step()
    assert delta.output is not None
    assert isinstance(delta.output.error, Overloaded)
    assert not engine.has_work


def test_who_has_begun_may_end(engine: Engine) -> None:
    id = add(engine, deadline_s=2.0)
    assert run(engine)[id].error is None


def test_deadlines_are_forgotten_with_their_requests(engine: Engine) -> None:
    for _ in range(3 * SWEEP):
        engine.abort(add(engine, tokens=1, deadline_s=1e6))
        engine.step()
    assert len(engine._waiting_room._deadlines) <= SWEEP + 1


@pytest.mark.parametrize("odd", [0, -1, float("nan"), float("inf"), True, "5"])
def test_odd_deadlines_are_refused(odd: float) -> None:
    with pytest.raises(InvalidRequest, match="deadline_s"):
        RequestOptions(deadline_s=odd)


def test_a_window_is_a_wait_of_the_engine(toy: ToyFactory) -> None:
    llm = toy(CHAIN, batch_window=50)
    assert llm.config == EngineConfig(num_blocks=64, batch_window=50)
    clock = Clock()
    engine = Engine(replace(llm.engine._parts, clock=clock), llm.config)
    add(engine)
    assert engine.step() == []
    assert engine.wait_s() == pytest.approx(0.05)
    clock.now = 0.05
    assert engine.wait_s() == 0.0
    assert engine.step()[0].text


def test_a_window_does_not_keep_a_caller_that_waits_for_answers(toy: ToyFactory) -> None:
    """The thread sleeps through the window and goes on."""
    assert toy(CHAIN, batch_window=20).generate("a", SamplingParams(max_tokens=2))[0].text

"""What each policy promises, by number: who goes first, who gives way, and how long anybody can be made to wait."""

from __future__ import annotations

import random

import pytest
from fake_engine import Engine, Job, Shape

from octavo.errors import InvalidRequest
from octavo.sched import Request
from octavo.sched.policies import AGEING_S, RankedQueue, by_priority, make_policy


def prompt(length: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + length))


def prioritised(**shape: int) -> Engine:
    return Engine(Shape(policy="priority", max_model_len=600, **shape), check_every=20)


def order_of_ends(engine: Engine) -> list[int]:
    ends: list[int] = []
    while engine.scheduler.has_work:
        ends += [finished.seq for finished in engine.step()]
    engine.check_idle()
    return ends


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="fcfs"):
        make_policy("lifo", lambda tokens: tokens)


def test_the_urgent_take_the_slots_of_others() -> None:
    """Case C07: the urgent one ends before either that held a slot when it came."""
    engine = prioritised(max_seqs=2, num_blocks=300)
    low = [engine.add(Job(prompt(4, first), max_tokens=500, priority=5))[0] for first in (100, 200)]
    for _ in range(10):
        engine.step()
    (high,) = engine.add(Job(prompt(4, 300), max_tokens=4))
    assert order_of_ends(engine)[0] == high
    assert [engine.outcomes[seq].preemptions for seq in low] == [0, 1], "one slot was enough"


def test_the_urgent_come_in_a_small_pool_while_others_run() -> None:
    """Case C06: no victim has a row in the step that preempts it, and all answers are what they are alone."""
    engine = prioritised(max_seqs=4, num_blocks=24, block_size=4, budget=16)
    for at in range(8):
        engine.add(Job(prompt(10, 100 * at), max_tokens=30, priority=10))
    for _ in range(12):
        engine.step()
    urgent = [engine.add(Job(prompt(20, 1000 * at), max_tokens=6))[0] for at in (1, 2)]
    assert set(order_of_ends(engine)[:2]) == set(urgent)
    assert engine.scheduler.stats().preemptions > 0


def test_the_preempted_keep_their_place() -> None:
    """Case C08: the one that was thrown out starts again before its equals that came later."""
    engine = prioritised(max_seqs=1, num_blocks=300)
    (first,) = engine.add(Job(prompt(4, 100), max_tokens=50, priority=3))
    later = [engine.add(Job(prompt(4, 1000 * at), max_tokens=5, priority=3))[0] for at in range(1, 4)]
    for _ in range(5):
        engine.step()
    (urgent,) = engine.add(Job(prompt(4, 500), max_tokens=5))
    assert order_of_ends(engine) == [urgent, first, *later]
    assert engine.outcomes[first].preemptions == 1


@pytest.mark.parametrize("behind", [1, 3])
def test_nobody_is_overtaken_by_who_comes_after_its_levels_in_time(behind: int) -> None:
    """Constant urgent work that takes all there is: a request p levels behind waits p * AGEING_S and the rest of what
    came until then, no longer."""
    engine = prioritised(max_seqs=1, num_blocks=300, budget=8)
    arrivals: dict[int, float] = {}
    (low,) = engine.add(Job(prompt(4), max_tokens=2, priority=behind))
    while low not in engine.outcomes:
        now = float(len(engine.steps))
        (seq,) = engine.add(Job(prompt(4, 1000 + len(arrivals)), max_tokens=3))
        arrivals[seq] = now
        engine.step()
        assert now < 200, "starved"
    before = [arrivals[seq] for seq in engine.emitted if seq != low]
    assert max(before) <= behind * AGEING_S
    assert len(before) >= behind * AGEING_S, "and until then it does let them pass"


def test_streams_go_on_beside_an_urgent_long_prompt() -> None:
    engine = Engine(Shape(num_blocks=400, block_size=16, budget=64, max_model_len=3000, policy="priority"))
    streams = [engine.add(Job(prompt(5, 10 * at), max_tokens=200, priority=1))[0] for at in range(1, 5)]
    engine.step()
    (urgent,) = engine.add(Job(prompt(2000, 1000), max_tokens=2))
    had, before = [len(engine.emitted[seq]) for seq in streams], len(engine.steps)
    while urgent not in engine.emitted:
        engine.step()
    steps = len(engine.steps) - before
    assert steps == -(-2000 // (64 - len(streams)))
    assert [len(engine.emitted[seq]) - then for seq, then in zip(streams, had, strict=True)] == [steps] * len(streams)


def test_an_urgent_request_that_cannot_come_in_hurts_nobody() -> None:
    """What would not be enough for it is not taken from anybody."""
    engine = prioritised(max_seqs=8, num_blocks=20, block_size=4, budget=80)
    engine.add(Job(prompt(60, 100), max_tokens=12))
    engine.step()
    (low,) = engine.add(Job(prompt(4, 500), max_tokens=3, priority=1))
    engine.step()
    (urgent,) = engine.add(Job(prompt(40, 1000), max_tokens=3))
    ends = order_of_ends(engine)
    assert ends.index(low) < ends.index(urgent)
    assert engine.outcomes[low].preemptions == 0


def test_a_ranked_queue_is_a_sorted_list() -> None:
    for seed in range(50):
        rng, model = random.Random(seed), list[Request]()
        queue = RankedQueue(by_priority, overtakes=True)
        for age in range(rng.randint(1, 60)):
            if model and rng.random() < 0.4:
                gone = model.pop(rng.randrange(len(model)))
                queue.remove(gone)
            else:
                new = Request(age, [1], priority=rng.randint(-3, 3), arrival=age * rng.random() * 10)
                new.age = age
                queue.push(new)
                model.append(new)
            model.sort(key=lambda each: (each.arrival + AGEING_S * each.priority, each.age))
            assert list(queue) == model
            assert len(queue) == len(model)
            assert queue.head(0.0) is (model[0] if model else None)

"""What the scheduler promises, over random workloads; and that these tests notice when it breaks each promise.

`fake_engine` and `workloads` hold the checks: every answer equals its solo run, nothing is shown twice, the budget
holds in every step, nobody starves or is preempted beyond the bound, all blocks come back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workloads import Workload, draw_workload, play

from octavo.errors import KVError
from octavo.kv import KVCacheManager
from octavo.sched import Finished, FinishReason, Request, Scheduler, Step
from octavo.sched.plan import Plan
from octavo.sched.policies import POLICIES


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    policy = draw(st.sampled_from(POLICIES))
    return draw_workload(lambda low, high: draw(st.integers(low, high)), policy=policy)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads())
def test_every_answer_is_its_solo_run_within_every_bound(workload: Workload) -> None:
    """Cases A08, A09, A10, C03, C06, C08, C09, C10, D05, E03, E07, down to the smallest pool that holds one job."""
    play(workload)


@pytest.mark.parametrize("policy", POLICIES)
def test_seeded_workloads_reach_what_is_tested(policy: str) -> None:
    """A corpus that preempts, forks, hits the cache and aborts, or the properties above say little."""
    engines = [play(draw_workload(random.Random(seed).randint, policy=policy)) for seed in range(80)]
    assert sum(engine.scheduler.stats().preemptions for engine in engines) > 20
    assert sum(engine.scheduler.stats().cached_tokens for engine in engines) > 50
    assert sum(engine.kv.stats().copies for engine in engines) > 10
    reasons = [outcome.reason for engine in engines for outcome in engine.outcomes.values()]
    assert all(reasons.count(reason) > 10 for reason in ("stop", "length", "abort"))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_many_more_workloads(policy: str) -> None:
    steps = preemptions = sequences = 0
    for seed in range(1000, 2500):
        engine = play(draw_workload(random.Random(seed).randint, most_jobs=16, most_len=64, policy=policy))
        steps += len(engine.steps)
        preemptions += engine.scheduler.stats().preemptions
        sequences += len(engine.outcomes)
    print(f"{policy}: {steps} steps, {sequences} sequences, {preemptions} preemptions")
    assert preemptions > 500


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_many_searches_that_preempt_one_another(policy: str) -> None:
    preempted = 0
    for seed in range(300):
        workload = draw_workload(random.Random(seed).randint, most_jobs=16, most_len=64, policy=policy, searches=True)
        engine = play(workload)
        preempted += sum(request.preemptions for request in engine.requests.values() if request.beams)
    print(f"{policy}: {preempted} preemptions of beams")
    assert preempted > 20


# -- broken schedulers: each must be noticed on the corpus below -----------------------------------------------------


def _put_last(scheduler: Scheduler, request: Request) -> None:
    scheduler._policy.remove(request)
    request.age = scheduler._arrivals
    scheduler._arrivals += 1
    scheduler._policy.push(request)


class Unchecked(Scheduler):
    """Its own check is off: what is broken must show in what callers see."""

    def check(self) -> None:
        return


class BestGivesWay(Unchecked):
    def _preempt_last(self, plan: Plan, by: Request) -> None:
        self._running.reverse()
        super()._preempt_last(plan, by)
        self._running.reverse()


class LastIsServedFirst(Unchecked):
    """So a victim may have a row already (case C06)."""

    def _fill(self, plan: Plan) -> None:
        for request in reversed(self._running[:]):
            if request.slot is not None:
                self._serve(self._running.index(request), plan)
        served = {row.seq for row in plan.rows}
        with patch.object(self, "_lacking", lambda each: 0 if each.id in served else Scheduler._lacking(self, each)):
            super()._fill(plan)


class CommitsWhenItSchedules(Unchecked):
    def schedule(self, now: float = 0.0) -> Step:
        step = super().schedule(now)
        for row in step.rows:
            self.kv.commit(row.seq, row.count)
        return step


class ForgetsTheOutput(Unchecked):
    """A preempted sequence starts again from its prompt: the same text, but shown twice."""

    def _preempt_last(self, plan: Plan, by: Request) -> None:
        victim = self._running[-1]
        super()._preempt_last(plan, by)
        del victim.tokens[victim.prompt_len :]


class LosesTheLastToken(Unchecked):
    def _preempt_last(self, plan: Plan, by: Request) -> None:
        victim = self._running[-1]
        super()._preempt_last(plan, by)
        if victim.output_len:
            victim.tokens.pop()


class ExceedsTheBudgetByOne(Unchecked):
    def _fill(self, plan: Plan) -> None:
        plan.budget += 1
        super()._fill(plan)


class ForgetsToCloseTheAborted(Unchecked):
    def finish(self, seq: int, reason: FinishReason) -> bool:
        request = self._live.get(seq)
        if request is not None and request.slot is not None:
            del self._live[seq]
            self._running.remove(request)
            return True
        return super().finish(seq, reason)


class AppliesRowsOfTheAborted(Unchecked):
    def apply(self, step: Step, sampled: Mapping[int, int]) -> list[Finished]:
        assert self._flight is not None
        self._live.update(self._flight.requests)
        return super().apply(step, sampled)


class ForksWithoutTruncating(Unchecked):
    """The child then lacks nothing, and never gets a row of its own."""

    def _fork_waiting(self, plan: Plan) -> None:
        with patch.object(KVCacheManager, "truncate", lambda *_: None):
            super()._fork_waiting(plan)


class BranchesOneByOne(Unchecked):
    """Beams that are taken over later have got their next token already."""

    def branch(self, beams: Mapping[int, tuple[int, int]]) -> None:
        for seq, beam in beams.items():
            super().branch({seq: beam})


class OpensBeamsByThemselves(Unchecked):
    """They then share nothing that is not in the cache, and do not fit where the door has seen them fit."""

    def _fill(self, plan: Plan) -> None:
        with patch("octavo.sched.scheduler.must_wait", lambda *_: False):
            super()._fill(plan)

    def _fork_waiting(self, plan: Plan) -> None:
        with patch("octavo.sched.scheduler.source_for", lambda *_: None):
            super()._fork_waiting(plan)


class LetsThePreemptedInAtOnce(Unchecked):
    """Without looking whether all can grow: they throw each other out again and again."""

    def _admit(self, request: Request, place: int, plan: Plan) -> bool:
        with patch("octavo.sched.room.room_needed", lambda *_: 0):
            return super()._admit(request, place, plan)


class PutsThePreemptedLast(Unchecked):
    def _preempt_last(self, plan: Plan, by: Request) -> None:
        victim = self._running[-1]
        super()._preempt_last(plan, by)
        _put_last(self, victim)


class LetsTheQueueBePassed(Unchecked):
    """A head that finds no room is overtaken by whoever fits."""

    def _admit(self, request: Request, place: int, plan: Plan) -> bool:
        if super()._admit(request, place, plan):
            return True
        _put_last(self, request)
        return False


class ServesWhoeverRunsFirst(Unchecked):
    """The urgent come in behind all that run."""

    def _fill(self, plan: Plan) -> None:
        with patch.object(self._policy, "overtakes", False):
            super()._fill(plan)


class LeavesNothingForThoseBehind(Unchecked):
    """A long prompt that came in before them takes the tokens of those that decode."""

    def _serve(self, place: int, plan: Plan) -> None:
        with patch.object(Plan, "limit", lambda plan, *_: plan.budget):
            super()._serve(place, plan)


BROKEN = [
    BestGivesWay,
    LastIsServedFirst,
    CommitsWhenItSchedules,
    ForgetsTheOutput,
    LosesTheLastToken,
    ExceedsTheBudgetByOne,
    ForgetsToCloseTheAborted,
    AppliesRowsOfTheAborted,
    ForksWithoutTruncating,
    BranchesOneByOne,
    OpensBeamsByThemselves,
    LetsThePreemptedInAtOnce,
    PutsThePreemptedLast,
    LetsTheQueueBePassed,
    ServesWhoeverRunsFirst,
    LeavesNothingForThoseBehind,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_scheduler_is_noticed(broken: type[Scheduler]) -> None:
    for seed in range(400):
        try:
            play(draw_workload(random.Random(seed).randint, policy=POLICIES[seed % len(POLICIES)]), broken)
        except (AssertionError, KVError, KeyError, ValueError):
            return
    pytest.fail(f"{broken.__name__} went unnoticed")

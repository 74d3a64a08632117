"""What waiting costs: predicted when a request arrives, watched until it begins. Schedules nothing."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from octavo.engine.pace import Pace
from octavo.engine.request import LiveRequest
from octavo.errors import Overloaded
from octavo.sched.cost import Speeds
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.step import Step
from octavo.tiers import TierStack

MAX_RETRY_S = 3600
SWEEP = 64  # deadlines kept before those of requests that have begun are thrown out


class WaitingRoom:
    """Turns away whoever would wait past its deadline, and names those whose deadline has passed."""

    def __init__(self, scheduler: Scheduler, live: Mapping[int, LiveRequest], pace: Pace) -> None:
        """live: the requests that are here, by id; the engine's own, to read. pace: it is told here what steps took."""
        self.pace = pace
        self._scheduler = scheduler
        self._live = live
        self._sweep_at = SWEEP
        self._deadlines: list[tuple[float, int]] = []  # a heap of (time, request)

    def predict(self, request: Request) -> float:
        """Seconds, as measured lately, until `request`, if it came now, would have its first token."""
        stats = self._scheduler.stats()
        uncached = 1.0 - stats.cached_tokens / stats.prompt_tokens if stats.prompt_tokens else 1.0
        return self.pace.wait_s(self._scheduler.outlook(request), uncached)

    def screen(self, request: Request, deadline_s: float | None) -> None:
        """Raise Overloaded, with the predicted wait, when that is longer than `deadline_s`."""
        if deadline_s is None or (wait := self.predict(request)) <= deadline_s:
            return
        raise Overloaded(
            f"the first token is predicted after {wait:.1f} s, later than the deadline of {deadline_s:g} s: "
            f"{self._scheduler.running} sequences run and {self._scheduler.waiting} wait; try again later",
            retry_after_s=max(1, min(MAX_RETRY_S, math.ceil(wait - deadline_s))),
            predicted_wait_s=wait,
            code="deadline",
        )

    def watch(self, request_id: int, deadline: float) -> None:
        """It was taken in and is to begin by `deadline`, a time by the engine's clock."""
        if len(self._deadlines) >= self._sweep_at:
            self._deadlines = [entry for entry in self._deadlines if self._waits(entry[1])]
            heapq.heapify(self._deadlines)
            self._sweep_at = max(SWEEP, 2 * len(self._deadlines))
        heapq.heappush(self._deadlines, (deadline, request_id))

    def overdue(self, now: float) -> list[int]:
        """Requests that wait though their deadline has passed; each is named once."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, request_id = heapq.heappop(self._deadlines)
            if self._waits(request_id):
                late.append(request_id)
        return late

    def until_deadline_s(self, now: float) -> float:
        """Seconds to the next deadline of a request that waits; infinite when there is none."""
        while self._deadlines and not self._waits(self._deadlines[0][1]):
            heapq.heappop(self._deadlines)
        return max(0.0, self._deadlines[0][0] - now) if self._deadlines else math.inf

    def too_late(self, waited_s: float, wait_s: float) -> Overloaded:
        """What ends a request that was named by `overdue`. wait_s: predicted for one that comes now."""
        return Overloaded(
            f"it has waited {waited_s:.1f} s, up to its deadline, and not begun",
            retry_after_s=max(1, min(MAX_RETRY_S, math.ceil(wait_s))),
            predicted_wait_s=wait_s,
            code="deadline",
        )

    def saw(self, step: Step, seconds: float, tiers: TierStack | None) -> None:
        """A step ran and took so long. Those who choose between computing and fetching are told what each takes."""
        singles = sum(row.count == 1 for row in step.rows)
        self.pace.see_step(seconds, sum(row.count for row in step.rows) - singles, singles)
        prefill, scheduler = self.pace.prefill.value, self._scheduler
        if prefill is None or prefill == scheduler.speeds.prefill:
            return
        if tiers is not None:
            tiers.speeds.recompute_s = scheduler.kv.block_size / prefill
        scheduler.speeds = Speeds(prefill, {} if tiers is None else tiers.speeds.fetch_s)

    def _waits(self, request_id: int) -> bool:
        """Whether it is here and nothing of it was computed yet."""
        live = self._live.get(request_id)
        return live is not None and live.started is None

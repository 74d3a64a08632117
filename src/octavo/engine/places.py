"""How many answers may run and wait, of each tenant and in all: who is turned away at once. Schedules nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

from octavo.errors import Overloaded
from octavo.options import Tenant
from octavo.sched.portions import Portions

Claim = tuple[Tenant, int]  # so many answers for it
RECENT = 32  # requests that ended, from which the rate is told
MAX_RETRY_S = 60


class Places:
    """`running` and `waiting` places, a tenant's part of which others cannot take (`Portions`). An engine where nothing
    runs or waits takes a request of any number of answers."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running = running
        self._waiting = waiting
        self._taken = Portions()
        self._ends: deque[float] = deque(maxlen=RECENT)

    @property
    def taken(self) -> int:
        """How many are."""
        return self._taken.total

    def take(self, claims: Sequence[Claim], wait_s: float) -> None:
        """All of them, until `give_back`. wait_s: what a new request is predicted to wait. Raises Overloaded, and none
        is taken."""
        idle, limit, before = not self._taken.total, self._running + self._waiting, self._taken.total
        for tenant, answers in claims:
            self._taken.add(tenant, answers)
        refused = next((tenant for tenant, _ in claims if self._taken.beyond(tenant, limit)), None)
        if idle or refused is None:
            return
        portion, more = self._taken.portion(refused, limit), sum(answers for _, answers in claims)
        self.give_back(claims)
        whose = "" if portion >= limit else f", {self._taken.held(refused)} of them this tenant's"
        bound = "" if portion >= limit else f" and of {portion} for this tenant, beside others that have some"
        raise Overloaded(
            f"{before} answers run or wait{whose}, and {more} more would pass the limit of {limit} ({self._running} "
            f"running, {self._waiting} waiting){bound}; a wait of {wait_s:.1f} s; try again later",
            retry_after_s=self._retry_after(),
            predicted_wait_s=wait_s,
        )

    def give_back(self, claims: Sequence[Claim]) -> None:
        """They are not needed any more."""
        for tenant, answers in claims:
            self._taken.remove(tenant, answers)

    def ended(self, claim: Claim) -> None:
        """A request ended, and gives back what it had."""
        self.give_back([claim])
        self._ends.append(time.monotonic())

    def clear(self) -> None:
        """All are free."""
        self._taken = Portions()

    def _retry_after(self) -> int:
        """Seconds in which, lately, one request ended: then there is a place."""
        ends = self._ends
        between = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else 1.0
        return max(1, min(MAX_RETRY_S, math.ceil(between)))

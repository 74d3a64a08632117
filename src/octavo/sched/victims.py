"""Who gave way and how, as counts and as told to the observer. Chooses nobody and takes no block."""

from __future__ import annotations

from collections import Counter

from octavo.sched.observer import Observer
from octavo.sched.request import Request

LOST = "lost"


class Victims:
    """counts, by manner: CUT, where a sequence lost its tail alone; the way in which the blocks of one that was closed
    come back, RECOMPUTE or the name of a tier, as measured then; LOST, where a tier failed it."""

    def __init__(self, observer: Observer) -> None:
        self.counts: Counter[str] = Counter()
        self._observer = observer

    def gave_way(self, victim: Request, by: Request, how: str) -> None:
        """It still has its blocks, or what is left of them."""
        self._observer.preempted(victim, by, how)
        self._count(victim, how)

    def recalled(self, victim: Request, *, ran: bool) -> None:
        """A tier lost what it, or an elder, was opened with. ran: it had been let in before this step."""
        self._observer.recalled(victim)
        if ran:
            self._count(victim, LOST)

    def _count(self, victim: Request, how: str) -> None:
        victim.preemptions += 1
        self.counts[how] += 1

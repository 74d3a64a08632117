"""Policies whose ranks are known on arrival: first come first served, and priorities that age. Knows no blocks.

Priority. The smaller number goes first, and a level is worth AGEING_S seconds of waiting: of two requests, p levels
apart, the one behind goes first when it came more than p * AGEING_S before the other. That order never changes as they
wait, so a rank is one number, arrival + priority * AGEING_S, and nobody starves: a request is overtaken only by what
arrives in the p * AGEING_S seconds after it, p being how many levels it is behind, at most
2 * MAX_PRIORITY * AGEING_S = 2,000 s.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import takewhile

from octavo.sched.request import Rank, Request, rank_of

AGEING_S = 10.0


def by_arrival(request: Request) -> Rank:
    """First come, first served."""
    return 0.0, request.age


def by_priority(request: Request) -> Rank:
    """The smaller priority first; one level is worth AGEING_S of waiting."""
    return request.arrival + request.priority * AGEING_S, request.age


class RankedQueue:
    """A `Policy` by a fixed rank. What leaves from any place costs a search and a move of pointers."""

    def __init__(self, rank: Callable[[Request], Rank], *, overtakes: bool) -> None:
        self.overtakes = overtakes
        self._rank = rank
        self._waiting: list[Request] = []  # in order of rank

    def push(self, request: Request) -> None:
        request.rank = self._rank(request)
        insort(self._waiting, request, key=rank_of)

    def remove(self, request: Request) -> None:
        del self._waiting[bisect_left(self._waiting, request.rank, key=rank_of)]

    def head(self, now: float) -> Request | None:
        return self._waiting[0] if self._waiting else None

    def started(self, request: Request, computes: int) -> None:
        return

    def stopped(self, request: Request) -> None:
        return

    def undone(self, request: Request, computes: int) -> None:
        return

    def made(self, request: Request) -> None:
        return

    def wait_s(self, now: float) -> float:
        return 0.0

    def ahead(self, request: Request) -> Iterator[Request]:
        place, _ = self._rank(request)
        return takewhile(lambda each: each.rank[0] <= place, self._waiting)

    def most_blocks(self, request: Request) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting)

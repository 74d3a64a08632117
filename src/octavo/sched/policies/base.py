"""What the scheduler asks of a policy. Decides nothing.

The mechanism is one (`octavo.sched.scheduler`): it serves sequences in the order of their ranks, lets those that wait
in at their place, and takes slots and blocks from those at the end. A policy says what the order is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from octavo.sched.request import Request


class Policy(Protocol):
    """Holds the sequences that wait and ranks all. A rank, the smaller the better, is one sequence's alone and must not
    change while it runs; `head` sets it before that. Times are seconds by the engine's clock and never go back.

    overtakes: whether one that waits may rank before one that runs, which then gives way when room is short.
    """

    overtakes: bool

    def push(self, request: Request) -> None:
        """It waits from now on: newly arrived (after those of the same family), or preempted, with the rank it had."""
        ...

    def remove(self, request: Request) -> None:
        """It waits no more: it starts, or it has ended."""
        ...

    def head(self, now: float) -> Request | None:
        """Who is to come in next, its rank set. Asked again it stays the same while nothing else happens. None: nobody
        waits, or all that wait must wait longer."""
        ...

    def started(self, request: Request, computes: int) -> None:
        """It was removed and runs now. computes: tokens of its prompt that are now computed for the first time."""
        ...

    def stopped(self, request: Request) -> None:
        """It runs no more: preempted, or at its end."""
        ...

    def undone(self, request: Request, computes: int) -> None:
        """What `started` was told will not be computed after all."""
        ...

    def made(self, request: Request) -> None:
        """It has one more new token."""
        ...

    def wait_s(self, now: float) -> float:
        """Seconds until `head` may name one of those that wait; 0.0 when it does, or nobody waits."""
        ...

    def ahead(self, request: Request) -> Iterator[Request]:
        """Those that wait and would come in before `request`, which does not wait yet, were nobody else to come."""
        ...

    def most_blocks(self, request: Request) -> int | None:
        """KV blocks that it may ever hold; None for as many as there are."""
        ...

    def __len__(self) -> int:
        """How many wait."""
        ...

    def __iter__(self) -> Iterator[Request]:
        """All that wait; those with a rank in its order."""
        ...

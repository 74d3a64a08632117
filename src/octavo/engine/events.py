"""What happened lately, in a ring of fixed size. Holds numbers alone: no prompt, no text, no key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal[
    "arrived",
    "refused",
    "admitted",
    "resumed",
    "preempted",
    "recalled",
    "evicted",
    "spilled",
    "fetched",
    "lost",
    "failed",
    "finished",
    "aborted",
    "resized",
]
RING = 4096  # events; some 100 bytes each


@dataclass(frozen=True, slots=True)
class Event:
    """time: by the engine's clock, in seconds. request: whom it happened to, None when nobody in particular.

    count, by kind: arrived, refused: prompt tokens (refused texts: characters). admitted, resumed: tokens found in the
    cache. preempted, recalled: tokens that it had. evicted, spilled, fetched, lost: blocks of one step. finished,
    aborted, failed: tokens generated. resized: blocks from now on. other: the request that a preempted one gave way to;
    how: in which manner, as in `EngineStats.preempted`.
    """

    time: float
    kind: EventKind
    request: int | None
    count: int
    other: int | None = None
    how: str | None = None


class EventLog:
    """The last `size` events. Noting one takes constant time and, once the ring is full, no memory."""

    def __init__(self, clock: Callable[[], float], size: int = RING) -> None:
        self._clock = clock
        self._ring: deque[tuple[float, EventKind, int | None, int, int | None, str | None]] = deque(maxlen=size)

    def note(
        self, kind: EventKind, request: int | None, count: int, other: int | None = None, how: str | None = None
    ) -> None:
        """It happened now."""
        self._ring.append((self._clock(), kind, request, count, other, how))

    def events(self) -> tuple[Event, ...]:
        """The oldest first."""
        return tuple(Event(*entry) for entry in self._ring)

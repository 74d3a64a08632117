"""What a reader holds of requests that run elsewhere: a bounded buffer of their deltas. Knows no engine and no thread.

Everything here belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from octavo.engine.outputs import Delta
from octavo.errors import OctavoError, ReaderTooSlow

Batch = list[tuple[int, Delta]]  # with the place of the request among those submitted together
Take = Callable[[Batch], bool]


class Stream:
    """The deltas of requests that were submitted together, each with the place of its request among them.

    Read it with `async for` or `batch`; leave it with `close` or as a context manager: what has not ended then ends at
    once. A reader that lets more than `limit` deltas pile up is cut off: the requests end, and reading raises
    ReaderTooSlow. on_cut is called then, for a reader that is stuck elsewhere. request_ids: the engine's, by place.
    """

    def __init__(self, requests: int, limit: int, end: Callable[[Stream], None]) -> None:
        self.on_cut: Callable[[], None] | None = None
        self.request_ids: tuple[int, ...] = ()
        self._open = requests
        self._limit = limit
        self._end = end
        self._buffer: Batch = []
        self._error: OctavoError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: Take | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come in; there may still be something to read."""
        return self._open == 0 or self._error is not None

    async def batch(self, take: Take | None = None) -> Batch:
        """All that has come since the last call, at least one delta, in order; [] at the end. Raises what ended the
        requests early: EngineUnavailable, ReaderTooSlow, or what `abort` was given.

        take: is offered what comes while this waits, before anything else runs in the event loop, and returns whether
        it took it: then this waits on. What it raises is raised here."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self._open == 0:
                return []
            self._waiter, self._take = asyncio.get_running_loop().create_future(), take
            try:
                await self._waiter
            finally:
                self._waiter = self._take = None
        batch, self._buffer = self._buffer, []
        return batch

    async def __aiter__(self) -> AsyncIterator[tuple[int, Delta]]:
        while batch := await self.batch():
            for placed in batch:
                yield placed

    def abort(self, error: OctavoError) -> None:
        """End the requests; the reader, now or later, gets `error` instead of what it has not read."""
        if not self.ended:
            self._error = error
            self._buffer.clear()
            self._end(self)
            self._wake()

    def close(self) -> None:
        """The reader leaves: requests that still run are ended."""
        if not self.ended:
            self._open = 0
            self._buffer.clear()
            self._end(self)
            self._wake()

    def push(self, place: int, delta: Delta) -> bool:
        """Put one more delta in. For whoever runs the requests, who calls `deliver` where this returns True, once all
        of a step are in."""
        if self._open == 0 or self._error is not None:
            return False
        self._buffer.append((place, delta))
        if delta.output is not None:
            self._open -= 1
        # A reader that waits here is quick: when much comes at once, it is the event loop that was busy.
        if len(self._buffer) > self._limit and self._waiter is None:
            self._cut()
        return len(self._buffer) == 1

    def deliver(self) -> None:
        """Let the reader have what was pushed."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        try:
            taken = self._take is not None and self._take(self._buffer)
        except Exception as error:  # the reader's own: other streams of the step must have theirs
            waiter.set_exception(error)
            return
        if taken:
            self._buffer = []
        else:
            waiter.set_result(None)

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut(self) -> None:
        self.abort(ReaderTooSlow(f"the stream was cut off: {self._limit} pieces of it had not been read"))
        if self.on_cut is not None:
            self.on_cut()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

"""Who asks the engine for more than an answer takes turns, so that looking never slows serving. Knows no endpoint."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Spacing:
    """An asynchronous context that one task at a time is in; each enters `every_s` seconds after the last one left, or
    after what that one set `pause_s` to."""

    def __init__(self, every_s: float) -> None:
        self.pause_s = every_s
        self._every_s = every_s
        self._lock = asyncio.Lock()
        self._due = 0.0

    async def __aenter__(self) -> Spacing:
        await self._lock.acquire()
        try:
            await asyncio.sleep(max(0.0, self._due - asyncio.get_running_loop().time()))
        except BaseException:
            self._lock.release()
            raise
        self.pause_s = self._every_s
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._due = asyncio.get_running_loop().time() + self.pause_s
        self._lock.release()

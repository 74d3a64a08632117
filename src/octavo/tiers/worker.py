"""One thread that runs small jobs in order, and a fuse for what keeps failing. Knows nothing of blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], object]


class Worker:
    """Runs jobs first-in first-out beside the caller. Jobs must not raise. The thread never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self, timeout: float) -> bool:
        """End after the jobs submitted so far; False when that took longer than `timeout` seconds."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Fuse:
    """Blows after `limit` failures in a row, or at once when told, and mends itself after `rest_s` seconds."""

    def __init__(self, limit: int, rest_s: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._rest_s = rest_s
        self._clock = clock
        self._failures = 0
        self._blown_until = float("-inf")

    @property
    def whole(self) -> bool:
        """Whether it is worth trying."""
        return self._clock() >= self._blown_until

    def succeed(self) -> None:
        self._failures = 0

    def fail(self) -> None:
        self._failures += 1
        if self._failures >= self._limit:
            self.blow()

    def blow(self) -> None:
        self._failures = 0
        self._blown_until = self._clock() + self._rest_s

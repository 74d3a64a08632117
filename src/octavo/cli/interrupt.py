"""Ctrl-C as a flag, while an answer runs. Knows no model."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class InterruptFlag:
    """While entered, the first Ctrl-C sets `is_set` instead of raising inside a half-done step; the second raises."""

    def __init__(self) -> None:
        self.is_set = False

    def __enter__(self) -> InterruptFlag:
        # Only the main thread may handle signals; elsewhere Ctrl-C is not ours to catch.
        self._armed = threading.current_thread() is threading.main_thread()
        if self._armed:
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._armed:
            signal.signal(signal.SIGINT, self._before)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True

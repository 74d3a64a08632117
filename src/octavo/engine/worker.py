"""The thread that owns an Engine: builds it, steps it while it has work, runs commands in between. Knows no asyncio."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from octavo.engine.build import Built
from octavo.engine.engine import Engine
from octavo.engine.outputs import Delta

Command = Callable[[Engine], None]
PREDICT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """The thread is at its end, in order (None) or because building, a step or a command raised `error`."""

    error: BaseException | None


# What the thread tells: the engine is built and takes commands, a step made deltas, the end.
News = Built | list[Delta] | Ended


class EngineThread:
    """Runs one engine. `call` and `stop` may be used from any thread; `step_s` and `predicted_wait_s` read
    from any.

    tell: called in this thread with its news; must bring them to where they are wanted, and not wait.
    """

    def __init__(self, build: Callable[[], Built], tell: Callable[[News], None]) -> None:
        self._build = build
        self._tell = tell
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._step_began: float | None = None
        self._predicted_wait_s = 0.0
        # A daemon, so that a step which hangs cannot keep a process from ending.
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)

    def start(self) -> None:
        """Begin to build."""
        self._thread.start()

    def call(self, command: Command) -> None:
        """Run `command` in the thread before its next step. What it raises ends the thread."""
        self._inbox.put(command)

    def stop(self) -> None:
        """End after the current step."""
        self._inbox.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def step_s(self) -> float:
        """Seconds that the current step has taken so far; 0.0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def predicted_wait_s(self) -> float:
        """What one more request would wait, as of lately."""
        return self._predicted_wait_s

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            built = self._build()
            self._tell(built)
            try:
                self._serve(built.engine)
            finally:
                self._step_began = None
                built.engine.close()
        except BaseException as error:  # whoever waits for the engine must hear of it, whatever it was
            failure = error
        self._tell(Ended(failure))

    def _serve(self, engine: Engine) -> None:
        predict_at = 0.0
        while self._obey(engine):
            began = self._step_began = time.monotonic()
            deltas = engine.step()
            self._step_began = None
            if began >= predict_at:
                self._predicted_wait_s, predict_at = engine.predicted_wait_s(), began + PREDICT_EVERY_S
            if deltas:
                self._tell(deltas)

    def _obey(self, engine: Engine) -> bool:
        """Run the commands that are there, waiting for one while there is nothing else to do. False: stop."""
        while True:
            held = engine.wait_s() if engine.has_work else None  # None: until a command comes
            try:
                command = self._inbox.get(block=held is None or held > 0, timeout=held or None)
            except queue.Empty:
                return True
            if command is None:
                return False
            command(engine)

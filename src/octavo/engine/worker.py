"""The thread that owns an Engine: builds it, steps it while it has work, runs commands in between, and builds it anew
after a fault. Knows no asyncio."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.engine.build import Built
from octavo.engine.engine import Engine
from octavo.engine.incidents import Incidents, headline, told
from octavo.engine.outputs import Delta
from octavo.errors import EngineUnavailable, RequestFailed

log = logging.getLogger(__name__)

Command = Callable[[Engine], None]
PREDICT_EVERY_S = 0.1
REBUILDS = 3  # within this time, and no tokens in between: another one is no use
REBUILDS_S = 60.0


@dataclass(frozen=True, slots=True)
class Lost:
    """A fault left the engine's state in doubt: all that was live is lost, and a fresh engine is on its way. error: for
    whoever waits for an answer."""

    error: RequestFailed


@dataclass(frozen=True, slots=True)
class Ended:
    """The thread is at its end, in order (None) or because building raised `error`, or it took too many engines."""

    error: BaseException | None


# What the thread tells: an engine is built and takes commands, a step made deltas, an engine is lost, the end.
News = Built | list[Delta] | Lost | Ended


class EngineThread:
    """Runs one engine. `call` and `stop` may be used from any thread; `step_s` and `predicted_wait_s` read
    from any.

    tell: called in this thread with its news; must bring them to where they are wanted, and not wait. incidents: where
    faults are kept, None for the log alone.
    """

    def __init__(
        self, build: Callable[[], Built], tell: Callable[[News], None], incidents: Incidents | None = None
    ) -> None:
        self._build = build
        self._tell = tell
        self._incidents = incidents
        self._rebuilds: deque[float] = deque()  # when, since tokens were last made
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._step_began: float | None = None
        self._predicted_wait_s = 0.0
        # A daemon, so that a step which hangs cannot keep a process from ending.
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)

    def start(self) -> None:
        """Begin to build."""
        self._thread.start()

    def call(self, command: Command) -> None:
        """Run `command` in the thread before its next step. What it raises costs the engine its state: a command that
        may be refused says so itself."""
        self._inbox.put(command)

    def stop(self) -> None:
        """End after the current step."""
        self._inbox.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()

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
            while not self._serve(built.engine):
                built = built.renewed()
                self._tell(built)
            built.engine.close()
        except BaseException as error:  # whoever waits for the engine must hear of it, whatever it was
            failure = error
        self._tell(Ended(failure))

    def _serve(self, engine: Engine) -> bool:
        """Step until told to stop. False: a fault, after which nobody has any use for this engine."""
        try:
            self._step(engine)
            return True
        except Exception as error:
            self._give_up(engine, error)
            return False
        except BaseException:
            engine.abandon()
            raise
        finally:
            self._step_began = None

    def _step(self, engine: Engine) -> None:
        predict_at = 0.0
        while self._obey(engine):
            began = self._step_began = time.monotonic()
            deltas = engine.step()
            self._step_began = None
            if began >= predict_at:
                self._predicted_wait_s, predict_at = engine.predicted_wait_s(), began + PREDICT_EVERY_S
            if deltas:
                self._tell(deltas)
                if (fault := engine.take_fault()) is not None:
                    self._keep(engine, fault)
                if self._rebuilds and any(delta.token_ids for delta in deltas):
                    self._rebuilds.clear()

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

    def _give_up(self, engine: Engine, error: Exception) -> None:
        """Keep what is known of the fault, tell who is concerned, let go of what the next engine needs.
        EngineUnavailable: there have been too many."""
        self._step_began = None
        lines = [line for each in told(error) for line in (f"{each['type']}: {each['message']}", *each["traceback"])]
        log.error("the engine failed and is built anew\n  %s", "\n  ".join(lines))
        kept = self._keep(engine, error)
        where = "" if kept is None else f" (incident {kept.stem})"
        self._tell(Lost(RequestFailed(f"the engine failed while it ran this request and starts anew{where}")))
        try:
            engine.abandon()
        except Exception as another:
            log.error("letting go of the failed engine failed too: %s", headline(another))
        now, times = time.monotonic(), self._rebuilds
        while times and now - times[0] > REBUILDS_S:
            times.popleft()
        if len(times) >= REBUILDS:
            raise EngineUnavailable(
                f"the engine failed again after {REBUILDS} rebuilds within {REBUILDS_S:.0f} s and no token in between: "
                f"{headline(error)}{where}"
            ) from None
        times.append(now)

    def _keep(self, engine: Engine, error: Exception) -> Path | None:
        kept = None if self._incidents is None else self._incidents.keep(engine, error)
        if kept is not None:
            log.error("the incident is kept in %s", kept)
        return kept

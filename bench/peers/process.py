"""A runner as a child process: start, ask, pause, end. Knows no engine.

A paused runner is stopped by a signal, so that the idle threads of the one cannot take time from the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """In the child: should the comparison be killed, the system kills its runners, the paused ones too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """To a process that leads a group, and to what it started; nothing where they have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class RunnerFailed(Exception):
    """A runner died, answered with an error, or took longer than its limit. The text says which, in one line."""


class RunnerProcess:
    """One engine with its model loaded. `start_seconds`: from the start of the process to its first token."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> None:
        self._log = log.open("ab")
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,  # signals reach its children too
            preexec_fn=die_with_parent,
            cwd=log.parent,
        )
        self._rest = b""
        self.version = ""
        self.start_seconds = 0.0

    def wait_until_ready(self, prompt: list[int], limit: float) -> None:
        """Wait for the model and make one token. Raises RunnerFailed."""
        about = self._answer(limit)
        self.run([prompt], 1, limit)
        self.version = about["version"]
        self.start_seconds = about.get("start_s", time.perf_counter() - self._begun)

    def run(self, prompts: list[list[int]], generated: int, limit: float) -> float:
        """Seconds that the engine took for the whole batch. Raises RunnerFailed; the process may then be unusable."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompts": prompts, "generated": generated}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RunnerFailed(self._death()) from error
        answer = self._answer(limit)
        if answer["generated"] != len(prompts) * generated:
            raise RunnerFailed(f"made {answer['generated']} tokens, not {len(prompts) * generated}")
        return float(answer["seconds"])

    def pause(self) -> None:
        """Stop every thread of it until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and what it started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        signal_group(self._process, number)

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + limit
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(until - time.monotonic(), 0.0))[0]:
                raise RunnerFailed(f"took more than {limit:.0f} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise RunnerFailed(self._death())
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RunnerFailed(answer["error"])
        return answer

    def _death(self) -> str:
        return f"its process ended with {self._process.wait()} (see {self._log.name})"

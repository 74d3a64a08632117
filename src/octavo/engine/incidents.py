"""Faults of an engine, kept as files for whoever looks for their cause. Mends nothing, and raises nothing itself.

A file holds numbers, names and lines of code. Texts that came from outside (prompts, answers, messages of errors that
may quote them) are in it only where somebody asked for them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from octavo import __version__
from octavo.engine.engine import Engine
from octavo.engine.machine import describe_machine
from octavo.engine.request import LiveRequest
from octavo.errors import InvalidRequest, OctavoError, RequestFailed

log = logging.getLogger(__name__)

KEPT = 16  # files
EVENTS = 512
LIVE = 256  # requests told of
ALIKE_S = 60.0  # a fault like the one before is kept once in this time
# Errors whose messages quote nothing that came from outside: Python's own wording, or numbers.
_PLAIN = (OctavoError, ArithmeticError, AssertionError, AttributeError, IndexError, MemoryError, TypeError)


class Incidents:
    """A directory of at most `kept` incidents, the oldest out first. prompts: whether they hold texts.

    It is made when the first one is kept, for its user alone. clock: seconds since the epoch.
    """

    def __init__(
        self, directory: Path, *, prompts: bool = False, kept: int = KEPT, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._prompts = prompts
        self._kept = kept
        self._clock = clock
        self._count = 0
        self._last: tuple[float, object, Path] | None = None

    def keep(self, engine: Engine, error: BaseException) -> Path | None:
        """Write down what happened to `engine`, whatever state it is in; where. None when the disk does not take it."""
        now, place = self._clock(), _place(error)
        if self._last is not None and self._last[1] == place and 0 <= now - self._last[0] < ALIKE_S:
            return self._last[2]
        self._count += 1
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        path = self._directory / f"incident-{stamp}.{int(now % 1 * 1000):03d}Z-{os.getpid()}-{self._count}.json"
        try:
            self._write(path, {"time": _iso(now), **describe(engine, error, prompts=self._prompts)})
        except OSError as refused:
            log.error("the incident cannot be kept in %s: %s", self._directory, refused.strerror or refused)
            return None
        self._last = now, place, path
        return path

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        """Whole or not at all."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1, default=str)
                file.flush()
                os.fsync(descriptor)
            new.rename(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        for old in sorted(self._directory.glob("incident-*.json"))[: -self._kept]:
            with contextlib.suppress(OSError):  # another process may have been quicker
                old.unlink()


def describe(engine: Engine, error: BaseException, *, prompts: bool = False) -> dict[str, Any]:
    """An incident as a JSON object. A part that the engine cannot tell any more says so in its place."""
    parts: dict[str, Callable[[], Any]] = {
        "config": lambda: asdict(engine.config),
        "step": lambda: _step(engine),
        "counts": lambda: asdict(engine.stats()),
        "live": lambda: [_request(live, prompts) for live in list(engine.live.values())[:LIVE]],
        "events": lambda: [asdict(event) for event in engine.events()[-EVENTS:]],
    }
    return {
        "error": told(error, messages=prompts),
        "versions": {"octavo": __version__, "python": sys.version.split()[0], "numpy": np.__version__},
        "machine": str(describe_machine()),
        **{name: _or_fault(tell) for name, tell in parts.items()},
    }


def told(error: BaseException, *, messages: bool = False) -> list[dict[str, Any]]:
    """An error and what it came from, each with its place in the code; what was raised last comes first.

    messages: also those that may quote what somebody sent.
    """
    return [
        {
            "type": type(each).__name__,
            "message": str(each)[:2000] if messages or _is_plain(each) else None,
            "traceback": [
                f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} {frame.name}: {frame.line}"
                for frame in traceback.extract_tb(each.__traceback__)[-50:]
            ],
        }
        for each in _chain(error)
    ]


def headline(error: BaseException) -> str:
    """The error in one line that quotes nothing from outside."""
    plain = " ".join(str(error).split())[:200] if _is_plain(error) else ""
    return f"{type(error).__name__}: {plain}" if plain else type(error).__name__


def _is_plain(error: BaseException) -> bool:
    return isinstance(error, _PLAIN) and not isinstance(error, InvalidRequest | RequestFailed)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen and len(seen) < 8:
        seen.add(id(following))
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)


def _place(error: BaseException) -> object:
    frames = traceback.extract_tb(error.__traceback__)
    return type(error), (frames[-1].filename, frames[-1].lineno) if frames else None


def _or_fault(tell: Callable[[], Any]) -> Any:
    try:
        return tell()
    except Exception as error:
        return f"not to be had: {headline(error)}"


def _step(engine: Engine) -> dict[str, Any] | None:
    step = engine.planned
    if step is None:
        return None
    rows = [{"seq": row.seq, "start": row.start, "count": row.count, "sample": row.sample} for row in step.rows]
    ops = [type(op).__name__ for op in step.ops]
    return {
        "id": step.id,
        "rows": rows,
        "ops": {name: ops.count(name) for name in sorted(set(ops))},
        "preempted": list(step.preempted),
        "finished": list(step.finished),
    }


def _request(live: LiveRequest, prompts: bool) -> dict[str, Any]:
    answers = [{"seq": each.seq, "tokens": len(each.tokens), "ended": each.finish_reason} for each in live.answers]
    entry = {"id": live.id, "prompt_tokens": len(live.prompt_tokens), "answers": answers}
    if prompts:
        answer = live.answers[0]
        entry |= {"prompt": live.prompt, "prompt_ids": live.prompt_tokens, "params": asdict(answer.params)}
        entry["texts"] = ["".join(each.text) for each in live.answers]
    return entry


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"

"""`octavo bench start`: what a user waits for a first token, in processes started for it. Loads no model itself."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from octavo.cli.bench.subject import Plan, model_files, settings_of
from octavo.cli.bench.table import Table
from octavo.cli.flags import as_environment
from octavo.engine.measure import Workload
from octavo.errors import InvalidRequest, RequestFailed

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

REPEATS = 5
PROMPT = "The capital of France is"
COMMAND = "import sys; from octavo.cli.main import main; sys.exit(main())"
TITLES = ("what".ljust(44), "median s", " least s", "  most s")


def measure(plan: Plan, make_llm: MakeLLM, out: IO[str] | None) -> dict[str, Any]:
    """Start processes, one after the other; each is warm but where it says otherwise."""
    for name, value in (("prompt", plan.prompt), ("generated", plan.generated), ("batch", plan.batch)):
        if value is not None:
            raise InvalidRequest(f"start has one workload, one token of a short prompt: leave out --{name}", param=name)
    repeats = plan.repeats or REPEATS
    config = plan.engine([Workload(1, 1, 1)])
    answer = [COMMAND, "generate", plan.model, PROMPT, "--max-tokens", "1", "--quiet"]
    environment = dict(os.environ) | as_environment(plan.settings)
    files = model_files(plan.model)
    rows: dict[str, tuple[Sequence[str], Callable[[], None]]] = {
        "python": (["pass"], _nothing),
        "import octavo": (["import octavo"], _nothing),
        "first token": (answer, _nothing),
    }
    if hasattr(os, "posix_fadvise"):
        rows["first token, model file not in memory"] = (answer, lambda: _forget(files))
    table = Table(out, TITLES)
    results = {}
    for name, (arguments, before) in rows.items():
        _seconds(arguments, environment)  # the files that it reads are in memory now
        seconds = []
        for _ in range(repeats):
            before()
            seconds.append(_seconds(arguments, environment))
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        table.row((name.ljust(len(TITLES[0])), *(f"{each:.3f}" for each in figures)))
        results[name] = {"median_s": figures[0], "min_s": figures[1], "max_s": figures[2], "seconds": seconds}
    return {"settings": settings_of(config), "repeats": repeats, "results": results}


def _seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """From just before the process starts to its first byte of output, or to its end when it prints nothing."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = time.perf_counter() - begun
        _, complaint = process.communicate()
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise RequestFailed(f"a process that was started to be timed ended with {process.returncode}: {last}")
    return seconds


def _forget(files: Sequence[Path]) -> None:
    """Ask the system to drop the files' pages, so that the next reader meets the disk."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _nothing() -> None:
    pass

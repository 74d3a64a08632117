"""Samples -> docs/peers.md and docs/peers.svg. Measures nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalog import OURS, Form
from bench.peers.results import Sample

from octavo.engine.machine import Machine
from octavo.engine.measure import Workload

ABOUT = """\
# octavo beside other engines

Written by `make bench-peers`, which sets the engines up, runs all of them on one machine in turn, and writes this page.
Figures of different machines or runs must not be compared with each other.
"""
METHOD = """\
## How it is measured

- One model, SmolLM2-135M-Instruct. `octavo`, `llama.cpp-Q4_1` and `openvino` read the same GGUF file (Q4_1 layers,
  Q8_0 embedding); `Q4_0` and `Q8_0` are requantised from it with llama.cpp's own tool; the `bf16` forms read
  safetensors made from it. Where an engine has several forms, its best one is what octavo is compared with.
- A workload is prompt x generated x batch. Greedy, the end of sequence ignored, prompts of random token ids, each run
  with prompts of its own. Rate: generated tokens / the whole wall time, prompts included; prompt tokens where one token
  is generated. Start: from the start of a process to the first token of a short prompt.
- In each round every engine is started anew; for each workload they take turns, all but the one at work stopped. A
  short run warms up. A workload under 3 s runs 3 times a round. Tables show medians over everything, and in brackets
  the least and the most.
- llama.cpp is measured by its own `llama-batched-bench`, which samples nothing and draws its own random prompts; the
  last of its decoding steps is not counted, since the prompt's step gives the first token. Its start is that program's
  whole run for one token, without any interpreter.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A form and its samples by workload (None: starts). problem: why there are none."""

    form: Form
    samples: dict[Workload | None, list[Sample]]
    problem: str | None = None

    def rates(self, workload: Workload) -> list[float]:
        """Tokens a second, ascending."""
        return sorted(workload.counted_tokens / each for each in self.seconds(workload))

    def seconds(self, workload: Workload | None) -> list[float]:
        """Every repeat of every round."""
        return [each for sample in self.samples.get(workload, []) for each in sample.seconds]

    def error(self, workload: Workload | None) -> str | None:
        """Why a workload has no figure."""
        errors = [sample.error for sample in self.samples.get(workload, []) if sample.error]
        return self.problem or (errors[-1] if errors and not self.seconds(workload) else None)

    @property
    def version(self) -> str:
        """As the engine tells it."""
        return next((each.version for many in self.samples.values() for each in many if each.version), "")


def median_rate(column: Column, workload: Workload) -> float | None:
    """The median tokens a second; None when nothing was measured."""
    rates = column.rates(workload)
    return statistics.median(rates) if rates else None


def best_peer(columns: Sequence[Column], workload: Workload, *, only: str = "") -> tuple[str, float] | None:
    """(name, rate) of the fastest form that is not octavo's. only: of those whose name ends so."""
    found = [
        (rate, column.form.name)
        for column in columns
        if column.form.name not in OURS and column.form.name.endswith(only)
        if (rate := median_rate(column, workload)) is not None
    ]
    return max(found)[::-1] if found else None


def markdown(columns: Sequence[Column], workloads: Sequence[Workload], machine: Machine, threads: int) -> str:
    """The whole page."""
    times = [sample.at for column in columns for many in column.samples.values() for sample in many]
    when = " to ".join(dict.fromkeys(time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) for at in _ends(times)))
    parts = [
        ABOUT,
        f"{machine}, {machine.system}. Threads: {threads}. Measured {when} UTC.\n",
        "![Rate of each engine over the best other engine's](peers.svg)\n",
        "## octavo over the best other engine\n",
        _ratios(columns, workloads),
        "## Every form\n",
        "Tokens a second (prompt tokens where one token is generated), and seconds to start.\n",
        _table(columns, workloads),
        _versions(columns),
    ]
    problems = _problems(columns, workloads)
    return "\n".join([*parts, *([problems] if problems else []), METHOD])


def _ends(times: Sequence[float]) -> tuple[float, ...]:
    return (min(times), max(times)) if times else (time.time(),)


def _ratios(columns: Sequence[Column], workloads: Sequence[Workload]) -> str:
    lines = ["| prompt x generated x batch | octavo | best other | its rate | ratio |", "|---|---|---|---|---|"]
    for ours, only in (("octavo", ""), ("octavo-bf16", "bf16")):
        column = next((each for each in columns if each.form.name == ours), None)
        if column is None:
            continue
        for workload in workloads:
            rate, best = median_rate(column, workload), best_peer(columns, workload, only=only)
            label = f"{workload}{', bf16 weights' if only else ''}"
            if rate is not None and best is not None:
                unit = " prompt tok/s" if workload.generated == 1 else ""
                lines.append(f"| {label} | {rate:.0f}{unit} | {best[0]} | {best[1]:.0f} | **{rate / best[1]:.2f}** |")
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[Column], workloads: Sequence[Workload]) -> str:
    head = ["form", *(str(workload) for workload in workloads), "start, s"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for column in columns:
        cells = [_cell(column.rates(workload), "{:.0f}", column.error(workload)) for workload in workloads]
        start = _cell(sorted(column.seconds(None)), "{:.2f}", column.error(None))
        lines.append(f"| {' | '.join([column.form.name, *cells, start])} |")
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float], form: str, error: str | None) -> str:
    if not values:
        return "failed" if error else ""
    return f"{form.format(statistics.median(values))} ({form.format(values[0])}-{form.format(values[-1])})"


def _versions(columns: Sequence[Column]) -> str:
    versions = dict.fromkeys(f"- {each.form.engine}: {each.version}" for each in columns if each.version)
    return "\n".join(["Versions:\n", *versions]) + "\n"


def _problems(columns: Sequence[Column], workloads: Sequence[Workload]) -> str:
    """What is missing and why; nothing is left out in silence."""
    found: dict[str, list[str]] = {}
    for column in columns:
        for workload in (None, *workloads):
            if error := column.error(workload):
                where = "start" if workload is None else str(workload)
                found.setdefault(f"{column.form.name}: {error}", []).append(where)
    lines = [f"- {reason} ({', '.join(places)})" for reason, places in found.items()]
    return "\n".join(["What failed:\n", *lines]) + "\n" if lines else ""


def write_report(folder: Path, page: str) -> Path:
    """Write peers.md."""
    path = folder / "peers.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path

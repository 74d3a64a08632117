"""Samples on disk, a JSON line each, so that an interrupted comparison goes on where it stopped. Draws no conclusions.

A sample counts only for the build that made it (octavo's own sources and library, or a peer's pins) and for the boot of
the machine that it ran on: after a change of either it is measured again.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from octavo.engine.measure import Workload


@dataclass(frozen=True, slots=True)
class Sample:
    """One form on one workload in one round. seconds: of each repeat, empty when `error` says why there is none.
    workload None: the start of the process, to its first token. at: seconds since the epoch."""

    form: str
    workload: Workload | None
    round: int
    build: str
    boot: str
    seconds: tuple[float, ...] = ()
    error: str | None = None
    version: str = ""
    at: float = field(default_factory=time.time)


class Results:
    """The samples of one file; `add` writes each at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._samples: list[Sample] = []
        if path.exists():
            # A killed run may leave half a line at the end, which the next one must not join.
            whole, newline, _ = path.read_text().rpartition("\n")
            path.write_text(whole + newline)
            self._samples = [_read(line) for line in whole.splitlines()]

    def add(self, sample: Sample) -> None:
        """Remember a sample, on disk before this returns."""
        self._samples.append(sample)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def forget_failures(self) -> None:
        """Drop the samples that are errors, so that they are tried again."""
        self._samples = [sample for sample in self._samples if sample.error is None]
        if self._path.exists():
            self._path.write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in self._samples))

    def find(self, form: str, workload: Workload | None, build: str, boot: str) -> list[Sample]:
        """The samples of this form, build and boot, in the order in which they were made."""
        key = (form, workload, build, boot)
        return [each for each in self._samples if (each.form, each.workload, each.build, each.boot) == key]


def _read(line: str) -> Sample:
    values = json.loads(line)
    workload = values.pop("workload")
    values["seconds"] = tuple(values["seconds"])
    return Sample(workload=None if workload is None else Workload(**workload), **values)

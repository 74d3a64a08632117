"""The comparison: every form on every workload, in turn, several rounds. Writes samples; formats no report.

In each round every form is started anew, one after the other, and its start timed; then for each workload the forms
take turns, all but the one at work paused. The order turns from round to round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalog import FIRST_TOKEN, Form
from bench.peers.process import RunnerFailed, RunnerProcess
from bench.peers.results import Results, Sample

from octavo.engine.measure import Workload

VOCAB_SIZE = 49_000  # of the model, less its last ids
SHORT_SECONDS = 3.0  # a workload that takes less is run REPEATS times a round
REPEATS = 3
NOT_FOR_RUNNERS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A form that is set up: how to start it, and what build it is."""

    form: Form
    command: tuple[str | Path, ...]
    build: str


@dataclass(frozen=True, slots=True)
class Limits:
    """rounds: samples of each. threads: of each engine. start_s, job_s: after which a start or a batch is given up."""

    rounds: int
    threads: int
    start_s: float
    job_s: float


class Comparison:
    """What is compared and where the samples go."""

    def __init__(self, subjects: Sequence[Subject], results: Results, limits: Limits, logs: Path, say: Say) -> None:
        self._subjects = subjects
        self._results = results
        self._limits = limits
        self._logs = logs
        self._say = say
        self._boot = boot_id()
        self._running: dict[str, RunnerProcess] = {}

    def run(self, workloads: Sequence[Workload]) -> None:
        """Measure what the results lack. Processes are ended whatever happens."""
        for number in range(self._limits.rounds):
            turn = number % max(len(self._subjects), 1)
            order = [*self._subjects[turn:], *self._subjects[:turn]]
            try:
                self._run_round(number, order, workloads)
            finally:
                for name in tuple(self._running):
                    self._end(name)

    def _run_round(self, number: int, order: Sequence[Subject], workloads: Sequence[Workload]) -> None:
        for subject in order:
            if any(self._lacks(subject, workload, number) for workload in (None, *workloads)):
                self._start(subject, number)
        for workload in workloads:
            for subject in order:
                if self._lacks(subject, workload, number):
                    self._measure(subject, workload, number)

    def _lacks(self, subject: Subject, workload: Workload | None, number: int) -> bool:
        """Is a sample of this round missing? A form that failed at a workload is not tried at it again."""
        found = self._results.find(subject.form.name, workload, subject.build, self._boot)
        return all(each.error is None and each.round != number for each in found)

    def _start(self, subject: Subject, number: int) -> bool:
        """Start a runner and leave it paused; whether that worked. Only a start that was lacking becomes a sample."""
        name, limits = subject.form.name, self._limits
        environment = {key: value for key, value in os.environ.items() if not _steers(key)}
        log = self._logs / f"{name}.log"
        runner = RunnerProcess(subject.command, environment | subject.form.environment(limits.threads), log)
        self._running[name] = runner
        error = None
        try:
            runner.wait_until_ready(FIRST_TOKEN.prompts(VOCAB_SIZE, number, 0)[0], limits.start_s)
        except RunnerFailed as failure:
            error = f"does not start: {failure}"
        seconds = () if error else (runner.start_seconds,)
        if self._lacks(subject, None, number):
            self._add(subject, None, number, (seconds, error, runner.version))
        if error:
            self._end(name)
            return False
        runner.pause()
        return True

    def _measure(self, subject: Subject, workload: Workload, number: int) -> None:
        name = subject.form.name
        if name not in self._running:
            failed = [each.error for each in self._results.find(name, None, subject.build, self._boot) if each.error]
            if failed or not self._start(subject, number):
                self._add(subject, workload, number, ((), failed[-1] if failed else "does not start again", ""))
                return
        runner = self._running[name]
        runner.resume()
        try:
            seconds = self._seconds(runner, workload, number)
        except RunnerFailed as failure:
            self._add(subject, workload, number, ((), str(failure), runner.version))
            self._end(name)
            return
        self._add(subject, workload, number, (seconds, None, runner.version))
        runner.pause()

    def _seconds(self, runner: RunnerProcess, workload: Workload, number: int) -> tuple[float, ...]:
        """A short run to warm up, then the timed ones, each with prompts of its own."""
        limit = self._limits.job_s

        def timed(run: int) -> float:
            return runner.run(workload.prompts(VOCAB_SIZE, number, run), workload.generated, limit)

        runner.run(workload.prompts(VOCAB_SIZE, number, 0), workload.short.generated, limit)
        seconds = [timed(1)]
        while seconds[0] < SHORT_SECONDS and len(seconds) < REPEATS:
            seconds.append(timed(len(seconds) + 1))
        return tuple(seconds)

    def _add(
        self, subject: Subject, workload: Workload | None, number: int, found: tuple[tuple[float, ...], str | None, str]
    ) -> None:
        seconds, error, version = found
        sample = Sample(subject.form.name, workload, number, subject.build, self._boot, seconds, error, version)
        self._results.add(sample)
        what = "start" if workload is None else str(workload)
        figures = error or ", ".join(f"{each:.3f} s" for each in seconds)
        if workload is not None and seconds:
            figures += f"  ({workload.counted_tokens / min(seconds):.0f} {workload.unit})"
        clock = time.strftime("%H:%M:%S")
        self._say(f"{clock}  round {number + 1}/{self._limits.rounds}  {what:<16} {subject.form.name:<18} {figures}")

    def _end(self, name: str) -> None:
        self._running.pop(name).close()


def boot_id() -> str:
    """What is the same for all processes between two starts of the machine, and nowhere else."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _steers(variable: str) -> bool:
    """Settings of the caller's shell must not reach one engine and not the other."""
    return variable.startswith("OCTAVO_") or variable in NOT_FOR_RUNNERS

"""Timed runs of a loaded model on prompts of random tokens. Prints nothing and knows no text.

A workload is prompt x generated x batch: `batch` prompts given at once, greedy, the end of sequence ignored. Time is
the whole wall time, prompts included. Every run has prompts of its own, so that the prefix cache has nothing to give.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.errors import InvalidRequest, RequestFailed
from octavo.params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.llm import LLM

Clock = Callable[[], float]
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """prompt, generated: tokens of each sequence. batch: sequences. Raises InvalidRequest for any below 1."""

    prompt: int
    generated: int
    batch: int

    def __post_init__(self) -> None:
        for name, value in (("prompt", self.prompt), ("generated", self.generated), ("batch", self.batch)):
            if value < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {value}", param=name)

    def __str__(self) -> str:
        return f"{self.prompt} x {self.generated} x {self.batch}"

    @property
    def counted_tokens(self) -> int:
        """The tokens whose rate tells about this workload: those generated, or the prompt's when only one is."""
        return self.batch * (self.prompt if self.generated == 1 else self.generated)

    @property
    def unit(self) -> str:
        """What `counted_tokens` over seconds is."""
        return "prompt tokens/s" if self.generated == 1 else "tokens/s"

    @property
    def short(self) -> Workload:
        """The same with few new tokens, to warm up."""
        return Workload(self.prompt, min(self.generated, WARM_UP_TOKENS), self.batch)

    def prompts(self, vocab_size: int, seed: int, run: int) -> list[list[int]]:
        """`batch` prompts of ids drawn evenly from the vocabulary: the same for the same seed and run, else others."""
        draw = random.Random(f"{self}/{seed}/{run}")
        return [[draw.randrange(vocab_size) for _ in range(self.prompt)] for _ in range(self.batch)]


@dataclass(frozen=True, slots=True)
class Throughput:
    """seconds: whole wall time of each repeat. preemptions: of all repeats; more than none means a pool too small."""

    workload: Workload
    seconds: tuple[float, ...]
    preemptions: int

    @property
    def rates(self) -> tuple[float, ...]:
        """`workload.unit` of each repeat."""
        return tuple(self.workload.counted_tokens / each for each in self.seconds)


@dataclass(frozen=True, slots=True)
class Latency:
    """first_token: seconds from the batch's arrival to each sequence's first token. gaps: seconds between a token and
    the one before it. Both over all sequences and repeats."""

    workload: Workload
    first_token: tuple[float, ...]
    gaps: tuple[float, ...]


def measure_throughput(
    llm: LLM, workload: Workload, *, repeats: int, seed: int, clock: Clock = time.perf_counter
) -> Throughput:
    """Run the workload once short, to warm up, then `repeats` times."""
    _timed_run(llm, workload.short, (seed, 0), clock)
    preempted = llm.stats().preemptions
    seconds = tuple(_timed_run(llm, workload, (seed, run), clock) for run in range(1, repeats + 1))
    return Throughput(workload, seconds, llm.stats().preemptions - preempted)


def measure_latency(
    llm: LLM, workload: Workload, *, repeats: int, seed: int, clock: Clock = time.perf_counter
) -> Latency:
    """Run the workload once short, to warm up, then `repeats` times, noting when each token appears."""
    _timed_run(llm, workload.short, (seed, 0), clock)
    first: list[float] = []
    gaps: list[float] = []
    for run in range(1, repeats + 1):
        for times in _token_times(llm, workload, (seed, run), clock):
            first.append(times[0])
            gaps += [after - before for before, after in itertools.pairwise(times)]
    return Latency(workload, tuple(first), tuple(gaps))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the samples lie, linear between neighbours. samples: at least one."""
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _params(workload: Workload) -> SamplingParams:
    return SamplingParams(max_tokens=workload.generated, temperature=0.0, ignore_eos=True)


def _timed_run(llm: LLM, workload: Workload, draw: tuple[int, int], clock: Clock) -> float:
    """Seconds that the workload took. Raises RequestFailed when an answer is not whole."""
    prompts = workload.prompts(llm.engine.vocab_size, *draw)
    begun = clock()
    outputs = llm.generate(prompts, _params(workload), progress=False)
    seconds = clock() - begun
    for output in outputs:
        if output.error is not None:
            raise output.error
        _check_length(len(output.choices[0].tokens), workload)
    return seconds


def _token_times(llm: LLM, workload: Workload, draw: tuple[int, int], clock: Clock) -> list[list[float]]:
    """For each sequence, when each of its tokens appeared, in seconds since all prompts were given."""
    engine = llm.engine
    prompts = workload.prompts(engine.vocab_size, *draw)
    begun = clock()
    times: dict[int, list[float]] = {engine.add(prompt, _params(workload), seed=0): [] for prompt in prompts}
    while engine.has_work:
        deltas = engine.step()
        now = clock() - begun
        for delta in deltas:
            times[delta.request_id] += [now] * len(delta.token_ids)
            if delta.output is not None and delta.output.error is not None:
                raise delta.output.error
    for each in times.values():
        _check_length(len(each), workload)
    return list(times.values())


def _check_length(got: int, workload: Workload) -> None:
    if got != workload.generated:
        raise RequestFailed(f"an answer of the workload {workload} has {got} tokens, not {workload.generated}")

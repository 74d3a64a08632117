"""Random traffic under pressure, every slot checked, against the same requests without pressure: to the bit.

A round is one engine: a pool that is too small, block size, budget, layer windows and tiers drawn at random, its disk
failing at every fifth operation. Its requests fork, draw, score prompts, search, stop early, are aborted and refused,
while beginnings of their prompts are pinned for a time and the pool changes its size.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from failing_tiers import FaultyFiles, tiers_that_fail
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine.outputs import Choice, RequestMetrics, RequestOutput
from octavo.errors import InvalidRequest
from octavo.options import RequestOptions, Tenant
from octavo.params import Pooling

ROOT = [(index * 37) % 200 for index in range(60)]  # prompts begin alike, so that they share blocks
REFUSED = {"pool_too_small": None, "invalid_value": None}  # too few blocks, too few places for beams
PIN_REFUSED = {"pin_refused": "pins refused"}
WINDOWS = (None, 10)
STEPS_A_REQUEST = 400  # far beyond what any order of work takes
FAULTS_ONE_IN = 5
LONGEST = 60  # tokens of prompt and answer
BEAMS = 0.15  # of the requests
RESIZES = 0.02  # a step
PINS = 0.03  # a step; each lasts for up to PIN_STEPS
PIN_STEPS = 150

Answer = tuple[tuple[Choice, ...], bytes]  # and the embedding


@dataclass(frozen=True, slots=True)
class Job:
    """abort_after: steps after which it is aborted."""

    prompt: tuple[int, ...]
    params: SamplingParams
    namespace: bytes
    options: RequestOptions
    abort_after: int | None


class Proof:
    """Runs rounds and counts what they met. folder: for the models. Raises AssertionError at the first difference."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._models = {window: make_random(folder / str(window), window=window) for window in WINDOWS}

    def run(self, requests: int, a_round: int = 50) -> None:
        """That many requests, in rounds."""
        while self.counts["requests"] < requests:
            self._round(min(a_round, requests - self.counts["requests"]))

    def _round(self, requests: int) -> None:
        rng = self._rng
        window = rng.choice(WINDOWS)
        jobs = [draw_job(rng) for _ in range(requests)]
        size = rng.choice([1, 2, 4, 8, 16])
        pool: dict[str, Any] = {
            "num_blocks": rng.randint(LONGEST // size + 1, 2 * LONGEST // size + 2) // (1 if window is None else 2) + 1,
            "block_size": size,
            "max_batched_tokens": rng.choice([8, 17, 64, 512]),
            "max_seqs": rng.choice([2, 4, 8]),
            "policy": rng.choice(["fcfs", "priority", "fair"]),
        }
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("OCTAVO_CHECK", "3")
            tiers, files = stack.enter_context(random_tiers(rng))
            llm = stack.enter_context(LLM(self._models[window], **pool, **tiers))
            pins = Pins(llm, rng)
            answers, bills = serve(llm, jobs, rng, pins)
            pins.end()
            assert_bills_sum(llm, bills)
            self._count(llm, answers)
            self.counts.update(pins.counts)
            assert_nothing_is_left(llm)
            self.counts["disk faults injected"] += 0 if files is None else files.faults
        self._compare(window, jobs, answers)

    def _compare(self, window: int | None, jobs: list[Job], answers: dict[int, Answer | None]) -> None:
        whole = [place for place in range(len(jobs)) if answers[place] is not None]
        if not whole:
            return
        with LLM(self._models[window], num_blocks=2000, prefix_cache=False) as free:
            prompts = [list(jobs[place].prompt) for place in whole]
            outputs = free.generate(prompts, [jobs[place].params for place in whole], progress=False)
            assert free.stats().preemptions == 0
        for place, output in zip(whole, outputs, strict=True):
            assert answers[place] == answer_of(output), (place, jobs[place])
            self.counts["embeddings compared"] += output.embedding is not None
            self.counts["answers compared"] += len(output.choices)
            self.counts["tokens compared"] += sum(len(choice.tokens) for choice in output.choices)

    def _count(self, llm: LLM, answers: dict[int, Answer | None]) -> None:
        stats, canary = llm.stats(), llm.engine._parts.canary
        assert canary is not None
        self.counts["requests"] += len(answers)
        self.counts["aborted or refused"] += sum(answer is None for answer in answers.values())
        self.counts["rounds"] += 1
        self.counts["steps"] += stats.steps
        self.counts["preemptions"] += stats.preemptions
        self.counts["copies on write"] += stats.copies
        self.counts["evictions"] += stats.evictions
        self.counts["blocks fetched from tiers"] += stats.fetched_blocks
        self.counts["resizes"] += sum(event.kind == "resized" for event in llm.engine.events())
        self.counts["fetches lost"] += sum(event.count for event in llm.engine.events() if event.kind == "lost")
        self.counts["slots checked"] += canary.slots_read
        self.counts["table faults injected and seen"] += canary.faults_seen


class Pins:
    """Beginnings of the prompts, pinned at random for so many steps. Counts those taken, those refused and the steps in
    which a pinned block was there."""

    def __init__(self, llm: LLM, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._kv, self._pins, self._rng = llm.engine._kv, llm.engine.pins, rng
        self._step = 0
        self._taken: list[int] = []
        self._pins._clock = lambda: float(self._step)

    def step(self) -> None:
        rng, self._step = self._rng, self._step + 1
        if rng.random() < PINS:
            start, length = rng.choice([0, 8]), rng.randint(1, 20)
            try:
                namespace = rng.choice([b"", b"tenant"])
                pin = self._pins.add(ROOT[start : start + length], rng.randint(1, PIN_STEPS), namespace=namespace)
                self._taken.append(pin)
                self.counts["pins"] += 1
            except InvalidRequest as refused:
                self.counts[PIN_REFUSED[refused.code]] += 1
        if self._taken and rng.random() < PINS / 4:
            self._pins.remove(self._taken.pop())
        self.counts["steps with pinned blocks"] += len(self._kv.pins) > 0

    def end(self) -> None:
        """All times are up."""
        self._step += PIN_STEPS
        self._pins.expire()
        assert len(self._kv.pins) == 0
        assert self._kv.capacity == self._kv.num_blocks


def answer_of(output: RequestOutput) -> Answer:
    """What is to be the same to the bit."""
    return output.choices, b"" if output.embedding is None else output.embedding.tobytes()


def draw_job(rng: random.Random) -> Job:
    start, length = rng.choice([0, 0, 0, 8]), rng.randint(1, 30)
    beams = rng.choice([2, 3, 4])
    searched = SamplingParams(
        max_tokens=rng.randint(1, LONGEST - length),
        beam_width=beams,
        n=rng.randint(1, beams),
        length_penalty=rng.choice([0.0, 1.0]),
        early_stopping=rng.choice([True, False]),
        logprobs=1,
    )
    pooling: Pooling | None = rng.choice([None, None, "last", "mean"])
    sampled = SamplingParams(
        max_tokens=0 if pooling and rng.random() < 0.5 else rng.randint(1, LONGEST - length),
        pooling=pooling,
        n=rng.choice([1, 1, 1, 2, 4]),
        temperature=rng.choice([0.0, 1.0]),
        seed=rng.randrange(4),
        logprobs=1,
        prompt_logprobs=rng.choice([None, None, None, 1]),
        presence_penalty=0.5,
        ignore_eos=rng.random() < 0.5,
    )
    namespace = rng.choice([b"", b"", b"tenant"])
    options = RequestOptions(priority=rng.randint(-2, 2), tenant=Tenant(rng.choice("ab"), weight=rng.choice([1, 3])))
    params = searched if rng.random() < BEAMS else sampled
    return Job(tuple(ROOT[start : start + length]), params, namespace, options, rng.choice([None] * 8 + [1, 3, 9]))


@contextmanager
def random_tiers(rng: random.Random) -> Iterator[tuple[dict[str, Any], FaultyFiles | None]]:
    """Settings of none, host memory that soon forgets, a disk that fails, or both."""
    host = {"host_kv_memory": rng.choice(["24KiB", "256KiB"])}
    match rng.randrange(4):
        case 0:
            yield {}, None
        case 1:
            yield host, None
        case kind:
            with TemporaryDirectory() as folder, tiers_that_fail(rng.randrange(1 << 16), one_in=FAULTS_ONE_IN) as files:
                disk = {"disk_kv": folder + "/d", "disk_kv_size": "512KiB"}
                yield (disk if kind == 2 else host | disk), files


def serve(
    llm: LLM, jobs: list[Job], rng: random.Random, pins: Pins
) -> tuple[dict[int, Answer | None], list[RequestMetrics]]:
    """Answers by place, None where aborted or refused; and all bills. They arrive in bursts, and the pool's size
    changes."""
    engine, queue = llm.engine, list(enumerate(jobs))
    places: dict[int, int] = {}
    born: dict[int, int] = {}
    answers: dict[int, Answer | None] = {}
    bills: list[RequestMetrics] = []
    step = 0
    while queue or engine.has_work:
        for _ in range(min(len(queue), rng.choice([0, 0, 1, 1, 5]) if engine.has_work else 1)):
            place, job = queue.pop(0)
            try:
                request = engine.add(
                    list(job.prompt),
                    job.params,
                    seed=job.params.seed or 0,
                    namespace=job.namespace,
                    options=job.options,
                )
            except InvalidRequest as refused:
                answers[place] = REFUSED[refused.code]
                continue
            places[request], born[request] = place, step
        for request, place in places.items():
            after = jobs[place].abort_after
            if after is not None and step - born[request] == after and engine.abort(request):
                answers[place] = None
        pins.step()
        if rng.random() < RESIZES:
            with suppress(InvalidRequest):  # smaller than a live request may need
                engine.resize(rng.randint(llm.config.num_blocks // 2, 2 * llm.config.num_blocks))
        for delta in engine.step():
            if delta.output is not None:
                assert delta.output.error is None, delta.output.error
                answers.setdefault(places[delta.request_id], answer_of(delta.output))
                bills.append(delta.output.metrics)
        step += 1
        assert step < STEPS_A_REQUEST * len(jobs), "no progress"
    return answers, bills


def assert_bills_sum(llm: LLM, bills: list[RequestMetrics]) -> None:
    """Of all requests, whether they were answered or aborted, to what the engine spent."""
    stats = llm.stats()
    for what in ("computed_tokens", "copies", "preemptions", "cached_tokens", "fetched_blocks"):
        assert sum(getattr(bill, what) for bill in bills) == getattr(stats, what), what
    assert sum(bill.block_seconds for bill in bills) == pytest.approx(stats.block_seconds, rel=1e-6)


def assert_nothing_is_left(llm: LLM) -> None:
    """Neither blocks nor anything kept for a request."""
    engine, stats = llm.engine, llm.stats()
    assert (stats.blocks_used, stats.running, stats.waiting) == (0, 0, 0)
    assert not engine._requests.by_id
    assert not engine._requests._answers
    assert not engine._executor._states
    assert not engine._journal._tracks
    engine._kv.check()
    if engine._mover.tiers is not None:
        engine._mover.tiers.check()

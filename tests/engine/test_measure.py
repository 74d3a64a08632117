"""Timed runs of a real engine: whole answers, every sample, and percentiles that are exact."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy import make_random

from octavo import LLM
from octavo.engine.measure import Workload, measure_latency, measure_throughput, percentile
from octavo.errors import InvalidRequest


@pytest.fixture
def llm(tmp_path: Path) -> Iterator[LLM]:
    with LLM(make_random(tmp_path / "model"), num_blocks=64, threads=1) as llm:
        yield llm


def test_percentiles() -> None:
    assert [percentile([4.0, 1.0, 3.0, 2.0], each) for each in (0, 50, 90, 100)] == [1.0, 2.5, pytest.approx(3.7), 4.0]
    assert percentile([5.0], 99) == 5.0


def test_throughput_counts_what_was_generated(llm: LLM) -> None:
    result = measure_throughput(llm, Workload(20, 12, 3), repeats=2, seed=0)
    assert len(result.seconds) == 2
    assert result.rates == tuple(36 / each for each in result.seconds)
    stats = llm.stats()
    assert stats.generated_tokens == 3 * (8 + 12 + 12)
    assert stats.cached_tokens == 0  # prompts of their own in each run
    assert result.preemptions == 0


def test_latency_has_a_time_for_every_token(llm: LLM) -> None:
    ticks = itertools.count()
    result = measure_latency(llm, Workload(20, 5, 2), repeats=3, seed=0, clock=lambda: float(next(ticks)))
    assert len(result.first_token) == 3 * 2
    assert result.first_token == (1.0,) * 6  # both prompts fit in the first step
    assert result.gaps == (1.0,) * (3 * 2 * 4)


def test_a_workload_beyond_the_context_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="context"):
        measure_throughput(llm, Workload(250, 50, 1), repeats=1, seed=0)

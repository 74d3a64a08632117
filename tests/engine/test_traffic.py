"""Random traffic on a tiny random model against each request alone: tokens and log-probabilities to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from failing_tiers import tiers_that_fail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine.outputs import Choice
from octavo.errors import InvalidRequest
from octavo.options import RequestOptions
from octavo.sched.policies import POLICIES

ROOT = [(index * 37) % 200 for index in range(60)]  # prompts begin alike, so that they share blocks
REFUSED = {"pool_too_small": None}  # any other refusal fails the test
Job = tuple[list[int], SamplingParams, int | None]

samples = st.builds(
    lambda start, length, new, n, warm, seed, top, stop_after: (
        ROOT[start : start + length],
        SamplingParams(
            max_tokens=new, n=n, temperature=warm, seed=seed, logprobs=1, prompt_logprobs=top, presence_penalty=0.5
        ),
        stop_after,
    ),
    st.sampled_from([0, 0, 0, 8]),
    st.integers(1, 40),
    st.integers(1, 24),
    st.sampled_from([1, 1, 1, 3]),
    st.sampled_from([0.0, 1.0]),
    st.integers(0, 3),
    st.sampled_from([None, None, None, 1]),
    st.sampled_from([None, None, None, None, 1, 3, 9]),  # abort after so many steps
)
searches = st.builds(
    lambda length, new, width, penalty, stopping, ends, top, stop_after: (
        ROOT[:length],
        SamplingParams(
            max_tokens=new,
            n=max(1, width - 1),
            beam_width=width,
            length_penalty=penalty,
            early_stopping=stopping,
            stop_token_ids=list(range(ends)),
            min_tokens=min(new, 2),
            stop=["a"] if ends else [],
            logprobs=1,
            prompt_logprobs=top,
        ),
        stop_after,
    ),
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from([2, 3, 4]),
    st.sampled_from([-1.0, 0.0, 1.0]),
    st.sampled_from([False, True, "never"]),
    st.sampled_from([0, 20]),
    st.sampled_from([None, None, None, 1]),
    st.sampled_from([None, None, None, None, 1, 3, 9]),
)
jobs = st.one_of(samples, samples, searches)


@pytest.fixture(scope="module", params=[None, 10], ids=["full", "window"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"), window=request.param)


@pytest.fixture(scope="module")
def alone(model: Path) -> Iterator[LLM]:
    with LLM(model, num_blocks=96, prefix_cache=False, max_seqs=6) as llm:
        yield llm


def run(llm: LLM, work: list[Job]) -> dict[int, tuple[Choice, ...] | None]:
    """Answers by place; None where aborted. One request joins at each step."""
    engine, queue = llm.engine, list(enumerate(work))
    places: dict[int, int] = {}
    born: dict[int, int] = {}
    answers: dict[int, tuple[Choice, ...] | None] = {}
    step = 0
    while queue or engine.has_work:
        if queue:
            place, (prompt, params, _) = queue.pop(0)
            try:
                options = RequestOptions(priority=1 - place % 3)
                request = engine.add(prompt, params, seed=params.seed or 0, options=options)
                places[request], born[request] = place, step
            except InvalidRequest as refused:
                answers[place] = REFUSED[refused.code]
        for request, place in places.items():
            after = work[place][2]
            if after is not None and step - born[request] == after and engine.abort(request):
                answers[place] = None
        for delta in engine.step():
            if delta.output is not None:
                answers.setdefault(places[delta.request_id], delta.output.choices)
        step += 1
        assert step < 3000
    return answers


def check(model: Path, alone: LLM, work: list[Job], **pool: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_CHECK", "3")
        with LLM(model, **pool) as llm:
            answers = run(llm, work)
            assert llm.stats().blocks_used == 0
    for place, (prompt, params, _) in enumerate(work):
        if answers[place] is not None:
            assert answers[place] == alone.generate(prompt, params)[0].choices


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    work=st.lists(jobs, min_size=1, max_size=8),
    num_blocks=st.integers(12, 40),
    block_size=st.sampled_from([2, 4, 8]),
    policy=st.sampled_from(POLICIES),
)
def test_traffic(model: Path, alone: LLM, work: list[Job], num_blocks: int, block_size: int, policy: str) -> None:
    budget = (6, 17, 64)[len(work) % 3]
    pool = {"num_blocks": num_blocks, "block_size": block_size, "max_batched_tokens": budget, "policy": policy}
    check(model, alone, work, max_seqs=6, **pool)


def check_over_tiers(model: Path, alone: LLM, work: list[Job], seed: int, **pool: Any) -> None:
    """Host memory that soon forgets over a disk of which every fifth operation goes wrong."""
    with TemporaryDirectory() as folder, tiers_that_fail(seed, one_in=5):
        tiers = {"host_kv_memory": "24KiB", "disk_kv": folder + "/d", "disk_kv_size": "512KiB"}
        check(model, alone, work, max_seqs=6, **tiers, **pool)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    work=st.lists(jobs, min_size=4, max_size=10),
    num_blocks=st.integers(12, 24),
    block_size=st.sampled_from([2, 4]),
    seed=st.integers(0, 999),
)
def test_traffic_over_failing_tiers(
    model: Path, alone: LLM, work: list[Job], num_blocks: int, block_size: int, seed: int
) -> None:
    check_over_tiers(model, alone, work, seed, num_blocks=num_blocks, block_size=block_size, max_batched_tokens=17)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    work=st.lists(jobs, min_size=4, max_size=20),
    num_blocks=st.integers(8, 40),
    block_size=st.sampled_from([1, 2, 4, 8]),
    seed=st.integers(0, 1 << 16),
)
def test_much_traffic_over_failing_tiers(
    model: Path, alone: LLM, work: list[Job], num_blocks: int, block_size: int, seed: int
) -> None:
    check_over_tiers(model, alone, work, seed, num_blocks=num_blocks, block_size=block_size, max_batched_tokens=64)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    work=st.lists(jobs, min_size=1, max_size=16),
    num_blocks=st.integers(8, 60),
    block_size=st.sampled_from([1, 2, 4, 8, 16]),
    budget=st.sampled_from([6, 17, 64, 512]),
)
def test_much_traffic(model: Path, alone: LLM, work: list[Job], num_blocks: int, block_size: int, budget: int) -> None:
    check(model, alone, work, num_blocks=num_blocks, block_size=block_size, max_batched_tokens=budget, max_seqs=6)


def test_a_window_lets_a_small_pool_hold_a_long_answer(tmp_path: Path) -> None:
    """Blocks that no layer reads any more go back to the pool while the sequence runs."""
    folder = make_random(tmp_path, window=10)
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    with LLM(folder, num_blocks=8, block_size=4) as llm:
        small = llm.generate(ROOT[:9], params)[0].choices[0].tokens
    with LLM(folder, num_blocks=64, block_size=16) as llm:
        assert llm.generate(ROOT[:9], params)[0].choices[0].tokens == small
    assert len(small) == 200

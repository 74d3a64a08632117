"""Sampling more answers than are returned: the same draws as ever, ranked, shown at the end, all of them billed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine.outputs import Choice, Delta
from octavo.errors import RequestFailed
from octavo.exec.sampler import SequenceSampler

PROMPT = np.random.default_rng(3).integers(60, 250, 40).tolist()
# Many tokens end an answer, so that lengths differ and a sum of log-probabilities would rank otherwise.
DRAWN = {"max_tokens": 24, "temperature": 1.5, "seed": 7, "stop_token_ids": range(40, 60), "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"))


@pytest.fixture
def llm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    with LLM(folder, num_blocks=64, backend="numpy") as llm:
        yield llm


def drawn(**fields: object) -> SamplingParams:
    return SamplingParams(**{**DRAWN, "stop_token_ids": list(DRAWN["stop_token_ids"]), **fields})  # type: ignore


def mean(choice: Choice) -> float:
    assert choice.cumulative_logprob is not None
    return choice.cumulative_logprob / len(choice.tokens)


def run(llm: LLM, params: SamplingParams) -> list[list[Delta]]:
    """The deltas of each step."""
    llm.engine.add(PROMPT, params, seed=7)
    steps = []
    while llm.engine.has_work:
        steps.append(llm.engine.step())
    return steps


def test_the_best_are_those_that_as_many_answers_would_have_had(llm: LLM) -> None:
    every = llm.generate(PROMPT, drawn(n=8, logprobs=0))[0]
    ranked = sorted(every.choices, key=mean, reverse=True)
    summed = sorted(every.choices, key=lambda choice: choice.cumulative_logprob or 0.0, reverse=True)
    assert [each.index for each in ranked[:3]] != [each.index for each in summed[:3]], "the lengths decide nothing here"
    best = llm.generate(PROMPT, drawn(n=3, best_of=8))[0]
    assert [each.index for each in best.choices] == [0, 1, 2]
    assert [(each.tokens, each.text, each.cumulative_logprob) for each in best.choices] == [
        (each.tokens, each.text, each.cumulative_logprob) for each in ranked[:3]
    ]
    assert [each.logprobs for each in best.choices] == [None] * 3  # nobody asked for them
    assert best.metrics.output_tokens == every.metrics.output_tokens
    asked = llm.generate(PROMPT, drawn(n=3, best_of=8, logprobs=2))[0]
    assert [len(each.logprobs or ()) for each in asked.choices] == [len(each.tokens) for each in asked.choices]
    assert llm.stats().blocks_used == 0


def test_nothing_is_shown_before_all_have_ended(llm: LLM) -> None:
    *before, last = run(llm, drawn(n=2, best_of=6))
    assert not any(before)
    assert [delta.index for delta in last] == [0, 1]
    assert [delta.output is not None for delta in last] == [False, True]
    output = last[-1].output
    assert output is not None
    assert [(delta.text, delta.token_ids) for delta in last] == [(each.text, each.tokens) for each in output.choices]
    assert not llm.engine._held_back._requests


def test_as_many_as_are_returned_stream_as_ever(llm: LLM) -> None:
    assert run(llm, drawn(n=3, best_of=3))[0]


def test_an_abort_ends_all_of_them(llm: LLM) -> None:
    request = llm.engine.add(PROMPT, drawn(n=2, best_of=6, stop_token_ids=[]), seed=7)
    for _ in range(4):
        assert llm.engine.step() == []
    assert llm.engine.abort(request)
    deltas = llm.engine.step()
    assert [delta.finish_reason for delta in deltas] == ["abort", "abort"]
    assert not llm.engine.has_work
    assert llm.stats().blocks_used == 0


def test_a_fault_of_one_sample_is_told(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """However unlikely the answer was that it ended."""
    original = SequenceSampler.constrain

    def faulty(self: SequenceSampler, raw: np.ndarray, tokens: list[int], prompt_len: int) -> np.ndarray:
        if len(tokens) == len(PROMPT) + 20:
            raise ZeroDivisionError("injected")
        return original(self, raw, tokens, prompt_len)

    monkeypatch.setattr(SequenceSampler, "constrain", faulty)
    output = llm.generate(PROMPT, drawn(n=1, best_of=8), progress=False)[0]
    assert output.choices[0].finish_reason == "error"
    assert isinstance(output.error, RequestFailed)
    assert llm.stats().blocks_used == 0

"""The sampler against the plain reference, over random settings; and that it keeps nothing that changes an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_row import sample
from reference_sampler import constrained, expect

from octavo.exec.random import Draws
from octavo.exec.sampler import SequenceSampler
from octavo.ops.numpy.sampling import keep
from octavo.ops.sampling import Filters
from octavo.params import SamplingParams

EOS = (1, 5)


@st.composite
def some_params(draw: st.DrawFn) -> SamplingParams:
    number = lambda low, high, off: st.one_of(st.just(off), st.floats(low, high))  # noqa: E731
    return SamplingParams(
        temperature=draw(st.one_of(st.just(0.0), st.floats(0.1, 2.0))),
        top_k=draw(st.one_of(st.just(0), st.integers(2, 60))),
        top_p=draw(number(0.01, 0.999, 1.0)),
        min_p=draw(number(0.001, 0.9, 0.0)),
        repetition_penalty=draw(number(0.5, 2.0, 1.0)),
        presence_penalty=draw(number(-2.0, 2.0, 0.0)),
        frequency_penalty=draw(number(-2.0, 2.0, 0.0)),
        logit_bias=draw(
            st.dictionaries(st.integers(0, 11), st.sampled_from([-100.0, -1.5, 0.0, 2.0, 100.0]), max_size=4)
        ),
        min_tokens=draw(st.sampled_from([0, 2, 6])),
        stop_token_ids=draw(st.sampled_from([(), (3,), (0, 5)])),
        ignore_eos=draw(st.booleans()),
    )


@st.composite
def some_logits(draw: st.DrawFn) -> np.ndarray:
    """Random, of all spreads; coarse (many ties); longer than one span of a draw."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    row = rng.normal(scale=draw(st.sampled_from([0.0, 0.1, 2.0, 8.0])), size=draw(st.sampled_from([12, 40, 300, 2500])))
    return (np.round(row * 2) / 2 if draw(st.booleans()) else row).astype(np.float32)


histories = st.lists(st.integers(0, 11), min_size=1, max_size=20)
words = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3), max_size=3)


@settings(deadline=None, max_examples=150)
@given(some_params(), some_logits(), histories, words, st.data())
def test_equals_reference(
    params: SamplingParams, logits: np.ndarray, tokens: list[int], bad: list[list[int]], data: st.DataObject
) -> None:
    """Cases H02 to H10: every setting with every other."""
    prompt_len = data.draw(st.integers(0, len(tokens)))
    seed = data.draw(st.integers(0, 2**63))
    row = constrained(logits, tokens, prompt_len, params, EOS, bad)
    sampler = SequenceSampler(params, draws=Draws(seed, 0), vocab_size=len(logits), eos_ids=EOS, bad_word_ids=bad)
    expected = expect(row, params, Draws(seed, 0).at(len(tokens)))
    if expected.margin < 1e-5 or max(row) == -np.inf:
        return
    assert sample(sampler, logits, tokens, prompt_len).token == expected.token


@settings(deadline=None, max_examples=150)
@given(some_params(), some_logits())
def test_keeps_what_the_reference_keeps(params: SamplingParams, logits: np.ndarray) -> None:
    filters = Filters(params.temperature, params.top_k, params.top_p, params.min_p)
    expected = expect([float(x) for x in logits], params, 0.5)
    if filters.greedy or expected.margin < 1e-5:
        return
    ids, weights = keep(logits, filters)
    ids = np.arange(len(logits)) if ids is None else ids
    found = dict(zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True))
    assert {i for i, p in expected.kept.items() if p > 1e-10} <= found.keys() <= set(range(len(logits)))
    # Weights are multiples of 2**-34 of the top token's: 3e-11 of it may be missing or too much.
    for i, probability in found.items():
        assert probability == pytest.approx(expected.kept.get(i, 0.0), rel=2e-5, abs=3e-11)


@settings(deadline=None, max_examples=60)
@given(some_params(), st.lists(st.tuples(histories, st.integers(0, 20)), min_size=2, max_size=8), st.integers(0, 99))
def test_answers_depend_on_arguments_alone(
    params: SamplingParams, calls: list[tuple[list[int], int]], seed: int
) -> None:
    """Case C02: whatever a sampler was asked before (grown, cut, rewritten histories), it answers as a fresh one."""
    logits = np.random.default_rng(seed).normal(size=40).astype(np.float32)
    settings: dict[str, Any] = {"draws": Draws(seed, 1), "vocab_size": 40, "eos_ids": EOS}
    used = SequenceSampler(params, **settings)
    for tokens, length in calls:
        prompt_len = min(length, len(tokens))
        for history, start in ((tokens, prompt_len), ([*tokens, 7], prompt_len), (tokens, prompt_len), (tokens, 0)):
            fresh = SequenceSampler(params, **settings)
            assert sample(used, logits, history, start) == sample(fresh, logits, list(history), start)


def test_preempted_sequence_goes_on_as_if_nothing_had_happened() -> None:
    """Case C02: the list grows token by token; a sampler built anew in the middle continues with the same tokens."""
    params = SamplingParams(
        temperature=0.8, seed=3, presence_penalty=0.7, repetition_penalty=1.2, logprobs=3, min_tokens=20
    )
    rng = np.random.default_rng(0)
    rows = rng.normal(scale=3, size=(40, 200)).astype(np.float32)

    def run(anew_at: set[int]) -> list[object]:
        tokens = list(range(10))
        answers: list[object] = []
        for position, row in enumerate(rows):
            if position in anew_at or position == 0:
                sampler = SequenceSampler(params, draws=Draws(3, 0), vocab_size=200, eos_ids=EOS)
            answers.append(sample(sampler, row, tokens, 10))
            tokens.append(answers[-1].token)
        return answers

    assert run(set()) == run({7, 8, 23}) == run(set(range(40)))

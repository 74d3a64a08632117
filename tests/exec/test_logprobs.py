"""Log-probabilities: the model's own, in order, finite, the same bits every time."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_row import position, prompt, sample

from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.logprobs import LEAST_LOGPROB, PositionLogprobs
from octavo.exec.random import Draws
from octavo.exec.sampler import Sampled, SequenceSampler
from octavo.params import SamplingParams

V = 3000
ROWS = np.random.default_rng(3).normal(scale=4, size=(6, V + 64)).astype(np.float32)


def expected_at(logits: np.ndarray, **settings: Any) -> PositionLogprobs:
    made = SequenceSampler(SamplingParams(**settings), draws=Draws(9, 0), vocab_size=V, eos_ids=())
    told = sample(made, logits, [1, 2, 3, 2], 2).expected
    assert told is not None
    return told


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 1.0, 10.0, 300.0]), st.integers(1, 5000), st.integers(0, 20))
def test_equals_log_softmax(seed: int, scale: float, size: int, k: int) -> None:
    """Case J06: descending, equals by id, as many as asked, the chosen one's always; they sum to at most 1."""
    row = (np.round(np.random.default_rng(seed).normal(scale=scale, size=size) * 4) / 4).astype(np.float32)
    expected = torch.log_softmax(torch.from_numpy(row).double(), 0).numpy()
    token = seed % size
    found = position(row, token, k)
    assert found.token == token
    assert found.logprob == pytest.approx(max(expected[token], LEAST_LOGPROB), abs=1e-6)
    assert [top.token for top in found.top] == sorted(range(size), key=lambda i: (-row[i], i))[:k]
    np.testing.assert_allclose(
        [top.logprob for top in found.top], expected[[top.token for top in found.top]], atol=1e-6
    )
    assert sum(math.exp(top.logprob) for top in found.top) <= 1 + 1e-6


def test_raw_at_every_setting() -> None:
    """Case J04: always three alternatives and the same values, whatever temperature, filters and masks do."""
    plain = expected_at(ROWS[0], logprobs=3)
    top = plain.top
    assert len(top) == 3
    assert (top[0].token, top[0].logprob) == (plain.token, plain.logprob)
    for shaping in (
        {"temperature": 0.5},
        {"temperature": 2.0, "top_p": 0.5},
        {"temperature": 1.5, "top_k": 1},
        {"repetition_penalty": 2.0, "presence_penalty": 1.0, "frequency_penalty": 1.0},
        {"logit_bias": {plain.token: -100.0}},
    ):
        answer = expected_at(ROWS[0], logprobs=3, **shaping)
        assert answer.top == top
        assert answer.logprob == position(ROWS[0, :V].copy(), answer.token, 0).logprob
    assert expected_at(ROWS[0], logprobs=0).top == ()
    assert expected_at(ROWS[0], logprobs=0).logprob == plain.logprob
    made = SequenceSampler(SamplingParams(), draws=Draws(9, 0), vocab_size=V, eos_ids=())
    assert sample(made, ROWS[0], [1, 2, 3, 2], 2) == Sampled(plain.token)


def test_chosen_outside_the_top_is_reported() -> None:
    """Case J06, where the chosen token is not among the alternatives."""
    answer = expected_at(ROWS[0], logprobs=5, logit_bias={17: 100.0})
    assert answer.token == 17
    assert 17 not in [top.token for top in answer.top]
    expected = torch.log_softmax(torch.from_numpy(ROWS[0, :V]).double(), 0)[17].item()
    assert answer.logprob == pytest.approx(expected, abs=1e-6)


def test_never_infinite() -> None:
    """Case J01: strict JSON, whatever the logits are; -inf and distances past float32 included."""
    row = np.full(V, -np.inf, dtype=np.float32)
    row[:3] = 3e38, -3e38, 1.0
    for token in (0, 1, 5):
        found = position(row, token, 20)
        json.dumps(asdict(found), allow_nan=False)
        assert found.top[0].logprob == 0.0
        assert all(LEAST_LOGPROB <= top.logprob <= 0 for top in found.top)
    assert position(row, 5, 0).logprob == LEAST_LOGPROB


def test_prompt_rows_stand_alone() -> None:
    """Cases J07, H11: the same bits for a row alone, in any chunk, in any memory order, twice; never a padded id."""
    following = [5, 17, 2999, 0, 5, 1]
    padded = ROWS.copy()
    padded[:, V:] = 1e4
    whole = prompt(ROWS, following, 4, V)
    assert whole == prompt(padded, following, 4, V)
    assert whole == prompt(np.asfortranarray(ROWS), following, 4, V)
    for cut in range(7):
        first = prompt(ROWS[:cut], following[:cut], 4, V)
        assert first + prompt(ROWS[cut:], following[cut:], 4, V) == whole
    expected = torch.log_softmax(torch.from_numpy(ROWS[:, :V]).double(), 1).numpy()
    for i, found in enumerate(whole):
        assert found.token == following[i]
        assert found.logprob == pytest.approx(expected[i, following[i]], abs=1e-6)
        assert [top.token for top in found.top] == np.argsort(-expected[i])[:4].tolist()


def test_bad_input() -> None:
    with pytest.raises(InvalidRequest, match="token 3000"):
        prompt(ROWS[:1], [V], 2, V)
    damaged = ROWS.copy()
    damaged[1, 7] = np.nan
    with pytest.raises(RequestFailed, match="nan as the logit of token 7"):
        prompt(damaged, [1] * 6, 2, V)

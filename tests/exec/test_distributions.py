"""What is drawn has the distribution that the settings say: chi-square over thousands of draws, seeds fixed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from one_row import sample
from reference_sampler import constrained, expect

from octavo.exec.random import Draws
from octavo.exec.sampler import SequenceSampler
from octavo.params import SamplingParams

DRAWS = 3000
VOCAB = 48
TOKENS = [3, 5, 5, 7, 40, 5, 9, 9]
PROMPT_LEN = 4


def chi_square_excess(counts: Counter[int], probabilities: dict[int, float]) -> float:
    """How many standard deviations chi-square lies above its mean (Wilson and Hilferty's cube root); rare tokens are
    counted together."""
    n = sum(counts.values())
    cells = [(counts[i], n * p) for i, p in probabilities.items() if n * p >= 8]
    rest = n - sum(expected for _, expected in cells)
    if rest >= 8:
        cells.append((n - sum(observed for observed, _ in cells), rest))
    chi_square = sum((observed - expected) ** 2 / expected for observed, expected in cells)
    freedom = len(cells) - 1
    return (math.cbrt(chi_square / freedom) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 7},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 1.0, "min_p": 0.08},
        {"temperature": 1.5, "top_k": 20, "top_p": 0.8, "min_p": 0.05},
        {"temperature": 1.0, "repetition_penalty": 1.8},
        {"temperature": 1.0, "presence_penalty": 1.5, "frequency_penalty": -0.7},
        {"temperature": 0.8, "logit_bias": {2: 3.0, 9: -2.0}},
        {"temperature": 1.3, "repetition_penalty": 0.7, "frequency_penalty": 0.9, "top_p": 0.9, "logit_bias": {5: 1.0}},
        {"temperature": 1.0, "top_p": 0.95, "stop_token_ids": (0, 11), "min_tokens": 9},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_tokens_have_the_distribution(settings: dict[str, Any]) -> None:
    params = SamplingParams(**settings)
    logits = np.random.default_rng(5).normal(scale=1.5, size=VOCAB).astype(np.float32)
    row = constrained(logits, TOKENS, PROMPT_LEN, params)
    expected = expect(row, params, 0.5)
    assert expected.margin > 1e-5

    def token(seed: int) -> int:
        sampler = SequenceSampler(params, draws=Draws(seed, 0), vocab_size=VOCAB, eos_ids=())
        return sample(sampler, logits, TOKENS, PROMPT_LEN).token

    counts = Counter(map(token, range(DRAWS)))
    assert counts.keys() <= expected.kept.keys()
    assert chi_square_excess(counts, expected.kept) < 3.5


@pytest.mark.parametrize("vocab_size", [VOCAB, 5000])
def test_positions_and_choices_have_the_distribution(vocab_size: int) -> None:
    """One seed, thousands of positions, of three choices; short rows and rows of several spans."""
    logits = np.random.default_rng(6).normal(scale=1.5, size=vocab_size).astype(np.float32)
    logits[-40:] += 5  # weight in the last span
    params = SamplingParams(temperature=1.0)
    expected = expect([float(x) for x in logits], params, 0.5)
    for choice in range(3):
        sampler = SequenceSampler(params, draws=Draws(1, choice), vocab_size=vocab_size, eos_ids=())
        counts = Counter(sample(sampler, logits, range(n), n).token for n in range(DRAWS))
        assert chi_square_excess(counts, expected.kept) < 3.5


def test_chi_square_bites() -> None:
    """A temperature that is off is seen."""
    logits = np.random.default_rng(5).normal(scale=1.5, size=VOCAB).astype(np.float32)
    sampler = SequenceSampler(SamplingParams(temperature=1.3), draws=Draws(1, 0), vocab_size=VOCAB, eos_ids=())
    counts = Counter(sample(sampler, logits, range(n), n).token for n in range(DRAWS))
    expected = expect([float(x) for x in logits], SamplingParams(temperature=1.0), 0.5)
    assert chi_square_excess(counts, expected.kept) > 5

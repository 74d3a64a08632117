"""The same tokens stay, with the same probabilities, as after transformers' logits processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from octavo.exec.penalties import Penalties, TokenCounts
from octavo.ops.numpy.sampling import keep
from octavo.ops.sampling import Filters

HISTORY = [3, 9, 9, 1000, 4, 3]


@pytest.mark.parametrize("top_k", [0, 40])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
@pytest.mark.parametrize("temperature", [0.7, 1.6])
def test_same_tokens_stay(top_k: int, top_p: float, min_p: float, temperature: float) -> None:
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.3), TemperatureLogitsWarper(temperature)])
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        processors.append(TopPLogitsWarper(top_p))
    if min_p:
        processors.append(MinPLogitsWarper(min_p))
    for seed in range(5):
        logits = np.random.default_rng(seed).normal(scale=2, size=3000).astype(np.float32)
        scores = processors(torch.tensor([HISTORY]), torch.from_numpy(logits[None].copy()).double())[0]
        row = logits.copy()
        Penalties(1.3, 0.0, 0.0).apply(row, *TokenCounts(3000).of(HISTORY, 2))
        ids, weights = keep(row, Filters(temperature, top_k, top_p, min_p))
        ids = np.arange(3000) if ids is None else ids
        assert ids.tolist() == torch.isfinite(scores).nonzero()[:, 0].tolist()
        expected = torch.softmax(scores, 0).numpy()[ids]
        # Weights are multiples of 2**-34 of the top token's: 3e-11 of it may be missing or too much.
        np.testing.assert_allclose(weights / weights.sum(), expected, rtol=1e-5, atol=3e-11)

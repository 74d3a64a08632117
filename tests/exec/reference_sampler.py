"""The sampler once more, the plain way: Python floats, whole sorts, nothing kept. Shares no code with octavo.exec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.params import SamplingParams


@dataclass
class Expected:
    """token: the answer. kept: the tokens with a chance, probability by id. margin: the smallest distance from a
    decision to its threshold; below about 1e-6 the float32 sampler may rightly decide otherwise."""

    token: int
    kept: dict[int, float]
    margin: float


def constrained(
    logits: Sequence[float],
    tokens: Sequence[int],
    prompt_len: int,
    params: SamplingParams,
    eos_ids: Sequence[int] = (),
    bad_words: Sequence[Sequence[int]] = (),
) -> list[float]:
    row = [float(x) for x in logits]
    output = list(tokens[prompt_len:])
    for i in range(len(row)):
        if i in tokens:
            row[i] = row[i] / params.repetition_penalty if row[i] > 0 else row[i] * params.repetition_penalty
        if i in output:
            row[i] -= params.presence_penalty + params.frequency_penalty * output.count(i)
    row = [float(np.float32(x)) for x in row]  # logits are float32 after the penalties and after the bias
    for i, bias in params.logit_bias.items():
        row[i] = float(np.float32(row[i]) + np.float32(bias))
    for word in bad_words:
        begun = list(word[:-1])
        if output[len(output) - len(begun) :] == begun and len(output) >= len(begun):
            row[word[-1]] = -math.inf
    if len(output) < params.min_tokens:
        for i in [*params.stop_token_ids, *([] if params.ignore_eos else eos_ids)]:
            row[i] = -math.inf
    return row


def expect(row: Sequence[float], params: SamplingParams, uniform: float) -> Expected:
    """From constrained logits."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if params.temperature == 0:
        return Expected(order[0], {order[0]: 1.0}, 1.0)
    weights = [math.exp(max((x - row[order[0]]) / params.temperature, -1e4)) for x in row]
    margin = 1.0
    kept = order[: params.top_k] if params.top_k > 0 else order
    total = math.fsum(weights[i] for i in kept)
    cumulative, passed = 0.0, 0
    for i in kept:
        cumulative += weights[i]
        passed += 1
        if params.top_p < 1:
            margin = min(margin, abs(cumulative / total - params.top_p))
            if cumulative >= params.top_p * total:
                break
    kept = kept[:passed]
    if params.min_p > 0:
        margin = min([margin, *(abs(weights[i] - params.min_p) for i in kept[1:])])
        kept = [i for i in kept if weights[i] >= params.min_p]
    kept.sort()
    total = math.fsum(weights[i] for i in kept)
    probabilities = {i: weights[i] / total for i in kept if weights[i] > 0}
    cumulative, token = 0.0, None
    for i, probability in probabilities.items():
        cumulative += probability
        margin = min(margin, abs(cumulative - uniform))
        if token is None and cumulative > uniform:
            token = i
    return Expected(i if token is None else token, probabilities, margin)

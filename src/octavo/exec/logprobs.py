"""Log-probabilities as the model gave them: before temperature, penalties and masks. Knows no sampling settings.

They are of the softmax over the ids below vocab_size, in nats. Every row is computed on its own and in a fixed order,
so equal logits give equal bits whatever else is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import InvalidRequest
from octavo.exec.selection import Row, largest, top_token

LEAST_LOGPROB = -9999.0  # stands for anything below it, -inf too, which JSON cannot carry


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token id and its log-probability in nats, finite and at most 0."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """What the model expected at one position. token, logprob: of the token that is there. top: the likeliest ones,
    descending, equals by ascending id; `token` is among them only if it is that likely."""

    token: int
    logprob: float
    top: tuple[TokenLogprob, ...]


def position_logprobs(row: Row, token: int, k: int) -> PositionLogprobs:
    """Of `token` and the `k` likeliest, from raw logits `row` [vocab_size]. RequestFailed where they hold a NaN."""
    peak = row[top_token(row)]
    with np.errstate(over="ignore"):  # logits further apart than float32 reaches: their probability is 0
        total = float(np.exp(row - peak).sum(dtype=np.float64))
    normaliser = float(peak) + math.log(total)

    def logprob(of: int) -> float:
        return max(min(float(row[of]) - normaliser, 0.0), LEAST_LOGPROB)

    top = tuple(TokenLogprob(likely, logprob(likely)) for likely in largest(row, k).tolist())
    return PositionLogprobs(token, logprob(token), top)


def prompt_logprobs(
    logits: NDArray[np.float32], next_tokens: Sequence[int], k: int, vocab_size: int
) -> list[PositionLogprobs]:
    """For each row of `logits` [m, >= vocab_size] the log-probability of the token that follows it in the prompt, and
    the `k` likeliest. InvalidRequest where a token has no logit."""
    for token in next_tokens:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"the prompt holds token {token}; ids go from 0 to {vocab_size - 1}", param="prompt")
    return [
        position_logprobs(np.ascontiguousarray(row[:vocab_size]), token, k)
        for row, token in zip(logits, next_tokens, strict=True)
    ]

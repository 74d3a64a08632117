"""Log-probabilities as the model gave them: before temperature, penalties and masks. Knows no sampling settings.

They are of the softmax over the ids below vocab_size, in nats. Every row is computed on its own and in a fixed order,
so equal logits give equal bits whatever else is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import InvalidRequest
from octavo.exec.faults import peak_fault
from octavo.ops.sampling import Expectation, Row, RowSampler

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


def position_logprobs(row: Row, token: int, expected: Expectation) -> PositionLogprobs:
    """Of `token` and of the likeliest ones; expected: of raw logits `row` [vocab_size]. RequestFailed where these hold
    a NaN or an infinity."""
    own, *top = token_logprobs(row, [(token, float(row[token])), *expected.top], expected)
    return PositionLogprobs(token, own.logprob, tuple(top))


def token_logprobs(row: Row, logits: Sequence[tuple[int, float]], expected: Expectation) -> tuple[TokenLogprob, ...]:
    """Likewise of tokens with these logits."""
    if not expected.total:
        raise peak_fault(row)
    normaliser = expected.peak + math.log(expected.total)
    return tuple(TokenLogprob(token, max(min(logit - normaliser, 0.0), LEAST_LOGPROB)) for token, logit in logits)


def prompt_logprobs(
    rows: Sequence[Row], next_tokens: Sequence[int], k: int, sampler: RowSampler
) -> list[PositionLogprobs]:
    """For each of `rows` [vocab_size] the log-probability of the token that follows it in the prompt, and the `k`
    likeliest. InvalidRequest where a token has no logit."""
    for row, token in zip(rows, next_tokens, strict=True):
        if not 0 <= token < len(row):
            raise InvalidRequest(f"the prompt holds token {token}; ids go from 0 to {len(row) - 1}", param="prompt")
    expectations = sampler.expect(rows, [k] * len(rows))
    return [position_logprobs(*each) for each in zip(rows, next_tokens, expectations, strict=True)]

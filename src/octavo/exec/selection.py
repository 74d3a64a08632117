"""Which tokens of one row stay (top_k, top_p, min_p) and which of them is drawn. Knows no requests and no history.

A row is a contiguous float32 array [V] of logits; a token id is a place in it. Wherever tokens are put in order, it is
by descending logit and then by ascending id, so no result depends on how a sort treats equals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.errors import RequestFailed

Row: TypeAlias = NDArray[np.float32]
Ids: TypeAlias = NDArray[np.int64]

GREEDY_TEMPERATURE = 1e-4  # at or below it 0.01 of logit is e**100 of probability: the top token, with no division
FLOAT32_MAX = float(np.finfo(np.float32).max)

_DEPTHS = (4.0, 8.0, 16.0, 32.0)  # nats below the peak to look for the mass of top_p, before taking all
_SPAN = 2048  # weights in one span of a draw: spans are summed first, then one of them is walked
_SIGN = np.uint32(1 << 31)
_LOW_WORD = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Filters:
    """What shapes a draw, applied in this order. top_k <= 0, top_p >= 1 and min_p <= 0 are off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @property
    def greedy(self) -> bool:
        """True where only the top token can be drawn."""
        return self.temperature <= GREEDY_TEMPERATURE or self.top_k == 1 or self.top_p <= 0 or self.min_p >= 1


def top_token(row: Row, known: int | None = None) -> int:
    """The id of the largest logit, the lowest id among equals. RequestFailed where that logit is not finite.

    known: `row.argmax()`, where somebody has it already."""
    # A NaN wins any argmax, so looking at the winner finds it wherever it is.
    token = int(row.argmax()) if known is None else known
    peak = float(row[token])
    if math.isnan(peak) or peak == math.inf:
        raise RequestFailed(f"the model computed {peak} as the logit of token {token}; its weights may be damaged")
    if peak == -math.inf:
        raise RequestFailed(f"all {len(row)} tokens are masked; loosen logit_bias, bad_words, min_tokens or stop ids")
    return token


def largest(row: Row, k: int) -> Ids:
    """The k largest, in order. k is cut to len(row)."""
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    place = max(len(row) - k, 0)
    least = np.partition(row, place)[place]
    return _ordered(row, np.flatnonzero(row >= least))[:k]


def draw(row: Row, filters: Filters, uniform: float) -> int:
    """The token at `uniform` in [0, 1) of the distribution that `filters` (not greedy) make of `row`: inverse CDF over
    the kept tokens in ascending order of id, summed in float64."""
    ids, weights = keep(row, filters)
    place = _locate(weights, uniform)
    return place if ids is None else int(ids[place])


def keep(row: Row, filters: Filters) -> tuple[Ids | None, Row]:
    """(ids, weights): the tokens that pass, by ascending id (None: all), and their float32 probabilities up to a
    common factor. The top token's weight is 1. Masked tokens weigh 0.

    top_k keeps exactly k; top_p the fewest whose probability, of what top_k left, is at least top_p; min_p those with
    at least min_p of the top token's probability.
    """
    peak = row.max()
    if 0 < filters.top_k < len(row):
        ids = largest(row, filters.top_k)
        weights = _weights(row[ids], peak, filters.temperature)
        mass = filters.top_p * float(weights.sum(dtype=np.float64))
    else:
        weights = _weights(row, peak, filters.temperature)
        if filters.top_p >= 1:
            if filters.min_p <= 0:
                return None, weights
            ids = np.flatnonzero(weights >= filters.min_p)
            return ids, weights[ids]
        mass = filters.top_p * float(weights.sum(dtype=np.float64))
        ids = _heaviest(row, weights, mass, filters.temperature)
        weights = weights[ids]
    if filters.top_p < 1:
        count = int(np.searchsorted(weights.cumsum(dtype=np.float64), mass)) + 1
        ids, weights = ids[:count], weights[:count]
    if filters.min_p > 0:
        enough = weights >= filters.min_p
        ids, weights = ids[enough], weights[enough]
    by_id = ids.argsort()
    return ids[by_id], weights[by_id]


def _weights(logits: Row, peak: np.float32, temperature: float) -> Row:
    # The peak is taken off before dividing: the largest exponent is 0, so nothing overflows at any temperature.
    # The bound keeps -inf (masked) over temperature at -inf.
    weights = logits - peak
    weights /= np.float32(min(temperature, FLOAT32_MAX))
    np.exp(weights, out=weights)
    return weights


def _heaviest(row: Row, weights: Row, mass: float, temperature: float) -> Ids:
    """Leading tokens, in order, that weigh at least `mass` together: sorting these alone is enough for top_p."""
    peak = row.max()
    for depth in _DEPTHS:
        ids = np.flatnonzero(row >= peak - np.float32(min(temperature * depth, FLOAT32_MAX)))
        if float(weights[ids].sum(dtype=np.float64)) >= mass:
            return _ordered(row, ids)
    return _ordered(row, np.arange(len(row)))


def _ordered(row: Row, ids: Ids) -> Ids:
    """`ids` by descending logit, then ascending id, through one sort of unique integers: (logit's bits, id).

    The bits of positive floats ascend with their value and those of negative ones descend; adding 0 unites both zeros.
    """
    bits = (row[ids] + np.float32(0)).view(np.uint32)
    descending = np.where(bits < _SIGN, bits ^ (_SIGN - np.uint32(1)), bits)
    keys = (descending.astype(np.uint64) << np.uint64(32)) | ids.astype(np.uint64)
    keys.sort()
    return (keys & _LOW_WORD).astype(np.int64)


def _locate(weights: Row, uniform: float) -> int:
    """The first place whose cumulative weight passes `uniform` of the total. Never a place that weighs 0."""
    if len(weights) <= _SPAN:
        cumulative = weights.cumsum(dtype=np.float64)
        return _passed(cumulative, uniform * float(cumulative[-1]))
    spans = np.add.reduceat(weights, np.arange(0, len(weights), _SPAN), dtype=np.float64).cumsum()
    target = uniform * float(spans[-1])
    span = _passed(spans, target)
    before = float(spans[span - 1]) if span else 0.0
    inside = weights[span * _SPAN : (span + 1) * _SPAN].cumsum(dtype=np.float64)
    return span * _SPAN + _passed(inside, target - before)


def _passed(cumulative: NDArray[np.float64], target: float) -> int:
    # Rounding may bring the target up to the very end, past which there is no place.
    return int(cumulative.searchsorted(min(target, math.nextafter(float(cumulative[-1]), 0.0)), side="right"))

"""`RowSampler` on numpy: which tokens of a row stay and which of them is drawn. The oracle of the native one.

Weights are multiples of 2**-34, so that their sums are exact in float64 and cannot depend on the order of addition;
see docs/decisions/0012-sampling.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.ops.sampling import Expectation, Filters, Ids, Row

Weights: TypeAlias = NDArray[np.float64]

LOG2E = 1.4426950408889634
LEAST_EXPONENT = np.float32(-64)  # a weight below 2**-35 is 0 anyway
# 2**x on [-0.5, 0.5], highest power first: relative error 2e-9 before rounding, 1.7 ulp in float32.
POLYNOMIAL = tuple(
    np.float32(float.fromhex(text))
    for text in ("0x1.41fbbcp-13", "0x1.5f3e54p-10", "0x1.3b2d4cp-7", "0x1.c6aee8p-5", "0x1.ebfbdcp-3", "0x1.62e43p-1")
)
GRAIN = 1.5 * 2.0**18  # adding and subtracting it rounds a float64 below 2**17 to a multiple of 2**-34

_DEPTHS = (4.0, 8.0, 16.0)  # nats below the peak to look for the mass of top_p, before taking all
_SPAN = 2048  # weights in one span of a draw: spans are summed first, then one of them is walked
_SIGN = np.uint32(1 << 31)
_LOW_WORD = np.uint64(0xFFFFFFFF)


class NumpyRowSampler:
    """See `octavo.ops.sampling.RowSampler`."""

    def draw(self, rows: Sequence[Row], filters: Sequence[Filters], uniforms: Sequence[float]) -> list[int]:
        return [draw(*one) if math.isfinite(one[0].max()) else -1 for one in zip(rows, filters, uniforms, strict=True)]

    def expect(self, rows: Sequence[Row], counts: Sequence[int]) -> list[Expectation]:
        return [expect(row, count) for row, count in zip(rows, counts, strict=True)]


def draw(row: Row, filters: Filters, uniform: float) -> int:
    """One row of `RowSampler.draw`, its largest logit being finite."""
    if filters.greedy:
        return int(row.argmax())
    ids, weights = keep(row, filters)
    place = _locate(weights, uniform)
    return place if ids is None else int(ids[place])


def expect(row: Row, count: int) -> Expectation:
    """One row of `RowSampler.expect`."""
    peak = row.max()
    if not math.isfinite(peak):
        return Expectation(0.0, 0.0, [])
    top = largest(row, count)
    total = float(weigh(row, peak, 1.0).sum())
    return Expectation(float(peak), total, list(zip(top.tolist(), row[top].tolist(), strict=True)))


def largest(row: Row, k: int) -> Ids:
    """The k largest, in order. k is cut to len(row)."""
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    place = max(len(row) - k, 0)
    least = np.partition(row, place)[place]
    return _ordered(row, np.flatnonzero(row >= least))[:k]


def keep(row: Row, filters: Filters) -> tuple[Ids | None, Weights]:
    """(ids, weights): the tokens that pass, by ascending id (None: all), and their probabilities up to a common
    factor. The top token's weight is 1. Masked tokens weigh 0.

    top_k keeps exactly k; top_p the fewest whose probability, of what top_k left, is at least top_p; min_p those with
    at least min_p of the top token's probability.
    """
    peak = row.max()
    if 0 < filters.top_k < len(row):
        ids = largest(row, filters.top_k)
        weights = weigh(row[ids], peak, filters.temperature)
        mass = filters.top_p * float(weights.sum())
    else:
        weights = weigh(row, peak, filters.temperature)
        if filters.top_p >= 1:
            if filters.min_p <= 0:
                return None, weights
            ids = np.flatnonzero(weights >= filters.min_p)
            return ids, weights[ids]
        mass = filters.top_p * float(weights.sum())
        ids = _heaviest(row, weights, mass, filters.temperature)
        weights = weights[ids]
    if filters.top_p < 1:
        count = int(np.searchsorted(weights.cumsum(), mass)) + 1
        ids, weights = ids[:count], weights[:count]
    if filters.min_p > 0:
        enough = weights >= filters.min_p
        ids, weights = ids[enough], weights[enough]
    by_id = ids.argsort()
    return ids[by_id], weights[by_id]


def weigh(logits: Row, peak: np.float32, temperature: float) -> Weights:
    """e**((logit - peak) / temperature), to about 2 ulp of float32, as a multiple of 2**-34.

    A fixed sequence of float32 operations, each rounded: the native sampler does the same ones. The peak is taken off
    before anything else, so nothing overflows at any temperature.
    """
    with np.errstate(over="ignore"):  # logits further apart than float32 reaches: that is a probability of 0
        exponents = logits - peak
        exponents *= np.float32(LOG2E / temperature)
    np.maximum(exponents, LEAST_EXPONENT, out=exponents)
    whole = np.rint(exponents)
    exponents -= whole
    powers = np.full_like(exponents, POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        powers *= exponents
        powers += coefficient
    powers *= exponents
    powers += np.float32(1)
    weights: Weights = np.ldexp(powers, whole.astype(np.int32)).astype(np.float64)
    weights += GRAIN
    weights -= GRAIN
    return weights


def _heaviest(row: Row, weights: Weights, mass: float, temperature: float) -> Ids:
    """Leading tokens, in order, that weigh at least `mass` together: sorting these alone is enough for top_p."""
    peak = row.max()
    for depth in _DEPTHS:
        ids = np.flatnonzero(row >= peak - np.float32(temperature * depth))
        if float(weights[ids].sum()) >= mass:
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


def _locate(weights: Weights, uniform: float) -> int:
    """The first place whose cumulative weight passes `uniform` of the total. Never a place that weighs 0."""
    if len(weights) <= _SPAN:
        cumulative = weights.cumsum()
        return _passed(cumulative, uniform * float(cumulative[-1]))
    spans = np.add.reduceat(weights, np.arange(0, len(weights), _SPAN)).cumsum()
    target = uniform * float(spans[-1])
    span = _passed(spans, target)
    before = float(spans[span - 1]) if span else 0.0
    inside = weights[span * _SPAN : (span + 1) * _SPAN].cumsum()
    return span * _SPAN + _passed(inside, target - before)


def _passed(cumulative: Weights, target: float) -> int:
    # Rounding may bring the target up to the very end, past which there is no place.
    return int(cumulative.searchsorted(min(target, math.nextafter(float(cumulative[-1]), 0.0)), side="right"))

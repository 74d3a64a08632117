"""Choosing tokens from rows of logits: the values, and the interface that backends implement. Computes nothing.

A row is a contiguous float32 array [V] of logits; a token id is a place in it. Wherever tokens are put in order, it is
by descending logit and then by ascending id. What every implementation must compute to the bit, and why it can, is in
docs/decisions/0012-sampling.md; the plain way to do so is `octavo.ops.numpy.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Row: TypeAlias = NDArray[np.float32]
Ids: TypeAlias = NDArray[np.int64]

GREEDY_TEMPERATURE = 1e-4  # at or below it 0.01 of logit is e**100 of probability: the top token, with no division


class Filters(NamedTuple):
    """What shapes a draw, applied in this order. top_k <= 0, top_p >= 1 and min_p <= 0 are off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @property
    def greedy(self) -> bool:
        """True where only the top token can be drawn."""
        return self.temperature <= GREEDY_TEMPERATURE or self.top_k == 1 or self.top_p <= 0 or self.min_p >= 1

    @property
    def open(self) -> bool:
        """True where nothing but the temperature shapes a draw: every token of the row can be drawn."""
        return self.top_k <= 0 and self.top_p >= 1 and self.min_p <= 0


class Expectation(NamedTuple):
    """What a row says of its likeliest tokens. peak: its largest logit; total: the sum over the row of
    e**(logit - peak); top: the largest logits, in order, as (token, logit). All 0 and empty where the peak is not
    finite."""

    peak: float
    total: float
    top: list[tuple[int, float]]


class RowSampler(Protocol):
    """Draws from many rows at once; a row's answer does not depend on the others."""

    def draw(self, rows: Sequence[Row], filters: Sequence[Filters], uniforms: Sequence[float]) -> list[int]:
        """For each row the token at its uniform in [0, 1) of the distribution that its filters make of it: inverse CDF
        over the kept tokens in ascending order of id. Greedy filters give the top token. -1 where the largest logit
        is not finite: the row is masked whole, or damaged."""
        ...

    def expect(self, rows: Sequence[Row], counts: Sequence[int]) -> list[Expectation]:
        """For each row its peak, its total and its `count` (>= 0) likeliest tokens."""
        ...

"""One vector of a prompt from the model's last states of its tokens, as these come in. Knows no batch and no text."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.errors import RequestFailed
from octavo.params import Pooling

Vector: TypeAlias = NDArray[np.float32]


class PromptPooler:
    """Takes the states of a prompt's positions in order, in any pieces; what it makes of them depends on them alone.

    "last" keeps that of the last token. "mean" adds all up, one after another in float64, so that no cutting into steps
    changes a bit of the sum.
    """

    __slots__ = ("_length", "_mean", "_sum", "next")

    def __init__(self, pooling: Pooling, length: int) -> None:
        """length: tokens of the prompt."""
        self._length = length
        self._mean = pooling == "mean"
        self._sum: NDArray[np.float64] | None = None
        self.next = 0 if self._mean else length - 1

    @property
    def wanted(self) -> range:
        """Positions whose states are still to come."""
        return range(self.next, self._length)

    def take(self, states: Vector) -> None:
        """states: [n, hidden], of positions `next` ... `next + n - 1`. RequestFailed where one holds a NaN or an
        infinity."""
        if not np.isfinite(states).all():
            raise RequestFailed(
                "the model computed a NaN or an infinity as a token's state; its weights may be damaged"
            )
        if self._sum is None:
            self._sum = np.zeros(states.shape[1], np.float64)
        for state in states:
            self._sum += state
        self.next += len(states)

    def vector(self) -> Vector | None:
        """float32 [hidden], of whatever length the model gave it; None before all positions are in."""
        if self._sum is None or self.next < self._length:
            return None
        return (self._sum / (self._length if self._mean else 1)).astype(np.float32)


def unit(vector: Vector) -> Vector:
    """The same direction with a Euclidean length of 1, by float64 arithmetic; zeros stay zeros."""
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return (vector / length).astype(np.float32) if length else vector

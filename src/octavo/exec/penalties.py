"""Penalties for tokens that a sequence already holds. Knows no sampling settings beyond the three penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.ops.sampling import Ids, Row

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Penalties:
    """repetition: logits > 0 are divided by it and others multiplied, for tokens of prompt and output. presence and
    frequency: taken off tokens of the output, once and for each time that they are there."""

    repetition: float
    presence: float
    frequency: float

    @property
    def off(self) -> bool:
        return self.repetition == 1 and self.presence == 0 and self.frequency == 0

    def apply(self, row: Row, ids: Ids, counts: NDArray[np.float64]) -> None:
        """Change `row` [V] in place. ids: distinct tokens of the sequence, counts: how often each is in its output."""
        logits = row[ids].astype(np.float64)
        logits = np.where(logits > 0, logits / self.repetition, logits * self.repetition)
        logits -= counts * self.frequency + (counts > 0) * self.presence
        row[ids] = np.minimum(logits, FLOAT32_MAX)  # a tiny repetition penalty must not make an infinite logit


class TokenCounts:
    """The distinct tokens of a sequence and how often its output has each: what `Penalties.apply` needs.

    Keeps what it counted last: tokens that continue it cost their own number only, anything else is counted anew. So
    the answer depends on the arguments alone, and a sequence that comes back after a preemption goes on.
    """

    __slots__ = ("_counted", "_counts", "_ids", "_places", "_prompt_len", "_vocab_size")

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._restart(0)

    def _restart(self, prompt_len: int) -> None:
        self._prompt_len = prompt_len
        self._counted: list[int] = []
        self._places: dict[int, int] = {}
        self._ids = np.empty(64, dtype=np.int64)
        self._counts = np.empty(64, dtype=np.float64)

    def of(self, tokens: Sequence[int], prompt_len: int) -> tuple[Ids, NDArray[np.float64]]:
        """(ids [n], counts [n]) of `tokens`, in order of first appearance. The next call may change these arrays."""
        # Comparing is about ten times cheaper than counting: the objects are mostly the same ones.
        if prompt_len != self._prompt_len or list(tokens[: len(self._counted)]) != self._counted:
            self._restart(prompt_len)
        for position in range(len(self._counted), len(tokens)):
            self._count(tokens[position], position >= prompt_len)
        self._counted.extend(tokens[len(self._counted) :])
        return self._ids[: len(self._places)], self._counts[: len(self._places)]

    def _count(self, token: int, in_output: bool) -> None:
        if not 0 <= token < self._vocab_size:
            return  # a prompt may hold ids that have no logit here, such as placeholders
        place = self._places.get(token)
        if place is None:
            place = self._places[token] = len(self._places)
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.empty_like(self._counts)])
            self._ids[place], self._counts[place] = token, 0
        self._counts[place] += in_output

"""Random numbers that depend on (seed, choice, position) alone. Knows nothing of tokens, logits or neighbours."""

from __future__ import annotations

import numpy as np

_WORD = (1 << 64) - 1
_OTHERS = 1 << 63
_DRAWS_PER_COUNTER = 4  # Philox4x64 yields four words for each value of its counter
_PAGE = 64  # positions drawn by one call, a multiple of the four: what makes a draw cost less than a microsecond


class Draws:
    """The uniform numbers of one choice of one request: `at(position)` in [0, 1), a multiple of 2**-53.

    Position p holds the p-th number of the Philox4x64-10 stream with key (seed, choice) and counter 0 (Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", 2011), which is `Generator(Philox(key=[seed, choice])).random()`
    in numpy. Being counter-based it needs no state to be kept: any position can be asked at any time, so a sequence
    that was preempted draws what it would have drawn.
    """

    __slots__ = ("_first", "_key", "_page")

    def __init__(self, seed: int, choice: int) -> None:
        self._key = np.array([seed & _WORD, choice & _WORD], dtype=np.uint64)
        self._first = -1
        self._page: list[float] = []

    def others(self) -> Draws:
        """Independent ones of the same choice: those of a choice that no request has."""
        return Draws(int(self._key[0]), int(self._key[1]) ^ _OTHERS)

    def at(self, position: int) -> float:
        """The uniform of `position` (>= 0)."""
        first = position - position % _PAGE
        if first != self._first:
            words = np.random.Philox(key=self._key, counter=first // _DRAWS_PER_COUNTER).random_raw(_PAGE)
            self._page = ((words >> np.uint64(11)) * 2.0**-53).tolist()
            self._first = first
        return self._page[position - first]

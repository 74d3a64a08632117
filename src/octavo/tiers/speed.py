"""How fast blocks go to each tier and come back, as measured, and whether that beats computing them. Knows no tier.

What is not known well yet counts as taking no time, so that it is tried. A tier that is slower than computing is passed
over, but for one key in TRY_KEYS, the same on its way down and back: by those it is measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

WEIGHT = 0.1  # of the newest transfer in the average
SURE_AFTER = 64  # transfers before an average counts
TRY_KEYS = 64  # keys, by their first byte, of which one goes through in any case


class _Average:
    """seconds: 0.0 until it is known well enough."""

    __slots__ = ("_seconds", "_seen")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._seen = 0

    @property
    def seconds(self) -> float:
        return self._seconds if self._seen >= SURE_AFTER else 0.0

    def see(self, seconds: float) -> None:
        self._seconds += (WEIGHT if self._seen else 1.0) * (seconds - self._seconds)
        self._seen += 1


class TransferSpeeds:
    """Of the tiers of these names, the nearest first. recompute_s: seconds in which a block is computed again; whoever
    measures it sets it; None: nothing is dearer.

    passed: lookups for which a tier was passed over. kept_out: blocks that were not spilled to it. Both by tier, and
    counted by whoever asks.
    """

    def __init__(self, tiers: Sequence[str]) -> None:
        self.recompute_s: float | None = None
        self.passed: Counter[str] = Counter()
        self.kept_out: Counter[str] = Counter()
        self._fetches = {tier: _Average() for tier in tiers}
        self._spills = {tier: _Average() for tier in tiers}

    @property
    def fetch_s(self) -> Mapping[str, float]:
        """Seconds to bring a block back, by tier."""
        return {tier: average.seconds for tier, average in self._fetches.items()}

    def fetched(self, tier: str, seconds: float) -> None:
        """A block came back, for which the step waited so long."""
        self._fetches[tier].see(seconds)

    def spilled(self, tier: str, seconds: float) -> None:
        """A block went down, for which the step waited so long."""
        self._spills[tier].see(seconds)

    def worth_fetching(self, tier: str, key: bytes) -> bool:
        """Whether to look in `tier` for the block."""
        return self._beats_computing(self._fetches[tier].seconds, key)

    def worth_spilling(self, tier: str, key: bytes) -> bool:
        """Whether to put the block into `tier`: whether both ways together, were it wanted once, are the sooner."""
        return self._beats_computing(self._spills[tier].seconds + self._fetches[tier].seconds, key)

    def _beats_computing(self, seconds: float, key: bytes) -> bool:
        return self.recompute_s is None or seconds < self.recompute_s or key[0] % TRY_KEYS == 0

"""How fast blocks come back from each tier, as measured, and whether that beats computing them. Knows no tier."""

from __future__ import annotations

from collections.abc import Mapping

WEIGHT = 0.1  # of the newest fetch in the average
SURE_AFTER = 64  # fetches before a tier is passed over
TRY_EVERY = 64  # lookups of a tier that is passed over, of which one is let through, to measure it again


class FetchSpeeds:
    """recompute_s: seconds in which a block is computed again; whoever measures it sets it; None: nothing is dearer."""

    def __init__(self) -> None:
        self.recompute_s: float | None = None
        self._seconds: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._passed: dict[str, int] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds a block, by tier; of tiers that are known well enough."""
        return {tier: seconds for tier, seconds in self._seconds.items() if self._seen[tier] >= SURE_AFTER}

    @property
    def passed(self) -> Mapping[str, int]:
        """Lookups for which a tier was passed over, because computing is sooner."""
        return self._passed

    def see(self, tier: str, seconds: float) -> None:
        """A block was fetched in so long."""
        before = self._seconds.get(tier, seconds)
        self._seconds[tier] = before + WEIGHT * (seconds - before)
        self._seen[tier] = self._seen.get(tier, 0) + 1

    def worth(self, tier: str) -> bool:
        """Whether to look in `tier` for one block."""
        if self.recompute_s is None or self._seen.get(tier, 0) < SURE_AFTER:
            return True
        if self._seconds[tier] < self.recompute_s:
            return True
        passed = self._passed[tier] = self._passed.get(tier, 0) + 1
        return passed % TRY_EVERY == 0

"""Figures about one tier, as values. Knows nothing of how they are used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier now, in blocks unless said; 0 <= used <= capacity. Counters only grow.

    block_bytes: of one block. stored: blocks that came in. hits, misses: lookups. fetched: blocks handed back.
    evictions: least recently used blocks that made room. dropped: blocks refused, as storage was behind, full of
    promised blocks, or resting after failures. failures: reads and writes that the system refused. corrupt: blocks
    that did not hold what they should. slow: times that a transfer was given up waiting for. retired: blocks found
    encrypted with a key that is not in use any more, and removed.
    """

    name: str
    block_bytes: int
    capacity: int
    used: int
    stored: int = 0
    hits: int = 0
    misses: int = 0
    fetched: int = 0
    evictions: int = 0
    dropped: int = 0
    failures: int = 0
    corrupt: int = 0
    slow: int = 0
    retired: int = 0


class Counters:
    """The counters of a TierStats while they grow."""

    __slots__ = (
        "corrupt",
        "dropped",
        "evictions",
        "failures",
        "fetched",
        "hits",
        "misses",
        "retired",
        "slow",
        "stored",
    )

    def __init__(self) -> None:
        self.stored = self.hits = self.misses = self.fetched = self.evictions = 0
        self.dropped = self.failures = self.corrupt = self.slow = self.retired = 0

    def freeze(self, name: str, block_bytes: int, capacity: int, used: int) -> TierStats:
        counts = {counter: getattr(self, counter) for counter in self.__slots__}
        return TierStats(name, block_bytes, capacity, used, **counts)

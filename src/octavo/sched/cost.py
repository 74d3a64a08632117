"""What it costs to have a preempted sequence back, from measured speeds. Arithmetic; knows no queue and no block.

Three ways back: compute again, fetch from host memory, fetch from disk. Two manners of giving way: be closed, after
which all that is evicted comes back one of these ways, or be cut back, which loses the tail alone, to be computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Manner = Literal["close", "cut"]
RECOMPUTE = "recompute"
CUT = "cut"


@dataclass(frozen=True, slots=True)
class Speeds:
    """prefill: tokens a second; None while unknown. fetch_s: seconds a block by the name of each tier that there is,
    the nearest first; 0.0 while unknown."""

    prefill: float | None = None
    fetch_s: Mapping[str, float] = field(default_factory=dict)

    def recompute_s(self, tokens: int) -> float:
        """Seconds to compute `tokens` of a prompt; 0.0 while unknown."""
        return tokens / self.prefill if self.prefill else 0.0

    def way_back(self, block_size: int) -> str:
        """The name of the cheapest tier for one block, or RECOMPUTE."""
        ways = {**self.fetch_s, RECOMPUTE: self.recompute_s(block_size)}
        return min(ways, key=lambda way: ways[way])

    def back_s(self, blocks: int, block_size: int) -> float:
        """Seconds to have `blocks` evicted blocks back, the cheapest way."""
        each = min((self.recompute_s(block_size), *self.fetch_s.values()))
        return blocks * each


def cheaper_manner(speeds: Speeds, computed: int, taken: int, *, kept: bool, block_size: int) -> Manner:
    """How a victim with `computed` tokens gives up `taken` blocks. kept: whether its blocks stay matchable once closed.

    Closed and kept, it loses what is taken, for eviction takes a beginning's end first, and that may come from a tier;
    its slot is free besides. Closed and not kept, it loses everything. Cut back, it computes what was taken.
    """
    tail = min(computed, taken * block_size)
    closing = speeds.back_s(taken, block_size) if kept else speeds.recompute_s(computed)
    cutting = speeds.recompute_s(tail)
    if speeds.prefill is None:  # nothing measured yet: the fewer tokens, the sooner
        closing, cutting = float(tail if kept else computed), float(tail)
    return "cut" if cutting < closing else "close"

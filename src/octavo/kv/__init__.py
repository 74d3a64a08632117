"""Paged key-value memory as a library: which block holds what. Knows ints and bytes; no arrays, no model, no policy."""

from __future__ import annotations

from octavo.kv.manager import KVCacheManager
from octavo.kv.misses import Miss
from octavo.kv.ops import Copy, Fetch, LowerTier, Op, Spill
from octavo.kv.snapshot import PoolSnapshot
from octavo.kv.stats import Accounting, KVStats, SequenceUsage

__all__ = [
    "Accounting",
    "Copy",
    "Fetch",
    "KVCacheManager",
    "KVStats",
    "LowerTier",
    "Miss",
    "Op",
    "PoolSnapshot",
    "SequenceUsage",
    "Spill",
]

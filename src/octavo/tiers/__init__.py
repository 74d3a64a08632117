"""Where blocks live that left the pool: host memory, a disk. Knows keys and bytes; no arrays, sequences, or policy."""

from __future__ import annotations

from octavo.tiers.directory import Purpose
from octavo.tiers.disk import DiskTier
from octavo.tiers.host import HostTier
from octavo.tiers.stack import TierStack
from octavo.tiers.stats import TierStats

__all__ = ["DiskTier", "HostTier", "Purpose", "TierStack", "TierStats"]

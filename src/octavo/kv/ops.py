"""What a step must do to blocks before its rows run, as plain values. Knows no device and no tier.

Order inside a step: every Spill, then every Copy, then every Fetch, then the rows' writes. Operations of one phase
may run in any order, or at once. Steps run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Spill:
    """Block `block` is about to be reused: offer its content to the lower tier under `key`, which may have it already.

    The phase is over when the content has left the block (or is staged): the next phases overwrite it. namespace: the
    one that the content was computed in, since a key does not tell: a tier can forget a tenant's blocks by it.
    """

    block: int
    key: bytes
    namespace: bytes = b""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the whole block `src` to `dst`: a sequence is about to write where others read."""

    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring the content stored under `key` from the lower tier into `block`. If that fails: `KVCacheManager.lost`."""

    key: bytes
    block: int


Op: TypeAlias = Spill | Copy | Fetch


class LowerTier(Protocol):
    """What the manager asks of the memory below the pool."""

    def contains(self, key: bytes) -> bool:
        """Whether `key` can be fetched. True is a promise for the step now being planned: whatever that step spills,
        the tier keeps `key` until the step's fetches have run."""
        ...

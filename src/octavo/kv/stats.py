"""Figures about the pool, as values. Knows nothing of how they are used."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.kv.pool import BlockPool
    from octavo.kv.sequence import SequenceState


class Counters:
    """What happened since the start; each only grows."""

    __slots__ = ("collisions", "copies", "evictions", "fetches", "hits", "lookups", "regrets", "spills")

    def __init__(self) -> None:
        self.lookups = self.hits = self.evictions = self.collisions = 0
        self.spills = self.copies = self.fetches = self.regrets = 0


@dataclass(frozen=True, slots=True)
class KVStats:
    """The pool at one moment: used + cached + free == num_blocks.

    used: blocks that a table or a running step refers to. cached: unused, but matchable until reused. free: the rest.
    pinned: of those used or cached, the ones not to be evicted. num_blocks: those still in use beyond the end of a pool
    that shrinks are counted.
    shared: blocks in the tables of two sequences or more. references: table rows and pins. sequences: open ones.
    tokens: slots of used blocks that hold a committed token, each counted once however many sequences share it.
    utilisation: tokens / slots of used blocks (1.0 when none is used); only a sequence's last block can waste.
    lookups: full blocks that `open` looked for. hits: blocks that it found in the pool; fetches: from the lower tier.
    evictions: cached blocks reused for something else. regrets: those of the last EVICTIONS_KEPT whose content was
    computed or fetched again. spills: those offered to the lower tier. copies: on write.
    key_collisions: equal keys with unequal tokens; anything but 0 means that the hash is broken.
    rows: entries in the tables of all sequences; rows / used is how often a block is shared on average.
    block_seconds: time of blocks that any table held, since the start.
    """

    num_blocks: int
    block_size: int
    used: int
    cached: int
    free: int
    pinned: int
    shared: int
    references: int
    sequences: int
    tokens: int
    utilisation: float
    lookups: int
    hits: int
    evictions: int
    spills: int
    copies: int
    fetches: int
    key_collisions: int
    regrets: int
    rows: int
    block_seconds: float


@dataclass(frozen=True, slots=True)
class SequenceUsage:
    """What one sequence has cost since it was opened. block_seconds: of its table rows, a block that n tables hold
    counted 1/n in each, so that the sum over all sequences is KVStats.block_seconds. copies: blocks that it copied on
    write. fetched: keys of blocks brought from the lower tier. opened: leading tokens that `open` or `fork` gave.
    committed: tokens that it has; the rest of them it computed."""

    block_seconds: float
    copies: int
    fetched: tuple[bytes, ...]
    opened: int
    committed: int


@dataclass(frozen=True, slots=True)
class Accounting:
    """clock: seconds, for block-seconds alone. on_close: told what a sequence cost as it is closed, while its keys can
    still be read."""

    clock: Callable[[], float] = time.monotonic
    on_close: Callable[[int, SequenceUsage], None] | None = None


def gather_stats(pool: BlockPool, sequences: Collection[SequenceState], block_size: int) -> KVStats:
    """The pool's figures, from scratch."""
    idle = sum(1 for block in pool.kept if pool.refs[block] == 1)  # pinned, and otherwise unused
    beyond = sum(1 for refs in pool.refs[pool.num_blocks :] if refs)
    num_blocks = pool.num_blocks + beyond
    used = num_blocks - pool.free.count - idle
    cached = idle + sum(1 for block in pool.index.values() if pool.refs[block] == 0)
    filled = _slots_filled(pool, sequences, block_size)
    counters = pool.counters
    return KVStats(
        num_blocks=num_blocks,
        block_size=block_size,
        used=used,
        cached=cached,
        free=pool.free.count + idle - cached,
        pinned=len(pool.kept),
        shared=sum(1 for refs, pins in zip(pool.refs, pool.pins, strict=True) if refs - pins > 1),
        references=sum(pool.refs),
        sequences=len(sequences),
        tokens=filled,
        utilisation=filled / (used * block_size) if used else 1.0,
        lookups=counters.lookups,
        hits=counters.hits,
        evictions=counters.evictions,
        spills=counters.spills,
        copies=counters.copies,
        fetches=counters.fetches,
        key_collisions=counters.collisions,
        regrets=counters.regrets,
        rows=sum(pool.refs) - sum(pool.pins),
        block_seconds=pool.meter.total,
    )


def _slots_filled(pool: BlockPool, sequences: Collection[SequenceState], block_size: int) -> int:
    """Slots with a committed token, over all blocks in tables: all but those at the ends of sequences are full."""
    in_tables = sum(1 for refs, pins in zip(pool.refs, pool.pins, strict=True) if refs > pins)
    best: dict[int, int] = {}  # blocks at an end: the fullest view of them
    for state in sequences:
        whole, rest = divmod(state.committed, block_size)
        for table in state.tables:
            for number, block in enumerate(table[whole:]):
                filled = rest if number == 0 else 0
                best[block] = max(best.get(block, 0), filled)
    shared = {block for block in best if pool.refs[block] - pool.pins[block] > 1}
    if shared:
        for state in sequences:
            for table in state.tables:
                for block in shared.intersection(table[: state.committed // block_size]):
                    best[block] = block_size
    return in_tables * block_size - sum(block_size - filled for filled in best.values())

"""The whole pool at one moment, copied column by column, for whoever wants to look at it in peace. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.kv.pool import BlockPool
    from octavo.kv.sequence import SequenceState


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Columns have an entry a block. refs: table rows and pins; pins: those of them that are pins. keys: what was
    published, None for blocks that cannot be matched. since: by the manager's clock, when the block was last taken,
    shared or let go (0.0 where it never was). kept: blocks that are not evicted, since somebody asked for that. tables:
    by sequence, a block table for each layer group, -1 where a window let go. committed: by sequence, in tokens."""

    block_size: int
    refs: tuple[int, ...]
    pins: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    since: tuple[float, ...]
    kept: frozenset[int]
    tables: Mapping[int, tuple[tuple[int, ...], ...]]
    committed: Mapping[int, int]


def take_snapshot(pool: BlockPool, sequences: Mapping[int, SequenceState], block_size: int) -> PoolSnapshot:
    """Copies alone, so that whoever runs the steps is kept for as short as can be."""
    return PoolSnapshot(
        block_size,
        refs=tuple(pool.refs),
        pins=tuple(pool.pins),
        keys=tuple(pool.keys),
        since=pool.meter.changed(len(pool.refs)),
        kept=frozenset(pool.kept),
        tables={seq: tuple(map(tuple, state.tables)) for seq, state in sequences.items()},
        committed={seq: state.committed for seq, state in sequences.items()},
    )

"""Block tables of the running sequences as one array, kept up to date by deltas. Knows no tokens and no steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.kv import KVCacheManager
from octavo.sched.step import Row

Int32 = npt.NDArray[np.int32]


class BlockTables:
    """An array [groups, max_seqs, max_blocks], one row a slot.

    A running sequence's table changes only at its end (appended blocks, a copied last block) and where a window lets
    go of blocks that are never read again, so a row rewrites its table from the first block that it writes. A slot
    whose sequence is new, was reopened or was forked is filled anew.
    """

    def __init__(self, kv: KVCacheManager, max_seqs: int, max_blocks: int) -> None:
        self._kv = kv
        self._table: Int32 = np.full((len(kv.windows), max_seqs, max_blocks), -1, dtype=np.int32)
        self._owner: list[tuple[int, int] | None] = [None] * max_seqs  # (sequence, position that it reaches)

    @property
    def columns(self) -> int:
        """Blocks of the longest sequence."""
        return int(self._table.shape[2])

    def forget(self, sequences: Sequence[int]) -> None:
        """The sequences were closed: whatever their slots hold is stale."""
        gone = set(sequences)
        if gone:
            self._owner = [None if owner is not None and owner[0] in gone else owner for owner in self._owner]

    def update(self, row: Row, copied: bool) -> None:
        """Bring the row's slot up to date with the manager's table. copied: this step copies blocks for somebody."""
        size, start = self._kv.block_size, row.start
        end = start + row.count
        if self._owner[row.slot] != (row.seq, start):
            first = 0
        elif copied or start % size == 0 or end > start - start % size + size:
            first = start // size
        else:  # it stays in a block that it has begun
            self._owner[row.slot] = (row.seq, end)
            return
        for group in range(len(self._table)):
            ids = self._kv.block_ids(row.seq, group)
            self._table[group, row.slot, first : len(ids)] = ids[first:]
        self._owner[row.slot] = (row.seq, end)

    def put(self, slot: int, number: int, blocks: Sequence[int]) -> None:
        """One more block of each group, for a slot whose `reach` will be told."""
        self._table[:, slot, number] = blocks

    def reach(self, slot: int, seq: int, position: int) -> None:
        """The slot's row is right for `seq` up to `position`."""
        self._owner[slot] = (seq, position)

    def gather(self, slots: Sequence[int], columns: int) -> Int32:
        """A copy [groups, len(slots), columns], contiguous."""
        return np.ascontiguousarray(self._table[:, slots, :columns])

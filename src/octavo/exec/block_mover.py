"""Runs a step's block operations between a device's pool and the tiers below it. Decides nothing: does as told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from octavo.kv import Copy, Fetch, Op, Spill
from octavo.tiers import TierStack

SAVE_S = 60.0  # what saving the cache may take in all


class BlockStore(Protocol):
    """The device's side of block operations."""

    def copy_block(self, src: int, dst: int) -> None:
        """Copy every layer's keys and values of one block onto another."""
        ...

    def read_block(self, block: int) -> bytes:
        """The bytes of one block: a copy, or a view that lasts until the next operation."""
        ...

    def discard(self, first: int) -> None:
        """Give the memory of blocks from `first` on back to the system."""
        ...

    def write_block(self, block: int, data: bytes) -> None:
        """Bytes that `read_block` gave, into any block."""
        ...


class BlockMover:
    """Spill, then copy, then fetch, in the order that the block manager's pins assume. tiers: None when there are none.

    A Spill is over when the tiers have a copy of the block: what they write, they write beside the step.
    """

    def __init__(self, blocks: BlockStore, tiers: TierStack | None = None) -> None:
        self._blocks = blocks
        self.tiers = tiers

    def run(self, ops: Sequence[Op]) -> list[int]:
        """All operations of a step. The blocks whose Fetch failed: for `KVCacheManager.lost`."""
        if self.tiers is None:
            for op in ops:
                self._copy(op)
            return []
        self.tiers.begin_step()
        try:
            for op in ops:
                if isinstance(op, Spill):
                    self._spill(op, self.tiers)
                elif isinstance(op, Copy):
                    self._copy(op)
            return self._fetch([op for op in ops if isinstance(op, Fetch)], self.tiers)
        finally:
            self.tiers.end_step()

    def discard(self, first: int) -> None:
        """Nobody holds blocks from `first` on: the device may let go of their memory."""
        self._blocks.discard(first)

    def save(self, spills: Sequence[Spill]) -> None:
        """Copy blocks, the least recently used first, to where they outlive the process, if there is such a place."""
        if self.tiers is None or not self.tiers.keeps:
            return
        deadline = time.monotonic() + SAVE_S
        for op in spills:
            if self.tiers.wants(op.key):
                self.tiers.save(op.key, op.namespace, self._blocks.read_block(op.block), deadline)

    def _copy(self, op: Op) -> None:
        if not isinstance(op, Copy):
            raise TypeError(f"{op} needs a lower tier and this executor has none")
        self._blocks.copy_block(op.src, op.dst)

    def _spill(self, op: Spill, tiers: TierStack) -> None:
        if tiers.wants(op.key):
            tiers.put(op.key, op.namespace, self._blocks.read_block(op.block))

    def _fetch(self, ops: Sequence[Fetch], tiers: TierStack) -> list[int]:
        lost = []
        for op, data in zip(ops, tiers.fetch([op.key for op in ops]), strict=True):
            if data is None:
                lost.append(op.block)
            else:
                self._blocks.write_block(op.block, data)
        return lost

"""The pool as it grows and shrinks while requests run. Moves no block and ends no request."""

from __future__ import annotations

from octavo.engine.memory import check_growth
from octavo.errors import InvalidRequest
from octavo.exec.block_mover import BlockMover
from octavo.kv import KVCacheManager
from octavo.sched.scheduler import Scheduler


class PoolSize:
    """Changes the number of blocks, and gives memory back once nobody holds a block beyond the end. max_blocks: that
    there is address space for. block_bytes: of one."""

    def __init__(
        self, kv: KVCacheManager, scheduler: Scheduler, mover: BlockMover, max_blocks: int, block_bytes: int
    ) -> None:
        self._kv = kv
        self._scheduler = scheduler
        self._mover = mover
        self._max_blocks = max_blocks
        self._block_bytes = block_bytes
        self.shrinking = False

    def change(self, num_blocks: int) -> None:
        """See `Engine.resize`."""
        pinned = self._kv.num_blocks - self._kv.capacity
        least = max(1, self._scheduler.largest_need + pinned, pinned * 2)
        if type(num_blocks) is not int or not least <= num_blocks <= self._max_blocks:
            raise InvalidRequest(
                f"num_blocks must be from {least} (what a live request may need at its longest, and pins)"
                f" to {self._max_blocks} (what address space was reserved for), not {num_blocks!r}",
                param="num_blocks",
            )
        check_growth((num_blocks - self._kv.num_blocks) * self._block_bytes)
        shrinks = num_blocks < self._kv.num_blocks
        self._kv.resize(num_blocks)
        self.shrinking |= shrinks

    def settle(self) -> None:
        """After a step: give back what is beyond the end, if nobody holds any of it."""
        if self.shrinking and self._kv.span <= self._kv.num_blocks:
            self._mover.discard(self._kv.num_blocks)
            self.shrinking = False

"""The operations of the step being planned, and the pins of those under way. Knows no sequences and no tokens."""

from __future__ import annotations

from collections import deque

from octavo.kv.ops import Copy, Fetch, Op, Spill
from octavo.kv.pool import BlockPool
from octavo.kv.stats import Counters


class StepLedger:
    """Collects a step's operations so that any order inside a phase gives the same memory.

    Three rules see to that. Whatever a step fills (Copy.dst, Fetch.block) or copies from (Copy.src) is pinned until the
    step ends, so no second operation of the step can fill it, even when its sequence is closed meanwhile. A copy of a
    block that this very step fills is taken from where that block gets its content. A Spill reads a published block,
    and those were complete before the step began.
    """

    __slots__ = ("_copies", "_counters", "_fetches", "_filled", "_pinned", "_running", "_spills", "has_tier")

    def __init__(self, counters: Counters, has_tier: bool) -> None:
        self._counters = counters
        self.has_tier = has_tier
        self._spills: list[Op] = []
        self._copies: list[Copy] = []
        self._fetches: list[Op] = []
        self._filled: dict[int, Copy | Fetch] = {}
        self._pinned: list[int] = []
        self._running: deque[tuple[list[int], list[Copy]]] = deque()  # pins and copies of each step under way

    def spill(self, block: int, key: bytes, namespace: bytes) -> None:
        """A published block is being reused, or leaves the pool for good; its memory stays while this is not `idle`."""
        if self.has_tier:
            self._spills.append(Spill(block, key, namespace))
            self._counters.spills += 1

    def copy(self, pool: BlockPool, src: int, dst: int) -> bytes | None:
        """Fill the new block `dst` with what `src` holds once the step's operations have run. None if by a Copy, else
        the key of the Fetch."""
        origin = self.origin(src)
        if isinstance(origin, Fetch):
            self.fetch(pool, origin.key, dst)
            return origin.key
        if isinstance(origin, Copy):
            src = origin.src
        operation = Copy(src, dst)
        self._copies.append(operation)
        self._filled[dst] = operation
        self.pin_copy_source(pool, src)
        self.pin_copy_target(pool, dst)
        self._counters.copies += 1
        return None

    def fetch(self, pool: BlockPool, key: bytes, block: int) -> None:
        """Fill the new block `block` from the lower tier."""
        operation = Fetch(key, block)
        self._fetches.append(operation)
        self._filled[block] = operation
        self.pin_fetch_target(pool, block)
        self._counters.fetches += 1

    def origin(self, block: int) -> Copy | Fetch | None:
        """The operation of the step being planned that fills `block`, if one does."""
        return self._filled.get(block)

    def pin_copy_source(self, pool: BlockPool, block: int) -> None:
        """Else another operation of this phase could fill the block before it is read."""
        self._pin(pool, block)

    def pin_copy_target(self, pool: BlockPool, block: int) -> None:
        """Else the block could get a second owner and this operation overwrite what that one fetched or copied."""
        self._pin(pool, block)

    def pin_fetch_target(self, pool: BlockPool, block: int) -> None:
        """Else the block could be evicted, its Spill reading it before the Fetch has filled it."""
        self._pin(pool, block)

    def _pin(self, pool: BlockPool, block: int) -> None:
        pool.pin(block)
        self._pinned.append(block)

    def take(self) -> tuple[Op, ...]:
        """Hand out the step's operations in order of phase; what is added from now on belongs to the next step."""
        operations = (*self._spills, *self._copies, *self._fetches)
        self._running.append((self._pinned, self._copies))
        self._pinned, self._copies = [], []
        self._filled.clear()
        self._spills.clear()
        self._fetches.clear()
        return operations

    def end(self, pool: BlockPool) -> None:
        """The oldest step whose operations were taken has run: drop its pins. Nothing when none is under way."""
        if self._running:
            for block in self._running.popleft()[0]:
                pool.unpin(block)

    @property
    def idle(self) -> bool:
        """Whether no step is under way, and none is planned that spills: those alone read blocks without a pin."""
        return not self._running and not self._spills

    def pinned(self) -> list[int]:
        """Every pin, once for each time it was set; for checks."""
        return [*self._pinned, *(block for pinned, _ in self._running for block in pinned)]

    def made_from(self, block: int) -> set[int]:
        """`block` and whatever a step that has not ended copies from it, straight or by way of other copies. Until
        those steps end their pins keep the copies from being anything else."""
        made = {block}
        for copies in (*(copies for _, copies in self._running), self._copies):
            made.update(copy.dst for copy in copies if copy.src in made)
        return made

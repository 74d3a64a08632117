"""Blocks: who refers to them, which are free, which content each published one holds. Knows no sequences, no steps."""

from __future__ import annotations

from collections.abc import Callable

from octavo.kv.free_list import FreeList
from octavo.kv.keys import Prefix, same_prefix
from octavo.kv.meter import Meter
from octavo.kv.stats import Counters


class BlockPool:
    """`num_blocks` equal blocks with reference counts and an index of published contents.

    refs[b] counts table rows and pins; b is free exactly when it is 0. pins[b]: how many of them are pins.
    keys[b], prefixes[b]: what b was published as, or None. A published block is never written, and stays matchable
    while free, until `allocate` takes it; then `on_evict(block, key, namespace)` is called. meter: what table rows owe.
    """

    __slots__ = ("_on_evict", "counters", "free", "index", "keys", "meter", "num_blocks", "pins", "prefixes", "refs")

    def __init__(
        self, num_blocks: int, counters: Counters, on_evict: Callable[[int, bytes, bytes], None], meter: Meter
    ) -> None:
        self.num_blocks = num_blocks
        self.counters = counters
        self.free = FreeList(num_blocks)
        self.refs = [0] * num_blocks
        self.pins = [0] * num_blocks
        self.keys: list[bytes | None] = [None] * num_blocks
        self.prefixes: list[Prefix | None] = [None] * num_blocks
        self.index: dict[bytes, int] = {}
        self._on_evict = on_evict
        self.meter = meter

    def allocate(self) -> int:
        """A block in one table row, unpublished; its content is arbitrary. The caller knows that one is free. That row
        owes nothing yet."""
        block = self.free.pop()
        key, prefix = self.keys[block], self.prefixes[block]
        if key is not None and prefix is not None:
            self.unpublish(block)
            self.counters.evictions += 1
            self._on_evict(block, key, prefix.namespace)
        self.refs[block] = 1
        self.meter.take(block)
        return block

    def retain(self, block: int) -> float:
        """One more table row; a free block leaves the free list. The price: the row owes minus that."""
        rows = self.refs[block] - self.pins[block]
        if self.refs[block] == 0:
            self.free.remove(block)
        self.refs[block] += 1
        if rows:
            return self.meter.settle(block, rows)
        self.meter.take(block)
        return 0.0

    def release(self, block: int) -> float:
        """One table row less; without any, the block is free: to reuse last if it can be matched, else first. The
        price: the row owes that."""
        rows = self.refs[block] - self.pins[block]
        price = self.meter.settle(block, rows) if rows > 1 else self.meter.drop(block)
        self._dereference(block)
        return price

    def pin(self, block: int) -> None:
        """Keep a block that somebody refers to from being reused."""
        self.refs[block] += 1
        self.pins[block] += 1

    def unpin(self, block: int) -> None:
        """Undo one `pin`."""
        self.pins[block] -= 1
        self._dereference(block)

    def is_writable(self, block: int) -> bool:
        """Whether the one sequence that has the block may write to it: nobody else reads it or can find it."""
        return self.refs[block] - self.pins[block] == 1 and self.keys[block] is None

    def find(self, key: bytes, prefix: Prefix) -> int | None:
        """The block published under `key`, None if there is none, -1 if its tokens are others than `prefix`'s."""
        block = self.index.get(key)
        if block is None:
            return None
        known = self.prefixes[block]
        if known is prefix or (known is not None and self.verify(known, prefix)):
            return block
        self.counters.collisions += 1
        return -1

    def verify(self, known: Prefix, asked: Prefix) -> bool:
        """The token check on a hit."""
        return same_prefix(known, asked)

    def publish(self, block: int, key: bytes, prefix: Prefix) -> None:
        """Make `block` matchable. The caller knows that no live block has this key."""
        self.index[key] = block
        self.keys[block] = key
        self.prefixes[block] = prefix

    def unpublish(self, block: int) -> None:
        """Make a published block unmatchable."""
        key = self.keys[block]
        if key is not None:
            del self.index[key]
        self.keys[block] = self.prefixes[block] = None

    def published(self) -> list[tuple[bytes, int, Prefix]]:
        """(key, block, prefix) of every block that can be matched."""
        entries = ((key, block, self.prefixes[block]) for key, block in self.index.items())
        return [(key, block, prefix) for key, block, prefix in entries if prefix is not None]

    def _dereference(self, block: int) -> None:
        self.refs[block] -= 1
        if self.refs[block] == 0:
            if self.keys[block] is None:
                self.free.push_head(block)
            else:
                self.free.push_tail(block)

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
    wanted[key]: how many ask that the block of `key` be kept; kept: the blocks pinned for that. num_blocks: blocks that
    are given out; the lists are longer while blocks beyond are still in use (`resize`).
    """

    __slots__ = (
        "_on_evict",
        "counters",
        "free",
        "index",
        "kept",
        "keys",
        "meter",
        "num_blocks",
        "pins",
        "prefixes",
        "refs",
        "wanted",
    )

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
        self.wanted: dict[bytes, int] = {}
        self.kept: set[int] = set()
        self._on_evict = on_evict
        self.meter = meter

    def allocate(self) -> int:
        """A block in one table row, unpublished; its content is arbitrary. The caller knows that one is free. That row
        owes nothing yet."""
        block = self.free.pop()
        if self.keys[block] is not None:
            self._evict(block)
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
        if key in self.wanted:
            self._keep(block)

    def unpublish(self, block: int) -> None:
        """Make a published block unmatchable."""
        key = self.keys[block]
        if key is not None:
            del self.index[key]
        self.keys[block] = self.prefixes[block] = None
        self._let_go(block)

    def forget(self, namespace: bytes) -> int:
        """Make all blocks of `namespace` unmatchable; how many there were."""
        found = [block for _, block, prefix in self.published() if prefix.namespace == namespace]
        for block in found:
            self.unpublish(block)
        return len(found)

    def want(self, key: bytes) -> None:
        """The block of `key` is not to be evicted, from the moment it is published."""
        self.wanted[key] = self.wanted.get(key, 0) + 1
        block = self.index.get(key)
        if block is not None:
            self._keep(block)

    def unwant(self, key: bytes) -> None:
        """Undo one `want`."""
        self.wanted[key] -= 1
        if not self.wanted[key]:
            del self.wanted[key]
            if key in self.index:
                self._let_go(self.index[key])

    def resize(self, num_blocks: int) -> None:
        """Give out so many blocks. Those beyond are evicted as soon as nobody refers to them, and then are no more."""
        leaving = [block for block in self.free if block >= num_blocks]
        for block in leaving:
            self.free.remove(block)
        self.num_blocks = num_blocks
        more = num_blocks - len(self.refs)
        if more > 0:
            for column in (self.refs, self.pins):
                column.extend([0] * more)
            self.keys.extend([None] * more)
            self.prefixes.extend([None] * more)
            self.meter.grow(num_blocks)
        old, self.free = self.free, FreeList(len(self.refs), full=False)
        known = set(old)
        for block in range(num_blocks - 1, -1, -1):
            if self.refs[block] == 0 and block not in known:
                self.free.push_head(block)
        for block in old:
            self.free.push_tail(block)
        for block in leaving:
            self._leave(block)
        for block in [block for block in self.kept if block >= num_blocks]:
            self._let_go(block)
        for key in self.wanted:
            if key in self.index:
                self._keep(self.index[key])

    def trim(self) -> None:
        """Forget the blocks at the end that are no more. The caller knows that no step under way may touch them."""
        while len(self.refs) > self.num_blocks and self.refs[-1] == 0:
            for column in (self.refs, self.pins, self.keys, self.prefixes):
                column.pop()

    def published(self) -> list[tuple[bytes, int, Prefix]]:
        """(key, block, prefix) of every block that can be matched."""
        entries = ((key, block, self.prefixes[block]) for key, block in self.index.items())
        return [(key, block, prefix) for key, block, prefix in entries if prefix is not None]

    def by_age(self) -> list[tuple[bytes, int, Prefix]]:
        """`published`, the least recently used first and those in use last."""
        age = {block: place for place, block in enumerate(self.free)}
        return sorted(self.published(), key=lambda entry: age.get(entry[1], len(age)))

    def _dereference(self, block: int) -> None:
        self.refs[block] -= 1
        if self.refs[block] == 0:
            if block >= self.num_blocks:
                self._leave(block)
            elif self.keys[block] is None:
                self.free.push_head(block)
            else:
                self.free.push_tail(block)

    def _evict(self, block: int) -> None:
        key, prefix = self.keys[block], self.prefixes[block]
        assert key is not None
        assert prefix is not None
        self.unpublish(block)
        self.counters.evictions += 1
        self._on_evict(block, key, prefix.namespace)

    def _leave(self, block: int) -> None:
        """Nobody refers to a block beyond the end; `on_evict` may pin it for as long as it still must read it."""
        if self.keys[block] is not None:
            self._evict(block)

    def _keep(self, block: int) -> None:
        if block in self.kept or block >= self.num_blocks:
            return
        if self.refs[block] == 0:
            self.free.remove(block)
        self.pin(block)
        self.kept.add(block)

    def _let_go(self, block: int) -> None:
        if block in self.kept:
            self.kept.remove(block)
            self.unpin(block)

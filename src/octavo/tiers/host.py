"""Blocks in host memory: one mapped arena of equal slots. Knows no files; forgets everything with its process."""

from __future__ import annotations

import mmap

from octavo.errors import TierError
from octavo.tiers.slots import Entry, SlotTable, namespace_tag
from octavo.tiers.stats import Counters, TierStats


class HostTier:
    """At most `budget` bytes of blocks of `block_bytes` bytes, the least recently used out first. One thread at a time.

    The arena is mapped whole and takes memory as slots are first used. TierError when not one block fits.
    """

    def __init__(self, budget: int, block_bytes: int) -> None:
        slots = budget // block_bytes
        if slots < 1:
            raise TierError(f"{budget} bytes of host memory hold no block: one takes {block_bytes}")
        self.block_bytes = block_bytes
        self._arena = mmap.mmap(-1, slots * block_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._table = SlotTable(slots)
        self._counters = Counters()

    def has(self, key: bytes) -> bool:
        """Whether `key` is here; it counts as used."""
        entry = self._table.find(key)
        if entry is None:
            return False
        self._table.touch(entry)
        return True

    def holds(self, key: bytes) -> bool:
        """Whether `key` is here; counts as nothing."""
        return self._table.find(key) is not None

    def lookup(self, key: bytes) -> Entry | None:
        """`has`, counted in the figures; the entry found is pinned until `unpin`."""
        entry = self._table.find(key)
        if entry is None:
            self._counters.misses += 1
            return None
        self._counters.hits += 1
        self._table.pin(entry)
        return entry

    def unpin(self, entry: Entry) -> None:
        """Undo one `lookup`."""
        self._table.unpin(entry)

    def put(self, key: bytes, namespace: bytes, data: bytes) -> bool:
        """Copy a block in, when there is a slot for it; the caller may reuse `data` at once."""
        if self.has(key):
            return True
        taken = self._table.take(key, namespace_tag(namespace))
        if taken is None:
            self._counters.dropped += 1
            return False
        entry, evicted = taken
        self._counters.evictions += evicted is not None
        self._arena[self._place(entry)] = data
        self._counters.stored += 1
        return True

    def get(self, key: bytes) -> bytes | None:
        """The block's bytes; None when it is not here."""
        entry = self._table.find(key)
        if entry is None:
            return None
        self._table.touch(entry)
        self._counters.fetched += 1
        return self._arena[self._place(entry)]

    def wipe(self, namespace: bytes) -> int:
        """Forget the blocks of `namespace` and overwrite them with zeros; how many there were."""
        keys = self._table.keys_of(namespace_tag(namespace))
        for key in keys:
            entry = self._table.find(key)
            assert entry is not None
            self._table.remove(entry)
            self._arena[self._place(entry)] = bytes(self.block_bytes)
            self._table.free(entry.slot)
        return len(keys)

    def stats(self) -> TierStats:
        return self._counters.freeze("host", self.block_bytes, self._table.num_slots, self._table.used)

    def check(self) -> None:
        """AssertionError when the books do not balance; for tests."""
        self._table.check()

    def close(self) -> None:
        """Give the memory back; nothing is here any more."""
        self._arena.close()
        self._table = SlotTable(0)

    def _place(self, entry: Entry) -> slice:
        return slice(entry.slot * self.block_bytes, (entry.slot + 1) * self.block_bytes)

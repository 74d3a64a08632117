"""Which slot holds which key, and which key goes next. Knows no bytes and no files; not thread-safe.

Every operation is O(1), but for those on all keys of a namespace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

TAG_BYTES = 16


def namespace_tag(namespace: bytes) -> bytes:
    """What stands for a namespace beside its keys, which are hashes and do not tell: 128 bits, same in any process."""
    return blake2b(namespace, digest_size=TAG_BYTES, person=b"octavo.tiers 1").digest()


class Entry:
    """A key that has a slot. pins: reasons not to evict it."""

    __slots__ = ("key", "pins", "slot", "tag")

    def __init__(self, key: bytes, tag: bytes, slot: int) -> None:
        self.key = key
        self.tag = tag
        self.slot = slot
        self.pins = 0


class SlotTable:
    """`num_slots` equal slots; a key has one. A slot is free, or taken by a key, or set aside (`remove`, until `free`).

    A pinned entry is never evicted: it leaves the order of use, and joins it again, as the most recently used, with
    its last pin. Entries that were removed may still be unpinned.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free: list[int] = []  # those below _fresh
        self._fresh = 0  # slots from here on were never taken: nothing is kept of them, there may be millions
        self._entries: dict[bytes, Entry] = {}
        self._order: OrderedDict[bytes, None] = OrderedDict()  # unpinned keys, least recently used first
        self._members: dict[bytes, dict[bytes, None]] = {}  # tag -> its keys

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    @property
    def used(self) -> int:
        """Slots that are not free."""
        return self._fresh - len(self._free)

    def find(self, key: bytes) -> Entry | None:
        return self._entries.get(key)

    def keys_of(self, tag: bytes) -> list[bytes]:
        return list(self._members.get(tag, ()))

    def keys(self) -> list[bytes]:
        return list(self._entries)

    def touch(self, entry: Entry) -> None:
        """`entry`, which is in, is the most recently used."""
        if not entry.pins:
            self._order.move_to_end(entry.key)

    def take(self, key: bytes, tag: bytes) -> tuple[Entry, Entry | None] | None:
        """(the entry of the new `key`, the one evicted for it); None when every slot is pinned or set aside."""
        assert key not in self._entries, "the key has a slot"
        evicted = None
        if not self._free and self._fresh == self.num_slots:
            if not self._order:
                return None
            evicted = self._entries[next(iter(self._order))]
            self.remove(evicted)
            self.free(evicted.slot)
        if not self._free:
            self._free.append(self._fresh)
            self._fresh += 1
        return self._insert(Entry(key, tag, self._free.pop())), evicted

    def restore(self, found: Iterable[tuple[bytes, bytes, int]], set_aside: Iterable[int]) -> None:
        """Begin with what (key, tag, slot) say, the least recently used first, and some slots set aside."""
        for key, tag, slot in found:
            self._insert(Entry(key, tag, slot))
        taken = {entry.slot for entry in self._entries.values()}.union(set_aside)
        self._fresh = max(taken, default=-1) + 1
        self._free = [slot for slot in range(self._fresh - 1, -1, -1) if slot not in taken]

    def remove(self, entry: Entry) -> None:
        """Forget `entry`, which is in, pinned or not; its slot is set aside."""
        del self._entries[entry.key]
        self._order.pop(entry.key, None)
        members = self._members[entry.tag]
        del members[entry.key]
        if not members:
            del self._members[entry.tag]

    def free(self, slot: int) -> None:
        """A slot set aside may be taken again."""
        self._free.append(slot)

    def pin(self, entry: Entry) -> None:
        entry.pins += 1
        self._order.pop(entry.key, None)

    def unpin(self, entry: Entry) -> None:
        """Undo one `pin`."""
        entry.pins -= 1
        if not entry.pins and self._entries.get(entry.key) is entry:
            self._order[entry.key] = None

    def check(self) -> None:
        """AssertionError when the books do not balance; for tests."""
        taken = [entry.slot for entry in self._entries.values()]
        assert len({*taken, *self._free}) == len(taken) + len(set(self._free)), "a slot has two owners"
        assert len(set(self._free)) == len(self._free), "a slot is free twice"
        assert 0 <= len(taken) <= self.used <= self._fresh <= self.num_slots, "slots are lost"
        assert all(0 <= slot < self._fresh for slot in (*taken, *self._free)), "a slot that was never taken"
        pinned = {key for key, entry in self._entries.items() if entry.pins}
        assert set(self._order) == set(self._entries) - pinned, "evictable <=> not pinned"
        assert {key for keys in self._members.values() for key in keys} == set(self._entries), "tags"

    def _insert(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self._order[entry.key] = None
        self._members.setdefault(entry.tag, {})[entry.key] = None
        return entry

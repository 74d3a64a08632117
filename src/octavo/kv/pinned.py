"""Beginnings that are pinned: their blocks, once published, are not evicted. Knows no clock: who pins also unpins."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import KVError
from octavo.kv.keys import BlockKeys, Prefix, index_key
from octavo.kv.matcher import first_needed
from octavo.kv.pool import BlockPool

PINNED_SHARE = 0.5  # of the pool, at most: what is pinned is room that nobody else has


class PinnedPrefixes:
    """Pins by number. What a pin wants is kept from the moment it is published here, and may still have to be."""

    __slots__ = ("_keys", "_next", "_pins", "_pool", "_possible", "_windows")

    def __init__(self, pool: BlockPool, keys: BlockKeys, windows: tuple[int | None, ...], prefix_cache: bool) -> None:
        self._pool = pool
        self._keys = keys
        self._windows = windows
        self._pins: dict[int, list[bytes]] = {}
        self._next = 0
        self._possible = prefix_cache

    def add(self, tokens: Sequence[int], namespace: bytes = b"") -> int:
        """Keep the full blocks of this beginning from eviction once they are cached, now or later, until `remove` of
        the number returned. KVError when that makes more than PINNED_SHARE of the pool."""
        pool, size = self._pool, self._keys.block_size
        blocks = len(tokens) // size
        if not self._possible:
            raise KVError("only cached blocks can be pinned, and this manager has prefix_cache=False")
        if not blocks:
            raise KVError(f"{len(tokens)} tokens fill no block of {size}: there is nothing to pin")
        prefix, wanted = self._keys.root(namespace), []
        for number in range(blocks):
            prefix = self._keys.child(prefix, tokens, number)
            wanted += self._needed(prefix, number, blocks)
        more = sum(key not in pool.wanted for key in wanted)
        limit = pinnable(pool.num_blocks)
        if len(pool.wanted) + more > limit:
            raise KVError(
                f"cannot pin {more} blocks more: {len(pool.wanted)} are pinned and the pool of {pool.num_blocks} may"
                f" have {limit}; unpin some, pin a shorter beginning or enlarge the pool"
            )
        for key in wanted:
            pool.want(key)
        self._pins[self._next] = wanted
        self._next += 1
        return self._next - 1

    def remove(self, pin: int) -> bool:
        """Undo one `add`; False when there is none of that number."""
        wanted = self._pins.pop(pin, None)
        # The last block first: a beginning is worth more than what follows it.
        for key in reversed(wanted or ()):
            self._pool.unwant(key)
        return wanted is not None

    def __len__(self) -> int:
        """Blocks that are pinned and here."""
        return len(self._pool.kept)

    def refuse_to_shrink(self, num_blocks: int) -> None:
        """KVError when a pool of that size may not have so much pinned."""
        limit = pinnable(num_blocks)
        if len(self._pool.wanted) > limit:
            raise KVError(
                f"{len(self._pool.wanted)} blocks are pinned and a pool of {num_blocks} may have {limit}: unpin some"
            )

    def check(self) -> bool:
        """Whether the pool wants just what is pinned, and keeps what it wants and has."""
        counts: dict[bytes, int] = {}
        for wanted in self._pins.values():
            for key in wanted:
                counts[key] = counts.get(key, 0) + 1
        pool = self._pool
        here = {block for key, block in pool.index.items() if key in counts and block < pool.num_blocks}
        return counts == pool.wanted and here == pool.kept

    def _needed(self, prefix: Prefix, number: int, blocks: int) -> list[bytes]:
        """The keys of block `number` in the groups that a hit on `blocks` blocks needs it in."""
        size = self._keys.block_size
        return [
            index_key(prefix, group)
            for group, window in enumerate(self._windows)
            if number >= first_needed(blocks * size, window, size)
        ]


def pinnable(num_blocks: int) -> int:
    """Blocks of a pool that may be pinned."""
    return int(num_blocks * PINNED_SHARE)

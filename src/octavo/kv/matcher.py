"""The longest cached beginning that suits every layer group. Changes nothing: says what to take, not takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.kv.keys import BlockKeys, Prefix, index_key
from octavo.kv.ops import LowerTier
from octavo.kv.pool import BlockPool

IN_TIER = -2
MISSING = -1


@dataclass(frozen=True, slots=True)
class Hit:
    """`blocks` full blocks are cached. chain: their prefixes after the root, as far as looked. found[g][i]: the block
    of group g that holds block i, or IN_TIER; group g needs those from first[g] on. looked: blocks asked for."""

    blocks: int
    chain: list[Prefix]
    found: list[list[int]]
    first: list[int]
    looked: int


def first_needed(tokens: int, window: int | None, block_size: int) -> int:
    """Number of leading blocks that `tokens` committed tokens no longer need: those with all positions below
    tokens - window. That is one position more than the next query reads, so that dropping the last token, to compute
    it again, is always possible."""
    return 0 if window is None or tokens <= window else (tokens - window) // block_size


class Matcher:
    """Looks up beginnings, in the pool first and then in the lower tier, block by block."""

    __slots__ = ("_keys", "_pool", "_tier", "_windows")

    def __init__(
        self, pool: BlockPool, keys: BlockKeys, windows: tuple[int | None, ...], tier: LowerTier | None
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._windows = windows
        self._tier = tier

    def match(self, tokens: Sequence[int], root: Prefix) -> Hit:
        """The longest hit of at most len(tokens) - 1 tokens for which the free blocks suffice."""
        limit = max(0, (len(tokens) - 1) // self._keys.block_size)
        if self._windows == (None,):
            chain, found, ends = self._match_one(tokens, root, limit)
        else:
            chain, found, ends = self._match_groups(tokens, root, limit)
        blocks = self._affordable(ends, found)
        first = [
            first_needed(blocks * self._keys.block_size, window, self._keys.block_size) for window in self._windows
        ]
        return Hit(blocks, chain, found, first, limit)

    def absent(self, tokens: Sequence[int], root: Prefix) -> list[bytes]:
        """Keys that a hit on every full block would need and that the pool lacks. Asks no tier."""
        size = self._keys.block_size
        limit, keys, prefix = max(0, (len(tokens) - 1) // size), [], root
        for number in range(limit):
            prefix = self._keys.child(prefix, tokens, number)
            for group, window in enumerate(self._windows):
                if number >= first_needed(limit * size, window, size):
                    keys.append(index_key(prefix, group))
        return [key for key in keys if key not in self._pool.index]

    def locate(self, prefix: Prefix, group: int) -> int:
        """Where the block of `group` that ends `prefix` is: a block, IN_TIER or MISSING."""
        key = index_key(prefix, group)
        block = self._pool.find(key, prefix)
        if block is not None:
            return block
        return IN_TIER if self._tier is not None and self._tier.contains(key) else MISSING

    def _match_one(
        self, tokens: Sequence[int], root: Prefix, limit: int
    ) -> tuple[list[Prefix], list[list[int]], Sequence[int]]:
        """One group that sees everything: stop at the first block that is missing."""
        chain: list[Prefix] = []
        found: list[int] = []
        index, prefixes, child, before = self._pool.index, self._pool.prefixes, self._keys.child, root
        for number in range(limit):
            prefix = child(before, tokens, number)
            block = index.get(index_key(prefix, 0), MISSING)
            known = prefixes[block] if block >= 0 else None
            if known is not None and known.parent is before and known.tokens == prefix.tokens:
                before = known  # the usual case, verified at a glance
            else:
                block = self.locate(prefix, 0)
                if block == MISSING:
                    break
                before = (prefixes[block] if block >= 0 else None) or prefix
            chain.append(before)
            found.append(block)
        return chain, [found], range(len(found) + 1)

    def _match_groups(
        self, tokens: Sequence[int], root: Prefix, limit: int
    ) -> tuple[list[Prefix], list[list[int]], Sequence[int]]:
        """Several groups: a hit may end wherever all blocks that each group still needs there are found."""
        size = self._keys.block_size
        chain: list[Prefix] = []
        found: list[list[int]] = [[] for _ in self._windows]
        missing_before = [0] * len(self._windows)  # per group: blocks from here on are all found
        ends = [0]
        prefix = root
        for number in range(limit):
            prefix = self._keys.child(prefix, tokens, number)
            chain.append(prefix)
            usable = True
            for group, window in enumerate(self._windows):
                block = self.locate(prefix, group)
                found[group].append(block)
                if block == MISSING:
                    if window is None:
                        return chain, found, ends
                    missing_before[group] = number + 1
                usable &= missing_before[group] <= first_needed((number + 1) * size, window, size)
            if usable:
                ends.append(number + 1)
        return chain, found, ends

    def _affordable(self, ends: Sequence[int], found: list[list[int]]) -> int:
        """The largest of `ends` that the free blocks can hold. A fetch takes a free block, and so does a hit on one."""
        if not any(IN_TIER in blocks for blocks in found):
            return ends[-1]
        refs, size = self._pool.refs, self._keys.block_size
        costs = []
        for blocks in found:
            sums = [0]
            for block in blocks:
                sums.append(sums[-1] + (block == IN_TIER or (block >= 0 and refs[block] == 0)))
            costs.append(sums)
        for end in reversed(ends):
            cost = sum(
                sums[end] - sums[first_needed(end * size, window, size)]
                for sums, window in zip(costs, self._windows, strict=True)
            )
            if cost <= self._pool.free.count:
                return end
        return 0

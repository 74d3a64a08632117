"""Why a beginning is not cached: what was evicted and for whom, and the nearest thing that is. Changes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.kv.keys import BlockKeys, Prefix, index_key
from octavo.kv.matcher import MISSING, Matcher, first_needed
from octavo.kv.pool import BlockPool

EVICTIONS_KEPT = 4096

Reason = Literal["differs", "evicted", "other_namespace", "no_room", "unknown"]


@dataclass(frozen=True, slots=True)
class Miss:
    """Why the cached beginning ends at token `position`.

    differs: the nearest cached beginning has another token at `token`. evicted: it was here until sequence `by` needed
    its block in step `step`, at `time` by the manager's clock. other_namespace: it is here, under another namespace.
    no_room: it is below the pool, and too few blocks are free to fetch it. unknown: never seen, or long ago.
    """

    position: int
    reason: Reason
    token: int | None = None
    step: int | None = None
    time: float | None = None
    by: int | None = None


class EvictionLog:
    """The last EVICTIONS_KEPT evictions by key, each noted in constant time. step, by: of whoever allocates now."""

    __slots__ = ("_clock", "_records", "by", "step")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._records: OrderedDict[bytes, tuple[int, float, int]] = OrderedDict()
        self.step = 1
        self.by = -1

    def note(self, key: bytes) -> None:
        """A cached block was taken for something else."""
        self._records.pop(key, None)
        self._records[key] = self.step, self._clock(), self.by
        if len(self._records) > EVICTIONS_KEPT:
            self._records.popitem(last=False)

    def returned(self, key: bytes) -> bool:
        """The content of `key` is here again; whether its eviction is one of those noted, which it is no more."""
        return self._records.pop(key, None) is not None

    def find(self, key: bytes) -> tuple[int, float, int] | None:
        """(step, time, sequence) of the last eviction of `key`."""
        return self._records.get(key)


class MissFinder:
    """Explains misses from what is cached now. Takes time in proportion to the tokens and the published blocks."""

    __slots__ = ("_keys", "_log", "_matcher", "_pool", "_windows")

    def __init__(
        self,
        pool: BlockPool,
        keys: BlockKeys,
        windows: tuple[int | None, ...],
        matcher: Matcher,
        log: EvictionLog,
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._windows = windows
        self._matcher = matcher
        self._log = log

    def explain(self, tokens: Sequence[int], namespace: bytes = b"", *, operator: bool = False) -> Miss | None:
        """Why `open` would take no more of `tokens` than it would now; None when it would take every full block.

        operator: for those who may know of other tenants: also look in other namespaces, and say who evicted what.
        Promises of the lower tier are made as by `open`.
        """
        size = self._keys.block_size
        root = self._keys.root(namespace)
        hit = self._matcher.match(tokens, root)
        if hit.blocks == hit.looked:
            return None
        position = hit.blocks * size
        chain = self._chain(root, tokens, hit.blocks + 1)
        missing = self._first_missing(chain)
        if missing is None:
            return Miss(position, "no_room")
        number, group = missing
        key = index_key(chain[number], group)
        evicted = self._log.find(key)
        if evicted is not None:
            step, time, by = evicted
            return Miss(position, "evicted", step=step, time=time, by=by if operator else None)
        if operator and self._elsewhere(tokens, namespace, number, group):
            return Miss(position, "other_namespace")
        common = self._nearest(chain[number], group)
        if common is None:
            return Miss(position, "unknown")
        return Miss(position, "differs", token=number * size + common)

    def evicted(self, tokens: Sequence[int], namespace: bytes, blocks: int) -> Miss | None:
        """The eviction that keeps more than `blocks` blocks of `tokens` from being cached, if it is noted. Takes time
        in proportion to `blocks` alone."""
        prefix = self._chain(self._keys.root(namespace), tokens, blocks + 1)[-1]
        for group in range(len(self._windows)):
            found = self._log.find(index_key(prefix, group))
            if found is not None:
                step, time, by = found
                return Miss(blocks * self._keys.block_size, "evicted", step=step, time=time, by=by)
        return None

    def _chain(self, root: Prefix, tokens: Sequence[int], blocks: int) -> list[Prefix]:
        chain, prefix = [], root
        for number in range(blocks):
            prefix = self._keys.child(prefix, tokens, number)
            chain.append(prefix)
        return chain

    def _first_missing(self, chain: Sequence[Prefix]) -> tuple[int, int] | None:
        """(block, group) of the first block that a hit on all of `chain` lacks."""
        size = self._keys.block_size
        for number, prefix in enumerate(chain):
            for group, window in enumerate(self._windows):
                needed = number >= first_needed(len(chain) * size, window, size)
                if needed and self._matcher.locate(prefix, group) == MISSING:
                    return number, group
        return None

    def _elsewhere(self, tokens: Sequence[int], namespace: bytes, number: int, group: int) -> bool:
        others = {prefix.namespace for _, _, prefix in self._pool.published()} - {namespace}
        return any(
            index_key(self._chain(self._keys.root(other), tokens, number + 1)[-1], group) in self._pool.index
            for other in others
        )

    def _nearest(self, asked: Prefix, group: int) -> int | None:
        """Most leading tokens of its last block that `asked` shares with a cached block after the same beginning."""
        assert asked.parent is not None
        best = None
        for key, _, known in self._pool.published():
            if key[-1] == group and known.parent is not None and known.parent.key == asked.parent.key:
                best = max(best or 0, _common(known.tokens, asked.tokens))
        return best


def _common(a: bytes, b: bytes) -> int:
    """Leading tokens, packed in four bytes each, that are equal."""
    pairs = zip(memoryview(a).cast("i"), memoryview(b).cast("i"), strict=True)
    return next((place for place, (x, y) in enumerate(pairs) if x != y), len(a) // 4)

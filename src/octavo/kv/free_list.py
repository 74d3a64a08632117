"""The order in which free blocks are reused. Knows no contents: the caller says which end a block joins.

An intrusive doubly linked list: two lists of ints, every operation O(1) and without allocation.
"""

from __future__ import annotations

from collections.abc import Iterator

_ABSENT = -1


class FreeList:
    """Block ids 0 to n - 1; all in at first, in order, unless `full` is False. Blocks leave from anywhere."""

    __slots__ = ("_next", "_previous", "_sentinel", "count")

    def __init__(self, n: int, full: bool = True) -> None:
        self._sentinel: int = n
        self._next: list[int] = [*range(1, n + 1), 0] if full else [*[_ABSENT] * n, n]
        self._previous: list[int] = [n, *range(n)] if full else [*[_ABSENT] * n, n]
        self.count: int = n if full else 0

    def __contains__(self, block: int) -> bool:
        return self._next[block] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        """From the head: the order in which blocks would be reused."""
        block = self._next[self._sentinel]
        while block != self._sentinel:
            yield block
            block = self._next[block]

    def pop(self) -> int:
        """Take the block at the head; the list must not be empty."""
        block = self._next[self._sentinel]
        self.remove(block)
        return block

    def remove(self, block: int) -> None:
        """Take `block`, wherever it is; it must be in."""
        after, before = self._next[block], self._previous[block]
        self._next[before] = after
        self._previous[after] = before
        self._next[block] = self._previous[block] = _ABSENT
        self.count -= 1

    def push_head(self, block: int) -> None:
        """Reuse `block` next: last in, first out, while its memory is warm. It must not be in."""
        self._insert(block, self._sentinel, self._next[self._sentinel])

    def push_tail(self, block: int) -> None:
        """Reuse `block` last: the tail is the most recently used. It must not be in."""
        self._insert(block, self._previous[self._sentinel], self._sentinel)

    def _insert(self, block: int, before: int, after: int) -> None:
        self._next[before] = self._previous[after] = block
        self._next[block], self._previous[block] = after, before
        self.count += 1

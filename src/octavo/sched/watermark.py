"""Blocks that admission leaves free, more of them the more often blocks ran out. Knows no sequence.

A preemption says that too many were let in: the work of one is lost. So each doubles the margin, and each step without
one lets a little of it go. Under lasting pressure fewer are let in, before any is thrown out; without pressure there is
no margin.
"""

from __future__ import annotations

MOST = 8  # the margin is at most one in so many blocks of the pool
EASE = 1 / 512  # of the margin, in each step without a preemption


class Watermark:
    """The margin of one pool. `blocks` is what it is now."""

    __slots__ = ("_level",)

    def __init__(self) -> None:
        self._level = 0.0

    @property
    def blocks(self) -> int:
        return int(self._level)

    def step(self, preempted: int, num_blocks: int) -> None:
        """A step was planned, in which so many were preempted because blocks ran out, in a pool of so many."""
        self._level = max(1.0, self._level * 2) if preempted else self._level * (1 - EASE)
        self._level = min(self._level, float(num_blocks // MOST))

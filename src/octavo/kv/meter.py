"""What holding blocks costs, in block-seconds shared evenly among the holders. Knows no sequences: it names prices."""

from __future__ import annotations

from collections.abc import Callable


class Meter:
    """A block that n tables hold costs each of them 1/n of a block-second a second.

    The price of a block is that integral since the block was last taken: whoever joins owes minus the price at that
    moment, whoever leaves owes the price at that one, and the sum is what it cost them. So no event concerns more than
    one holder, and all that is owed sums to `total`: the time of blocks that any table holds.
    """

    __slots__ = ("_clock", "_held", "_last", "_price", "_since", "_total")

    def __init__(self, num_blocks: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._price = [0.0] * num_blocks
        self._since = [0.0] * num_blocks
        self._held = 0
        self._last = clock()
        self._total = 0.0

    @property
    def total(self) -> float:
        """Block-seconds of all blocks so far."""
        return self._total + self._held * (self._clock() - self._last)

    def grow(self, num_blocks: int) -> None:
        """Blocks up to `num_blocks` have prices."""
        more = num_blocks - len(self._price)
        self._price.extend([0.0] * more)
        self._since.extend([0.0] * more)

    def take(self, block: int) -> None:
        """The block's first holder came; the price is 0.0."""
        now = self._count(1)
        self._price[block] = 0.0
        self._since[block] = now

    def settle(self, block: int, holders: int) -> float:
        """The price now, after a time in which the block had so many holders; they are about to change."""
        now = self._clock()
        self._price[block] += (now - self._since[block]) / holders
        self._since[block] = now
        return self._price[block]

    def drop(self, block: int) -> float:
        """The price now, as the block's last holder leaves."""
        now = self._count(-1)
        held = now - self._since[block]
        self._since[block] = now
        return self._price[block] + held

    def price(self, block: int, holders: int) -> float:
        """The price now; nothing changes."""
        return self._price[block] + (self._clock() - self._since[block]) / holders

    def changed(self, num_blocks: int) -> tuple[float, ...]:
        """When the holders of each block last changed; 0.0 where it never had one."""
        return tuple(self._since[:num_blocks])

    def _count(self, change: int) -> float:
        now = self._clock()
        self._total += self._held * (now - self._last)
        self._last = now
        self._held += change
        return now

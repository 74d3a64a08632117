"""Blocks read from the disk before any step asks for them, for requests that wait. Knows owners and keys alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.tiers.disk import DiskTier, Reading


class _Wish:
    """What one owner waits for. keys: not begun yet, in order. begun: of those begun, the ones that it counts on."""

    __slots__ = ("begun", "deadline", "keys")

    def __init__(self, keys: list[bytes], deadline: float) -> None:
        self.keys = keys
        self.begun: list[bytes] = []
        self.deadline = deadline


class ReadAhead:
    """At most `budget` blocks in memory, of the owners that came first. One thread at a time.

    A read that takes longer than `patience_s` after it was asked for is given up, and the disk left alone until it
    answers: so nobody waits for a disk that hangs, neither here nor in the step.
    """

    def __init__(self, disk: DiskTier, budget: int, patience_s: float, clock: Callable[[], float]) -> None:
        self._disk = disk
        self._budget = budget
        self._patience_s = patience_s
        self._clock = clock
        self._wishes: dict[int, _Wish] = {}
        self._readings: dict[bytes, Reading] = {}
        self._users: dict[bytes, int] = {}

    @property
    def blocks(self) -> int:
        """Blocks that are in memory or on their way."""
        return len(self._readings)

    def want(self, owner: int, keys: Sequence[bytes]) -> None:
        """Read what the disk has of `keys`, in this order, as far as there is room; in place of what it wanted."""
        self.forget(owner)
        here = [key for key in dict.fromkeys(keys) if self._disk.holds(key)]
        if here:
            self._wishes[owner] = _Wish(here, self._clock() + self._patience_s)
            self._pump()

    def ready(self, owner: int) -> bool:
        """Whether all that was begun for `owner` is there, or is not to be waited for any more."""
        wish = self._wishes.get(owner)
        if wish is None:
            return True
        late = [key for key in wish.begun if key in self._readings and not self._readings[key].done.is_set()]
        if late and self._clock() >= wish.deadline:
            for key in late:
                self._disk.give_up(self._readings[key])
            return True
        return not late

    def take(self, key: bytes) -> Reading | None:
        """The read of `key`, done or under way, for the caller to finish; None when none was begun."""
        self._users.pop(key, None)
        reading = self._readings.pop(key, None)
        self._pump()
        return reading

    def forget(self, owner: int) -> None:
        """`owner` got what it wants, or is gone."""
        wish = self._wishes.pop(owner, None)
        if wish is None:
            return
        for key in wish.begun:
            if key in self._users:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key]
                    self._readings.pop(key).cancelled = True
        self._pump()

    def drop_absent(self) -> None:
        """Keep nothing in memory that the disk was told to forget."""
        for key in [key for key in self._readings if not self._disk.holds(key)]:
            self._users.pop(key, None)
            self._readings.pop(key).cancelled = True

    def close(self) -> None:
        """Nobody wants anything any more."""
        for owner in list(self._wishes):
            self.forget(owner)

    def _pump(self) -> None:
        """Begin what there is room for, the first owners first."""
        for wish in self._wishes.values():
            begun = 0
            for key in wish.keys:
                if key not in self._readings:
                    if len(self._readings) >= self._budget:
                        break
                    self._readings[key] = self._disk.begin(key)
                    self._readings[key].ahead = True
                self._users[key] = self._users.get(key, 0) + 1
                wish.begun.append(key)
                begun += 1
            del wish.keys[:begun]
            if wish.keys:
                return

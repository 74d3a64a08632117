"""Host memory over disk as one lower tier, and the promises it makes for a step. Knows no files and no sequences.

A block that comes in goes to every tier that lacks it, so that the disk is never behind what memory may forget, but not
to one from which it would come back later than it is computed. It is fetched from the first that has it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from octavo.tiers.disk import AHEAD_BLOCKS, DiskTier, Reading
from octavo.tiers.host import HostTier
from octavo.tiers.read_ahead import ReadAhead
from octavo.tiers.slots import Entry
from octavo.tiers.speed import TransferSpeeds
from octavo.tiers.stats import TierStats

SPILL_WAIT_S = 0.1  # what a step's spills wait in all for a disk that is behind
READ_AHEAD = 4  # blocks of a step that are read from the disk before they are asked for
AHEAD_PATIENCE_S = 2.0  # how long a request waits for blocks that are read for it

Promises = dict[bytes, tuple[HostTier | DiskTier, Entry]]


class TierStack:
    """Implements `octavo.kv.LowerTier`. Either tier may be left out. One thread at a time; closes what it was given.

    A step: `contains` while it is planned; `begin_step` once its operations were taken; `put` for each Spill, then
    `fetch` for all Fetches; `end_step`. What `contains` found is kept until then, unless a disk fails.
    """

    def __init__(
        self, *, host: HostTier | None = None, disk: DiskTier | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._disk = disk
        self._clock = clock
        self.speeds = TransferSpeeds([name for name, tier in (("host", host), ("disk", disk)) if tier is not None])
        self._ahead = None if disk is None else ReadAhead(disk, AHEAD_BLOCKS, AHEAD_PATIENCE_S, clock)
        self._deadline = 0.0
        self._planned: Promises = {}
        self._running: deque[Promises] = deque()

    @property
    def keeps(self) -> bool:
        """Whether blocks outlive the process."""
        return self._disk is not None

    def contains(self, key: bytes) -> bool:
        """Whether `key` can be fetched in the step that is being planned, and sooner than it is computed."""
        if key in self._planned:
            return True
        for name, tier in (("host", self._host), ("disk", self._disk)):
            if tier is None:
                continue
            if not self.speeds.worth_fetching(name, key):
                self.speeds.passed[name] += 1
            elif (entry := tier.lookup(key)) is not None:
                self._planned[key] = tier, entry
                return True
        return False

    def promised_by(self, key: bytes) -> str | None:
        """The name of the tier that `contains` found `key` in, for the step that is being planned."""
        found = self._planned.get(key)
        return None if found is None else "host" if found[0] is self._host else "disk"

    def begin_step(self) -> None:
        """The planned step's operations were taken; what `contains` finds from now on belongs to the next."""
        self._running.append(self._planned)
        self._planned = {}
        self._deadline = self._clock() + SPILL_WAIT_S

    def end_step(self) -> None:
        """The oldest step that began has fetched all it will: its promises end."""
        for tier, entry in self._running.popleft().values():
            tier.unpin(entry)

    def wants(self, key: bytes) -> bool:
        """Whether a `put` of `key` would store anything: else there is no need to read the block."""
        lacking = self._lacking(key)
        worth = [name for name in lacking if self.speeds.worth_spilling(name, key)]
        self.speeds.kept_out.update(name for name in lacking if name not in worth)
        return bool(worth)

    def put(self, key: bytes, namespace: bytes, data: bytes) -> None:
        """Offer a block that `wants` said yes to; `data` may be reused at once."""
        for name in self._lacking(key):
            if self.speeds.worth_spilling(name, key):
                begun = time.perf_counter()
                if name == "host" and self._host is not None:
                    self._host.put(key, namespace, data)
                elif self._disk is not None:
                    self._disk.put(key, namespace, data, self._deadline)
                self.speeds.spilled(name, time.perf_counter() - begun)

    def fetch(self, keys: Sequence[bytes]) -> Iterator[bytes | None]:
        """The bytes of each key, in order; None where a block is lost. The disk reads ahead of the caller."""
        started: deque[Reading | None] = deque()
        for place, key in enumerate(keys):
            while len(started) < READ_AHEAD and place + len(started) < len(keys):
                started.append(self._begin(keys[place + len(started)]))
            begun, reading = time.perf_counter(), started.popleft()
            data = None if self._host is None or reading is not None else self._host.get(key)
            if reading is not None and self._disk is not None:
                data = self._disk.finish(reading)
            if data is not None and not (reading is not None and reading.ahead):
                self.speeds.fetched("host" if reading is None else "disk", time.perf_counter() - begun)
            yield data

    def holders(self, key: bytes) -> tuple[str, ...]:
        """The names of the tiers that have `key` now; unlike `contains` that is no promise and counts as nothing."""
        tiers = (("host", self._host), ("disk", self._disk))
        return tuple(name for name, tier in tiers if tier is not None and tier.holds(key))

    def read_ahead(self, owner: int, keys: Sequence[bytes]) -> None:
        """Begin to read what only the disk has of `keys`, beside the steps, for a request that waits; see `ready`."""
        if self._ahead is not None:
            below = [key for key in keys if self._host is None or not self._host.holds(key)]
            self._ahead.want(owner, [key for key in below if self.speeds.worth_fetching("disk", key)])

    def ready(self, owner: int) -> bool:
        """Whether a request need not wait for its blocks any longer: they are there, or slow."""
        return self._ahead is None or self._ahead.ready(owner)

    def forget(self, owner: int) -> None:
        """A request waits no more: what was read for it and not fetched is dropped."""
        if self._ahead is not None:
            self._ahead.forget(owner)

    def save(self, key: bytes, namespace: bytes, data: bytes, deadline: float) -> None:
        """Keep a block beyond the process, waiting for the disk as long as it takes until `deadline`."""
        if self._disk is not None:
            self._disk.put(key, namespace, data, deadline)

    def wipe(self, namespace: bytes) -> int:
        """Forget the blocks of `namespace` in every tier and overwrite them; how many there were. TierError: the disk
        may still hold some."""
        try:
            return sum(tier.wipe(namespace) for tier in (self._host, self._disk) if tier is not None)
        finally:
            if self._ahead is not None:
                self._ahead.drop_absent()

    def stats(self) -> tuple[TierStats, ...]:
        """Of each tier, the nearest first."""
        return tuple(tier.stats() for tier in (self._host, self._disk) if tier is not None)

    def check(self) -> None:
        """AssertionError when a tier's books do not balance; for tests."""
        for tier in (self._host, self._disk):
            if tier is not None:
                tier.check()

    def close(self) -> None:
        """Write what is staged and let go of memory and directory; nothing is found any more."""
        try:
            if self._ahead is not None:
                self._ahead.close()
        finally:
            for tier in (self._host, self._disk):
                if tier is not None:
                    tier.close()

    def _lacking(self, key: bytes) -> list[str]:
        """The tiers that do not have `key` and would take it. Each is asked, as asking counts as use."""
        host = self._host is not None and not self._host.has(key)
        disk = self._disk is not None and self._disk.wants(key)
        return [name for name, lacks in (("host", host), ("disk", disk)) if lacks]

    def _begin(self, key: bytes) -> Reading | None:
        """A read from the disk, done or under way, or None when memory has the block or there is no disk."""
        ahead = None if self._ahead is None else self._ahead.take(key)
        if ahead is not None:
            return ahead
        if self._disk is None or (self._host is not None and self._host.has(key)):
            return None
        return self._disk.begin(key)

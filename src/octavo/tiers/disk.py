"""Blocks on a disk, written behind and read ahead by two threads. Knows no sequences; a fault here is a miss.

What is being written stays in memory ("staged") and can be fetched from there, until its slot is whole. Nothing that
the disk does reaches the caller as an error: it drops, misses, counts, and rests after repeated failures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo.errors import TierError
from octavo.tiers.block_file import BlockFile
from octavo.tiers.directory import Purpose, TierDirectory
from octavo.tiers.files import Files
from octavo.tiers.seal import Checksums, Header
from octavo.tiers.slots import Entry, SlotTable, namespace_tag
from octavo.tiers.stats import Counters, TierStats
from octavo.tiers.worker import Fuse, Worker

STAGED_BLOCKS = 32
AHEAD_BLOCKS = 64  # read for requests that wait
BLOCKS_IN_TRANSIT = STAGED_BLOCKS + AHEAD_BLOCKS + 8  # at most in memory, with those that are being handed on


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """staged_blocks: written behind, held in memory meanwhile. patience_s: a read that takes longer is a miss.
    failures: in a row, after which the disk is left alone for rest_s. drain_s: what `close` and `wipe` wait for."""

    staged_blocks: int = STAGED_BLOCKS
    patience_s: float = 2.0
    failures: int = 3
    rest_s: float = 30.0
    drain_s: float = 60.0


class Reading:
    """A read under way; `data` is there once `done` is set, None when there is nothing to be had. cancelled: nobody
    wants it any more, and it may as well not be read. ahead: it was begun long before it was asked for."""

    __slots__ = ("ahead", "cancelled", "data", "done", "overdue")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.done = threading.Event()
        self.overdue = self.cancelled = self.ahead = False


class DiskTier:
    """Blocks of `purpose.block_bytes` bytes in a directory of at most `budget` bytes, the least recently used out
    first. What was whole when a former process ended, however it ended, is here from the start.

    One thread at a time calls it. Opening raises TierError; afterwards only `wipe` does.
    """

    def __init__(
        self,
        path: str | Path,
        budget: int,
        purpose: Purpose,
        *,
        limits: DiskLimits | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits = limits or DiskLimits()
        self._clock = clock
        self._directory = TierDirectory(path, budget, purpose)
        fingerprint = purpose.fingerprint + purpose.variant
        self._blocks = BlockFile(
            files or Files(),
            self._directory.files,
            num_slots=self._directory.num_slots,
            block_bytes=purpose.block_bytes,
            seal=Checksums(fingerprint) if purpose.keys is None else purpose.keys.seal(fingerprint),
        )
        self.block_bytes = purpose.block_bytes
        self._guard = threading.Condition()  # of all below, which both threads change
        self._table = SlotTable(self._directory.num_slots)
        self._staged: dict[bytes, tuple[Entry, bytes]] = {}
        self._counters = Counters()
        self._overdue = 0  # reads that were given up and still hang
        self._progress = 0.0  # when the writer last had something to show, or got something to do
        self._read_fuse = Fuse(limits.failures, limits.rest_s, clock)
        self._write_fuse = Fuse(limits.failures, limits.rest_s, clock)
        self._open = True
        try:
            self._generation, useless = self._recover()
        except OSError as error:
            self._directory.close()
            raise TierError(f"the disk tier cannot read {path}: {error.strerror or error}") from error
        self._writer = Worker("octavo-tier-writer")
        self._reader = Worker("octavo-tier-reader")
        for slot in useless:
            self._writer.submit(partial(self._blank, slot))

    # Lookups

    def wants(self, key: bytes) -> bool:
        """Whether a `put` of `key` would store something; if it is here already, it counts as used."""
        with self._guard:
            entry = self._table.find(key)
            if entry is not None:
                self._table.touch(entry)
                return False
            return self._open and self._write_fuse.whole

    def lookup(self, key: bytes) -> Entry | None:
        """The entry of `key`, pinned until `unpin`; None when it is not here or the disk is not to be bothered."""
        with self._guard:
            entry = self._table.find(key)
            if entry is None or (key not in self._staged and not self._readable):
                self._counters.misses += 1
                return None
            self._counters.hits += 1
            self._table.pin(entry)
            return entry

    def holds(self, key: bytes) -> bool:
        """Whether `key` is here now; unlike `lookup` that is no promise and counts as nothing."""
        with self._guard:
            return self._table.find(key) is not None

    def unpin(self, entry: Entry) -> None:
        """Undo one `lookup`."""
        with self._guard:
            self._table.unpin(entry)

    # Transfers

    def put(self, key: bytes, namespace: bytes, data: bytes, deadline: float = float("-inf")) -> bool:
        """Take a block to be written; whatever buffer `data` is, the caller may reuse it at once. False: dropped.

        deadline: by the clock; until then it waits while too much is staged.
        """
        with self._guard:
            if self._table.find(key) is not None:
                return True
            if not (self._open and self._write_fuse.whole and self._await_room(deadline)):
                self._counters.dropped += 1
                return False
            taken = self._table.take(key, namespace_tag(namespace))
            if taken is None:
                self._counters.dropped += 1
                return False
            entry, evicted = taken
            self._counters.evictions += evicted is not None
            self._counters.stored += 1
            self._table.pin(entry)  # a slot that is being written is nobody else's
            if not self._staged:
                self._progress = self._clock()
            self._staged[key] = entry, stage(data)
            self._generation += 1
            generation = self._generation
        self._writer.submit(partial(self._write, entry, generation))
        return True

    def begin(self, key: bytes) -> Reading:
        """Start to read `key`; `finish` has the outcome."""
        reading = Reading()
        with self._guard:
            entry = self._table.find(key)
            staged = self._staged.get(key)
            if staged is not None:
                reading.data = staged[1]
            if entry is None or staged is not None or not self._readable:
                reading.done.set()
                return reading
            self._table.pin(entry)
        self._reader.submit(partial(self._read, entry, reading))
        return reading

    def finish(self, reading: Reading) -> bytes | None:
        """The block's bytes, as they were put, to the last bit; None when the disk has lost them or is too slow."""
        patience = 0.0 if self._overdue else self._limits.patience_s  # those behind one that hangs hang as well
        if not reading.done.wait(patience):
            self.give_up(reading)
        with self._guard:
            self._counters.fetched += reading.data is not None
        return reading.data

    def give_up(self, reading: Reading) -> None:
        """Do not wait for a read that takes too long: it is a miss, and the disk is left alone until it answers."""
        with self._guard:
            if not reading.done.is_set() and not reading.overdue:
                self._counters.slow += not self._overdue
                reading.overdue = True
                self._overdue += 1

    def wipe(self, namespace: bytes) -> int:
        """Forget the blocks of `namespace` and overwrite them with zeros; how many there were.

        TierError: the disk refused, or took too long, and may still hold some of them.
        """
        with self._guard:
            entries = [self._table.find(key) for key in self._table.keys_of(namespace_tag(namespace))]
            found = [entry for entry in entries if entry is not None]
            for entry in found:
                self._table.remove(entry)
                self._staged.pop(entry.key, None)
            self._guard.notify_all()
        left = len(found)
        finished = threading.Event()
        refused: list[int] = []

        def blank(slot: int) -> None:
            nonlocal left
            if not self._blank(slot):
                refused.append(slot)
            left -= 1
            if not left:
                finished.set()

        for entry in found:
            self._writer.submit(partial(blank, entry.slot))
        if found and (not finished.wait(self._limits.drain_s) or refused):
            raise TierError(f"{self._directory.path} may still hold {max(left, len(refused))} blocks that were to go")
        return len(found)

    # The rest

    def stats(self) -> TierStats:
        with self._guard:
            return self._counters.freeze("disk", self.block_bytes, self._table.num_slots, self._table.used)

    def keys(self) -> list[bytes]:
        """What is here, in no order."""
        with self._guard:
            return self._table.keys()

    def check(self) -> None:
        """AssertionError when the books do not balance; for tests."""
        with self._guard:
            self._table.check()

    def drain(self) -> bool:
        """Wait until all that was put is written; False when it takes too long."""
        with self._guard:
            return self._guard.wait_for(lambda: not self._staged, self._limits.drain_s)

    def close(self) -> None:
        """Write what is staged, as long as the disk is not too slow, and let the directory go."""
        with self._guard:
            if not self._open:
                return
            self._open = False
        ended = [worker.close(self._limits.drain_s) for worker in (self._writer, self._reader)]
        with self._guard:
            self._table = SlotTable(0)
            self._staged.clear()
        if all(ended):  # else a thread hangs in a system call on these descriptors, and none may get their numbers
            self._directory.close()

    @property
    def _readable(self) -> bool:
        return self._open and not self._overdue and self._read_fuse.whole

    def _recover(self) -> tuple[int, list[int]]:
        """Fill the table from the headers. (the latest generation, slots to empty: they hold an older writing of some
        key, or what nobody can decrypt any more)."""
        latest: dict[bytes, tuple[int, Header]] = {}
        useless = []
        for slot, header in self._blocks.scan():
            if not isinstance(header, Header):
                self._counters.retired += 1
                useless.append(slot)
                continue
            known = latest.get(header.key)
            if known is not None:
                older = slot if known[1].generation > header.generation else known[0]
                useless.append(older)
            if known is None or known[1].generation < header.generation:
                latest[header.key] = slot, header
        found = sorted(latest.values(), key=lambda entry: entry[1].generation)
        self._table.restore(((header.key, header.tag, slot) for slot, header in found), set_aside=useless)
        return (found[-1][1].generation if found else 0), useless

    def _await_room(self, deadline: float) -> bool:
        """Wait for the writer while too much is staged; when it does not keep up, leave it alone for a while."""
        patience = min(max(0.0, deadline - self._clock()), threading.TIMEOUT_MAX)
        room = self._guard.wait_for(lambda: len(self._staged) < self._limits.staged_blocks, patience)
        if not room and self._clock() - self._progress > self._limits.patience_s:
            self._counters.slow += 1
            self._write_fuse.blow()
        return room

    # On the two threads

    def _write(self, entry: Entry, generation: int) -> None:
        with self._guard:
            staged = self._staged.get(entry.key)
            if staged is None or staged[0] is not entry:
                return  # wiped meanwhile
            data = staged[1]
        try:
            self._blocks.write(entry.slot, Header(entry.key, entry.tag, generation, len(data)), data)
            whole = True
        except OSError:
            whole = False
        with self._guard:
            self._progress = self._clock()
            self._table.unpin(entry)
            if not whole:
                self._counters.failures += 1
                self._write_fuse.fail()
            else:
                self._write_fuse.succeed()
            staged = self._staged.get(entry.key)
            if staged is not None and staged[0] is entry:
                del self._staged[entry.key]
                if not whole:
                    self._table.remove(entry)
                    self._table.free(entry.slot)
            self._guard.notify_all()

    def _read(self, entry: Entry, reading: Reading) -> None:
        data, refused = None, False
        if not reading.cancelled:
            try:
                data = self._blocks.read(entry.slot, entry.key)
            except OSError:
                refused = True
        gone = False
        with self._guard:
            self._table.unpin(entry)
            if data is None and reading.cancelled:
                reading.done.set()
                self._overdue -= reading.overdue
                return
            if refused:
                self._counters.failures += 1
                self._read_fuse.fail()
            else:
                self._read_fuse.succeed()
                self._counters.corrupt += data is None
            if data is None and self._table.find(entry.key) is entry:
                self._table.remove(entry)
                gone = True
            self._overdue -= reading.overdue
            reading.data = data
            reading.done.set()
        if gone:
            self._writer.submit(partial(self._blank, entry.slot))

    def _blank(self, slot: int) -> bool:
        """Empty a slot that was set aside and free it; False when the disk refused."""
        try:
            self._blocks.wipe(slot)
            return True
        except OSError:
            with self._guard:
                self._counters.failures += 1
            return False
        finally:
            with self._guard:
                self._table.free(slot)


def stage(data: bytes) -> bytes:
    """A copy that nobody else can write to; bytes are one already."""
    return bytes(data)

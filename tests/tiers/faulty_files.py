"""Disks that fail, lie, fill up, hang or stop in the middle of a write, behind the tiers' one seam to the system."""

from __future__ import annotations

import errno
import random
import threading

from octavo.tiers.files import Files

KINDS = ("read error", "write error", "full", "flipped", "short", "torn")


class FaultyFiles(Files):
    """Every `one_in`-th operation or so goes wrong, in one of `kinds` of ways."""

    def __init__(self, seed: int, one_in: int, kinds: tuple[str, ...] = KINDS) -> None:
        self.rng = random.Random(seed)
        self.one_in = one_in
        self.kinds = kinds
        self.faults = 0

    def _fault(self, *possible: str) -> str:
        kinds = [kind for kind in possible if kind in self.kinds]
        if not kinds or not self.one_in or self.rng.randrange(self.one_in):
            return ""
        self.faults += 1
        return self.rng.choice(kinds)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read(fd, length, offset)
        match self._fault("read error", "flipped", "short"):
            case "read error":
                raise OSError(errno.EIO, "unreadable")
            case "flipped" if data:
                place = self.rng.randrange(len(data))
                return data[:place] + bytes((data[place] ^ 1 << self.rng.randrange(8),)) + data[place + 1 :]
            case "short":
                return data[: self.rng.randrange(len(data) + 1)]
        return data

    def write(self, fd: int, data: bytes, offset: int) -> None:
        match self._fault("write error", "full", "torn"):
            case "write error":
                raise OSError(errno.EIO, "unwritable")
            case "full":
                super().write(fd, data[: self.rng.randrange(len(data) + 1)], offset)
                raise OSError(errno.ENOSPC, "no space left")
            case "torn":  # half of it never reaches the disk, and nobody is told
                super().write(fd, data[: len(data) // 2], offset)
                return
        super().write(fd, data, offset)


class Power(BaseException):
    """The process is no more."""


class DyingFiles(Files):
    """The process dies in write number `last` (from 0), after `share` of its bytes: 0 none, 1 all."""

    def __init__(self, last: int, share: float) -> None:
        self.last = last
        self.share = share
        self.writes = 0

    def write(self, fd: int, data: bytes, offset: int) -> None:
        if self.writes == self.last:
            super().write(fd, bytes(data)[: int(len(data) * self.share)], offset)
        if self.writes >= self.last:
            raise Power
        self.writes += 1
        super().write(fd, data, offset)


class HangingFiles(Files):
    """Reads, writes or both wait while `gates` are closed."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.writes = threading.Event()
        self.reads.set()
        self.writes.set()

    def read(self, fd: int, length: int, offset: int) -> bytes:
        assert self.reads.wait(20)
        return super().read(fd, length, offset)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        assert self.writes.wait(20)
        super().write(fd, data, offset)


def block(number: int, size: int) -> bytes:
    """A block's bytes, which say whose they are in every eight of them."""
    return ((number.to_bytes(7, "little") + b"\xa5") * (size // 8 + 1))[:size]


def key(number: int) -> bytes:
    return number.to_bytes(33, "little")

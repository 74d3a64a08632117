"""Host memory and disk in the place of the fake tier, holding the fake device's slots as bytes."""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fake_device import Content
from kv_model import Setting

from octavo.errors import TierError
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack
from octavo.tiers.disk import DiskLimits
from octavo.tiers.files import Files
from octavo.tiers.seal import HEADER_BYTES

sys.path.append(str(Path(__file__).parents[1] / "tiers"))
from faulty_files import FaultyFiles

SLOT = struct.Struct("<qq")


class SlowFiles(Files):
    """Each transfer takes a moment, so that steps overtake it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        time.sleep(self.rng.choice((0.0, 0.0, 0.0005)))
        super().write(fd, data, offset)


class RealTier:
    """See `fake_device.Tier`. The buffer of a spilled block is overwritten as soon as `put` is back."""

    def __init__(self, stack: TierStack, disturb: Callable[[], None] | None) -> None:
        self.stack = stack
        self.unreliable = disturb is not None
        self.disturb = disturb
        self.contains = stack.contains
        self.begin_step = stack.begin_step
        self.end_step = stack.end_step
        self.fetched = self.lost = 0

    def put(self, key: bytes, content: Content) -> None:
        buffer = bytearray(b"".join(SLOT.pack(*slot) for slot in content))
        self.stack.put(key, bytes((key[0] % 2,)), memoryview(buffer))  # type: ignore[arg-type]  # any buffer will do
        buffer[:] = b"\xee" * len(buffer)
        self.stack.check()

    def get(self, key: bytes) -> Content | None:
        (data,) = self.stack.fetch([key])
        self.fetched += data is not None
        self.lost += data is None
        if data is None:
            assert self.unreliable, "a promised block is gone"
            return None
        return tuple(SLOT.iter_unpack(data))

    def lose(self, pick: int) -> None:
        if self.disturb is not None and pick % 8 == 0:
            with suppress(TierError):  # it may say that it could not: the blocks are not found all the same
                self.stack.wipe(bytes((pick // 8 % 2,)))
        elif self.disturb is not None:
            self.disturb()


KINDS = ("host", "disk", "both", "failing")


@contextmanager
def real_tier(kind: str, setting: Setting, folder: Path, seed: int) -> Iterator[RealTier]:
    """One tier or two with room for `setting.tier` blocks. failing: a disk of which every fifth operation goes wrong,
    and whose contents are tampered with."""
    assert setting.tier is not None
    size = SLOT.size * setting.block_size
    host = None if kind in ("disk", "failing") else HostTier(setting.tier * size, size)
    disk = None
    failing = FaultyFiles(seed, 0, ("read error", "write error", "full", "flipped", "short", "torn"))
    if kind != "host":
        files = failing if kind == "failing" else SlowFiles(seed)
        limits = DiskLimits(staged_blocks=3, failures=1 << 30, rest_s=0.0, patience_s=20.0)
        budget = 5 * 4096 + setting.tier * (size + HEADER_BYTES)
        disk = DiskTier(folder / "d", budget, Purpose(bytes(32), size), limits=limits, files=files)
        failing.one_in = 5

    def tamper() -> None:
        with (folder / "d" / "contents").open("r+b") as file:
            place = failing.rng.randrange(setting.tier * size) if setting.tier else 0
            file.seek(place)
            old = file.read(1)
            file.seek(place)
            file.write(bytes((old[0] ^ 0x55,)) if old else b"")

    stack = TierStack(host=host, disk=disk)
    try:
        yield RealTier(stack, tamper if kind == "failing" else None)
    finally:
        failing.one_in = 0
        stack.close()

"""Reading ahead for requests that wait: in order, within its budget, given up when slow, dropped when not wanted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from faulty_files import FaultyFiles, HangingFiles, block, key

from octavo.tiers import DiskTier, HostTier, Purpose, TierStack
from octavo.tiers.disk import DiskLimits
from octavo.tiers.files import Files
from octavo.tiers.read_ahead import ReadAhead
from octavo.tiers.seal import HEADER_BYTES

SIZE = 96
KEYS = [key(number) for number in range(8)]


def filled(path: Path, files: Files | None = None) -> DiskTier:
    limits = DiskLimits(patience_s=0.5, failures=100)
    tier = DiskTier(path, 5 * 4096 + 8 * (SIZE + HEADER_BYTES), Purpose(bytes(32), SIZE), files=files, limits=limits)
    for number in range(8):
        assert tier.put(key(number), b"n", block(number, SIZE), float("inf"))
    assert tier.drain()
    return tier


def settle(ahead: ReadAhead) -> None:
    """Wait for what is on its way."""
    for reading in list(ahead._readings.values()):
        assert reading.done.wait(20)


def test_within_the_budget_and_the_first_come_first(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = filled(tmp_path / "d", files)
    ahead = ReadAhead(tier, 3, 10.0, time.monotonic)
    files.reads.clear()
    ahead.want(1, [*KEYS[:2], key(99)])
    ahead.want(2, KEYS[1:6])
    assert list(ahead._readings) == KEYS[:3]
    assert (ahead.ready(1), ahead.ready(2), ahead.ready(3)) == (False, False, True)
    files.reads.set()
    settle(ahead)
    assert ahead.ready(1)
    assert ahead.ready(2), "what there was room for is there: the rest is read in the step"
    for number in range(2):
        reading = ahead.take(KEYS[number])
        assert reading is not None
        assert tier.finish(reading) == block(number, SIZE)
    assert list(ahead._readings) == KEYS[2:5], "room is used at once"
    assert ahead.take(KEYS[7]) is None
    ahead.forget(1)
    ahead.forget(2)
    assert (ahead.blocks, ahead._users) == (0, {})
    tier.close()


def test_what_two_wait_for_is_read_once_and_stays_for_the_second(tmp_path: Path) -> None:
    tier = filled(tmp_path / "d")
    ahead = ReadAhead(tier, 8, 10.0, time.monotonic)
    for owner in (1, 2):
        ahead.want(owner, KEYS[:4])
    assert ahead.blocks == 4
    ahead.forget(1)
    assert ahead.blocks == 4
    ahead.forget(2)
    assert ahead.blocks == 0
    tier.close()


def test_what_nobody_wants_any_more_is_not_read(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = filled(tmp_path / "d", files)
    ahead = ReadAhead(tier, 8, 10.0, time.monotonic)
    files.reads.clear()
    ahead.want(1, KEYS)
    ahead.forget(1)
    ahead.want(2, KEYS[:1])
    reads = []
    plain = tier._blocks.read
    tier._blocks.read = lambda slot, name: reads.append(name) or plain(slot, name)  # type: ignore[func-returns-value,method-assign]
    files.reads.set()
    settle(ahead)
    assert reads == KEYS[:1]
    assert tier.stats().corrupt == tier.stats().failures == 0
    tier.check()
    tier.close()


def test_a_disk_that_hangs_is_waited_for_once_and_by_nobody_in_a_step(tmp_path: Path) -> None:
    files, now = HangingFiles(), [0.0]
    tier = filled(tmp_path / "d", files)
    ahead = ReadAhead(tier, 8, 2.0, lambda: now[0])
    files.reads.clear()
    ahead.want(1, KEYS[:3])
    assert not ahead.ready(1)
    now[0] = 2.0
    assert ahead.ready(1)
    assert tier.lookup(KEYS[0]) is None, "the disk is left alone, so that nothing is promised from it"
    assert tier.stats().slow == 1
    files.reads.set()
    settle(ahead)
    entry = tier.lookup(KEYS[0])
    assert entry is not None
    reading = ahead.take(KEYS[0])
    assert reading is not None
    assert tier.finish(reading) == block(0, SIZE), "late, and right"
    tier.close()


@pytest.mark.parametrize("kind", ["read error", "flipped", "short"])
def test_a_read_that_fails_is_a_miss(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles(1, 0, (kind,))
    tier = filled(tmp_path / "d", files)
    ahead = ReadAhead(tier, 8, 10.0, time.monotonic)
    files.one_in = 1
    ahead.want(1, KEYS[:2])
    settle(ahead)
    assert ahead.ready(1)
    reading = ahead.take(KEYS[0])
    assert reading is not None
    assert tier.finish(reading) is None
    assert tier.stats().failures + tier.stats().corrupt == 2
    tier.close()


def test_a_stack_reads_only_what_memory_lacks_and_forgets_what_is_wiped(tmp_path: Path) -> None:
    disk = filled(tmp_path / "d")
    host = HostTier(8 * SIZE, SIZE)
    host.put(KEYS[0], b"n", block(0, SIZE))
    stack = TierStack(host=host, disk=disk)
    assert stack._ahead is not None
    stack.read_ahead(1, KEYS[:4])
    settle(stack._ahead)
    assert stack.ready(1)
    assert list(stack._ahead._readings) == KEYS[1:4]
    assert all(stack.contains(name) for name in KEYS[:3])
    stack.begin_step()
    assert list(stack.fetch(KEYS[:3])) == [block(number, SIZE) for number in range(3)]
    stack.end_step()
    assert stack._ahead.blocks == 1
    stack.wipe(b"n")
    assert stack._ahead.blocks == 0
    assert not stack.contains(KEYS[3])
    stack.close()

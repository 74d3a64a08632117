"""The disk tier while it serves: staging, promises, faults that are misses, wiping, and being killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faulty_files import FaultyFiles, HangingFiles, block, key

from octavo.errors import TierError
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack
from octavo.tiers.disk import DiskLimits
from octavo.tiers.encryption import MasterKeys
from octavo.tiers.files import Files
from octavo.tiers.seal import HEADER_BYTES

SIZE = 256
PURPOSE = Purpose(b"\x01" * 32, SIZE, "test")
PATIENT = DiskLimits(failures=1 << 30, rest_s=0.0)  # never leaves a failing disk alone


def budget(slots: int) -> int:
    return 5 * 4096 + slots * (SIZE + HEADER_BYTES)


def opened(
    path: Path, slots: int, files: Files | None = None, limits: DiskLimits | None = None, now: list[float] | None = None
) -> DiskTier:
    clock = time.monotonic if now is None else lambda: now[0]
    return DiskTier(path, budget(slots), PURPOSE, files=files, limits=limits, clock=clock)


def get(tier: DiskTier, number: int) -> bytes | None:
    return tier.finish(tier.begin(key(number)))


def test_a_block_can_be_fetched_while_it_is_written(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = opened(tmp_path / "d", 4, files)
    files.writes.clear()
    assert tier.put(key(1), b"", block(1, SIZE))
    assert get(tier, 1) == block(1, SIZE)
    files.writes.set()
    assert tier.drain()
    assert get(tier, 1) == block(1, SIZE)
    tier.close()


def test_the_source_may_be_reused_at_once(tmp_path: Path) -> None:
    """Case C04: four blocks leave, others overwrite them before the disk has moved, and they come back as they were."""
    files = HangingFiles()
    stack = TierStack(disk=opened(tmp_path / "d", 8, files))
    device = [bytearray(block(number, SIZE)) for number in range(4)]
    files.writes.clear()
    stack.begin_step()
    for number in range(4):
        stack.put(key(number), b"", memoryview(device[number]))  # type: ignore[arg-type]  # any buffer will do
        device[number][:] = b"\xee" * SIZE
    stack.end_step()
    files.writes.set()
    assert all(stack.contains(key(number)) for number in range(4))
    stack.begin_step()
    assert list(stack.fetch([key(number) for number in range(4)])) == [block(number, SIZE) for number in range(4)]
    stack.end_step()
    stack.close()


def test_a_partial_block_is_restored_exactly(tmp_path: Path) -> None:
    """Case A20: 20 tokens in blocks of 16 are one block below the pool; bytes come back as they went, in any block."""
    from octavo.exec.block_mover import BlockMover
    from octavo.kv import KVCacheManager, Spill

    class Store:
        def __init__(self) -> None:
            self.blocks = [bytes(SIZE)] * 4

        def copy_block(self, src: int, dst: int) -> None:
            self.blocks[dst] = self.blocks[src]

        def read_block(self, number: int) -> bytes:
            return self.blocks[number]

        def write_block(self, number: int, data: bytes) -> None:
            self.blocks[number] = data

    tokens = list(range(20))
    for run in range(2):
        stack, store = TierStack(disk=opened(tmp_path / "d", 8)), Store()
        kv, mover = KVCacheManager(4, 16, lower_tier=stack), BlockMover(store, stack)
        cached = kv.open(1, [*tokens, *range(900, 912)])
        assert cached == (0 if run == 0 else 16)
        assert kv.extend(1, 32 - cached)
        assert mover.run(kv.take_ops()) == []
        table = kv.block_ids(1)
        if run == 0:
            store.blocks[table[0]], store.blocks[table[1]] = block(7, SIZE), block(8, SIZE)
            kv.truncate(1, 20)
            kv.commit(1, 20)
            kv.end_step()
            assert [op.block for op in kv.matchable()] == [table[0]], "what is not full is not kept"
            mover.save(kv.matchable())
        else:
            assert store.blocks[table[0]] == block(7, SIZE)
            assert store.blocks[table[1]] == bytes(SIZE)
        stack.close()
    assert Spill(0, b"k") == Spill(0, b"k", b"")


def test_the_books_balance_after_every_one_of_5000_operations(tmp_path: Path) -> None:
    """Case C05, with a disk that fails one time in eight: never a wrong byte, never an error, no slot lost."""
    for seed, one_in in ((1, 0), (2, 8)):
        files = FaultyFiles(seed, 0)
        tier = opened(tmp_path / f"{seed}", 12, files, PATIENT)
        files.one_in = one_in
        rng, promised = random.Random(seed), []
        for _ in range(2500):
            number = rng.randrange(40)
            match rng.randrange(8):
                case 0 | 1 | 2:
                    tier.put(key(number), bytes((number % 3,)), block(number, SIZE), time.monotonic() + 1)
                case 3 | 4:
                    assert get(tier, number) in (None, block(number, SIZE))
                case 5:
                    promised += [entry for entry in [tier.lookup(key(number))] if entry is not None]
                case 6 if promised:
                    tier.unpin(promised.pop(rng.randrange(len(promised))))
                case 7 if rng.randrange(50) == 0:
                    wipe_unless_refused(tier, bytes((number % 3,)), allowed=bool(one_in))
            tier.check()
            stats = tier.stats()
            assert 0 <= stats.used <= stats.capacity == 12
        assert tier.drain()
        stats = tier.stats()
        assert stats.fetched > 50
        assert (stats.failures > 10 and stats.corrupt > 0) == bool(one_in)
        tier.close()
        again = opened(tmp_path / f"{seed}", 12)
        assert all(get(again, number) in (None, block(number, SIZE)) for number in range(40))
        again.close()


def wipe_unless_refused(tier: DiskTier, namespace: bytes, allowed: bool) -> None:
    try:
        tier.wipe(namespace)
    except TierError:
        assert allowed


def test_a_wiped_namespace_leaves_no_trace(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = opened(tmp_path / "d", 8, files)
    for number in range(6):
        tier.put(key(number), b"theirs" if number % 2 else b"ours", block(0xABCD00 + number, SIZE))
    assert tier.drain()
    files.writes.clear()
    tier.put(key(7), b"theirs", block(0xABCD07, SIZE))  # still staged
    files.writes.set()
    assert tier.wipe(b"theirs") == 4
    assert tier.stats().used == 3
    tier.check()
    tier.close()
    raw = b"".join((tmp_path / "d" / name).read_bytes() for name in ("headers", "contents"))
    for number in range(8):
        assert (block(0xABCD00 + number, SIZE) in raw) == (number in (0, 2, 4))
        assert (key(number) in raw) == (number in (0, 2, 4))


def test_a_wipe_that_the_disk_refuses_is_told(tmp_path: Path) -> None:
    files = FaultyFiles(1, 0, ("write error",))
    tier = opened(tmp_path / "d", 8, files)
    tier.put(key(1), b"n", block(1, SIZE))
    assert tier.drain()
    files.one_in = 1
    with pytest.raises(TierError, match="may still hold 1 blocks"):
        tier.wipe(b"n")
    assert get(tier, 1) is None
    tier.close()


def test_a_full_disk_drops_and_rests(tmp_path: Path) -> None:
    files, now = FaultyFiles(1, 0, ("full",)), [0.0]
    tier = opened(tmp_path / "d", 8, files, DiskLimits(failures=3, rest_s=30), now)
    tier.put(key(0), b"", block(0, SIZE))
    assert tier.drain()
    files.one_in = 1
    for number in range(1, 6):
        tier.put(key(number), b"", block(number, SIZE))
        assert tier.drain()
    stats = tier.stats()
    assert (stats.failures, stats.dropped, stats.used) == (3, 2, 1)
    assert not tier.wants(key(9))
    assert get(tier, 0) == block(0, SIZE), "what is there can still be read"
    files.one_in, now[0] = 0, 31.0
    assert tier.put(key(9), b"", block(9, SIZE))
    assert tier.drain()
    assert get(tier, 9) == block(9, SIZE)
    tier.close()


def test_a_disk_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    files, now = FaultyFiles(1, 0, ("read error",)), [0.0]
    tier = opened(tmp_path / "d", 8, files, DiskLimits(failures=2, rest_s=30), now)
    for number in range(4):
        tier.put(key(number), b"", block(number, SIZE))
    assert tier.drain()
    files.one_in = 1
    assert [get(tier, number) for number in range(4)] == [None] * 4
    assert tier.stats().failures == 2
    assert tier.lookup(key(3)) is None
    files.one_in, now[0] = 0, 31.0
    assert get(tier, 3) == block(3, SIZE)
    tier.close()


def test_a_read_that_hangs_is_a_miss_and_the_last_for_now(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = opened(tmp_path / "d", 8, files, DiskLimits(patience_s=0.05))
    for number in range(2):
        tier.put(key(number), b"", block(number, SIZE))
    assert tier.drain()
    files.reads.clear()
    assert get(tier, 0) is None
    assert tier.stats().slow == 1
    assert tier.lookup(key(1)) is None
    assert get(tier, 1) is None
    assert tier.stats().slow == 1, "it waits again for a disk that hangs"
    files.reads.set()
    while tier._overdue:
        time.sleep(0.001)
    assert get(tier, 1) == block(1, SIZE)
    tier.close()


def test_a_writer_that_hangs_costs_one_wait(tmp_path: Path) -> None:
    files = HangingFiles()
    tier = opened(tmp_path / "d", 8, files, DiskLimits(staged_blocks=2, patience_s=0.05))
    files.writes.clear()
    for number in range(2):
        assert tier.put(key(number), b"", block(number, SIZE))
    assert not tier.put(key(2), b"", block(2, SIZE), time.monotonic() + 0.1)
    begun = time.monotonic()
    assert not tier.put(key(3), b"", block(3, SIZE), time.monotonic() + 5)
    assert time.monotonic() - begun < 1
    assert (tier.stats().slow, tier.stats().dropped) == (1, 2)
    files.writes.set()
    assert tier.drain()
    tier.close()


def test_a_closed_tier_has_nothing_and_takes_nothing(tmp_path: Path) -> None:
    stack = TierStack(host=HostTier(4 * SIZE, SIZE), disk=opened(tmp_path / "d", 8))
    stack.begin_step()
    stack.put(key(1), b"", block(1, SIZE))
    stack.end_step()
    stack.close()
    stack.close()
    assert not stack.contains(key(1))
    assert [tier.capacity for tier in stack.stats()] == [0, 0]


def test_what_memory_forgot_comes_from_the_disk(tmp_path: Path) -> None:
    stack = TierStack(host=HostTier(2 * SIZE, SIZE), disk=opened(tmp_path / "d", 8))
    stack.begin_step()
    for number in range(6):
        assert stack.wants(key(number))
        stack.put(key(number), b"", block(number, SIZE))
        assert not stack.wants(key(number))
    stack.end_step()
    keys = [key(number) for number in range(7)]
    assert [stack.contains(name) for name in keys] == [True] * 6 + [False]
    stack.begin_step()
    assert list(stack.fetch(keys)) == [*(block(number, SIZE) for number in range(6)), None]
    stack.end_step()
    host, disk = stack.stats()
    assert (host.name, host.fetched, disk.name, disk.fetched) == ("host", 2, "disk", 4)
    stack.check()
    stack.close()


VICTIM = """
import itertools, sys
sys.path.insert(0, sys.argv[2])
from faulty_files import block, key
from octavo.tiers import DiskTier, Purpose
from octavo.tiers.encryption import MasterKeys
keys = [bytes.fromhex(each) for each in sys.argv[5:]]
tier = DiskTier(
    sys.argv[1], int(sys.argv[3]), Purpose(b"\\x01" * 32, 65536, "kill", keys=MasterKeys(keys) if keys else None)
)
start = int(sys.argv[4])
for number in itertools.count(start):
    tier.put(key(number), b"", block(number, 65536), float("inf"))
    if number % 8 == 0:
        assert tier.drain()
        print(number, flush=True)
"""


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_kill_9_at_any_moment(tmp_path: Path, encrypted: bool) -> None:
    """Each time: all blocks of the last report but those since replaced, every one found is right, and it goes on.
    Encrypted, each run writes with a new key and finds what its forerunners wrote with theirs."""
    rng, slots, start = random.Random(9), 24, 0
    keys: list[bytes] = []
    size = 5 * 4096 + slots * (65536 + HEADER_BYTES)
    for attempt in range(6):
        keys = [bytes((attempt,)) * 32, *keys] if encrypted else []
        where = [str(tmp_path / "d"), str(Path(__file__).parent), str(size), str(start)]
        run = [sys.executable, "-c", VICTIM, *where, *(each.hex() for each in keys)]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            reported = int(victim.stdout.readline())
            time.sleep(rng.random() * 0.05)
            victim.send_signal(signal.SIGKILL)
            rest = victim.stdout.read().split()
        reported = max([reported, *map(int, rest)])
        master = MasterKeys(keys) if keys else None
        tier = DiskTier(tmp_path / "d", size, Purpose(b"\x01" * 32, 65536, "kill", keys=master))
        numbers = sorted(int.from_bytes(name, "little") for name in tier.keys())  # noqa: SIM118
        newest = numbers[-1]
        assert newest >= reported
        assert len(numbers) in (slots - 1, slots) or newest < slots
        assert numbers == list(range(newest - len(numbers) + 1, newest + 1)), "a hole: some complete block is lost"
        for number in numbers:
            assert tier.finish(tier.begin(key(number))) == block(number, 65536)
        assert tier.stats().corrupt == 0
        tier.close()
        start = newest + 1


def test_closing_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("octavo-tier")]
        return len(threads), len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    for _ in range(3):
        tier = opened(tmp_path / "d", 4)
        tier.put(key(1), b"", block(1, SIZE))
        assert held()[0] == before[0] + 2
        tier.close()
        assert held() == before

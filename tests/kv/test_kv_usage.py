"""What sequences owe for their blocks, against an integral over every moment; and the sum of it against the pool's."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from octavo.errors import KVError
from octavo.kv import Accounting, KVCacheManager, SequenceUsage


class Naive:
    """Looks at all tables whenever time passes: a block in n tables costs each of them dt / n."""

    def __init__(self, **manager: object) -> None:
        self.now = 0.0
        self.kv = KVCacheManager(**manager, accounting=Accounting(lambda: self.now))  # type: ignore[arg-type]
        self.tokens: dict[int, list[int]] = {}
        self.owed: dict[int, float] = {}
        self.closed: dict[int, float] = {}
        self.total = 0.0

    def wait(self, seconds: float) -> None:
        rows = [
            (seq, block)
            for seq in self.tokens
            for group in range(len(self.kv.windows))
            for block in self.kv.block_ids(seq, group)
            if block >= 0
        ]
        holders: dict[int, int] = {}
        for _, block in rows:
            holders[block] = holders.get(block, 0) + 1
        for seq, block in rows:
            self.owed[seq] += seconds / holders[block]
        self.total += seconds * len(holders)
        self.now += seconds

    def open(self, seq: int, tokens: list[int]) -> None:
        self.tokens[seq], self.owed[seq] = tokens, 0.0
        self.kv.open(seq, tokens)

    def fork(self, parent: int, child: int) -> None:
        self.tokens[child], self.owed[child] = list(self.tokens[parent]), 0.0
        self.kv.fork(parent, child, self.tokens[child])

    def grow(self, seq: int, n: int) -> None:
        lacking = self.kv.committed(seq) + n - len(self.tokens[seq])
        self.tokens[seq] += [len(self.closed) % 2] * lacking
        if self.kv.extend(seq, n):
            self.kv.commit(seq, n)

    def close(self, seq: int) -> None:
        self.compare()
        self.closed[seq] = self.kv.usage(seq).block_seconds
        self.kv.close(seq)
        del self.tokens[seq]

    def compare(self) -> None:
        for seq in self.tokens:
            assert self.kv.usage(seq).block_seconds == pytest.approx(self.owed[seq], abs=1e-6)
        live = sum(self.kv.usage(seq).block_seconds for seq in self.tokens)
        stats = self.kv.stats()
        assert stats.block_seconds == pytest.approx(self.total, abs=1e-6)
        assert stats.block_seconds == pytest.approx(live + sum(self.closed.values()), abs=1e-6)


@pytest.mark.parametrize("windows", [(None,), (None, 5), (3,)])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_owed_is_the_integral_and_sums_to_the_total(seed: int, windows: tuple[int | None, ...]) -> None:
    rng = random.Random(seed)
    world = Naive(num_blocks=40, block_size=2, windows=windows)
    for number in range(300):
        live = list(world.tokens)
        match rng.randrange(6) if live else 0:
            case 0:
                world.open(number, [rng.randrange(2) for _ in range(rng.randrange(9))])
            case 1 | 2:
                world.grow(rng.choice(live), rng.randrange(6))
            case 3:
                world.fork(rng.choice(live), number)
            case 4:
                seq = rng.choice(live)
                with suppress(KVError):  # a window may have let go of what is left
                    world.kv.truncate(seq, max(0, world.kv.committed(seq) - 1))
                    del world.tokens[seq][world.kv.committed(seq) :]
            case _:
                world.close(rng.choice(live))
        if rng.random() < 0.3:
            world.kv.take_ops()
            world.kv.end_step()
        world.wait(rng.random())
        world.kv.check()
    world.compare()
    for seq in list(world.tokens):
        world.close(seq)
    world.compare()


def test_copies_and_rows_are_told() -> None:
    kv = KVCacheManager(8, 4)
    kv.open(1, [1, 2, 3, 4, 5, 6])
    assert kv.extend(1, 6)
    kv.commit(1, 6)
    kv.fork(1, 2, [1, 2, 3, 4, 5, 6])
    assert (kv.stats().rows, kv.stats().used) == (4, 2)
    assert kv.extend(2, 1)
    assert (kv.usage(1).copies, kv.usage(2).copies) == (0, 1)
    kv.close(1)
    with pytest.raises(KVError, match="not open"):
        kv.usage(1)


def test_close_tells_what_was_found_and_what_was_computed() -> None:
    told: dict[int, SequenceUsage] = {}
    kv = KVCacheManager(8, 4, accounting=Accounting(on_close=told.__setitem__))
    prompt = list(range(9))
    kv.open(1, prompt)
    assert kv.extend(1, 9)
    kv.commit(1, 9)
    assert len(kv.prefix_keys(1)) == 2
    kv.fork(1, 2, prompt.copy())
    kv.truncate(2, 8)
    assert kv.extend(2, 1)
    kv.commit(2, 1)
    kv.close(1)
    kv.open(3, prompt)
    for seq in (2, 3):
        kv.close(seq)
    assert {seq: (usage.opened, usage.committed) for seq, usage in told.items()} == {1: (0, 9), 2: (8, 9), 3: (8, 8)}

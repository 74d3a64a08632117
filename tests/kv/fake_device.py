"""A device and a lower tier whose slots hold a hash of their whole prefix. They trust no manager: they only do as told.

A slot's value is made of (layer group, hash of namespace and all tokens up to its position), so a stale, foreign, half
filled or unwritten slot never equals what its reader expects.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from octavo.kv import Copy, Fetch, Op, Spill

Content = tuple[Any, ...]


def slot_value(group: int, prefix_hash: int) -> tuple[int, int]:
    return group, prefix_hash


class Tier(Protocol):
    """What the device and its caller need of the memory below. unreliable: even what was promised may be lost."""

    unreliable: bool

    def contains(self, key: bytes) -> bool: ...
    def begin_step(self) -> None: ...
    def end_step(self) -> None: ...
    def put(self, key: bytes, content: Content) -> None: ...
    def get(self, key: bytes) -> Content | None: ...
    def lose(self, pick: int) -> None: ...


class FakeTier:
    """At most `capacity` blocks, oldest out first, except those promised to a step that has not run."""

    unreliable = False

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: dict[bytes, Content] = {}
        self.planned: set[bytes] = set()
        self.running: list[set[bytes]] = []

    def contains(self, key: bytes) -> bool:
        if key in self.blocks:
            self.planned.add(key)
        return key in self.blocks

    def begin_step(self) -> None:
        """The planned step's operations were taken."""
        self.running.append(self.planned)
        self.planned = set()

    def end_step(self) -> None:
        """The oldest of those steps has run."""
        self.running.pop(0)

    def put(self, key: bytes, content: Content) -> None:
        if key not in self.blocks:
            self.blocks[key] = content
            self.shrink()

    def get(self, key: bytes) -> Content | None:
        return self.blocks[key]

    def shrink(self) -> None:
        promised = self.planned.union(*self.running)
        for key in [key for key in self.blocks if key not in promised]:
            if len(self.blocks) <= self.capacity:
                return
            del self.blocks[key]

    def lose(self, pick: int) -> None:
        """A block that nobody was promised is gone."""
        promised = self.planned.union(*self.running)
        keys = [key for key in self.blocks if key not in promised]
        if keys:
            del self.blocks[keys[pick % len(keys)]]


class FakeDevice:
    """`num_blocks` blocks of slots, at first all garbage."""

    def __init__(self, num_blocks: int, block_size: int, tier: Tier | None) -> None:
        self.block_size = block_size
        self.blocks: list[list[Any]] = [
            [("garbage", block, i) for i in range(block_size)] for block in range(num_blocks)
        ]
        self.tier = tier
        self.meaning: dict[bytes, Content] = {}  # what every key ever published must stand for

    def fit(self, num_blocks: int) -> None:
        """As many blocks from now on: new ones are garbage, and those beyond are no more."""
        size = self.block_size
        self.blocks += [[("garbage", block, i) for i in range(size)] for block in range(len(self.blocks), num_blocks)]
        del self.blocks[num_blocks:]

    def run_ops(self, ops: Sequence[Op], order: random.Random, failing: set[int]) -> list[int]:
        """Run by phase, in random order inside each. Returns the blocks of fetches that failed: those in
        `failing`, and those that the tier lost."""
        kinds = [type(op) for op in ops]
        assert kinds == sorted(kinds, key=(Spill, Copy, Fetch).index), "operations are not in order of phase"
        failed: list[int] = []
        for kind in (Spill, Copy, Fetch):
            phase = [op for op in ops if isinstance(op, kind)]
            order.shuffle(phase)
            for op in phase:
                self._run(op, failing, failed)
        return failed

    def _run(self, op: Op, failing: set[int], failed: list[int]) -> None:
        match op:
            case Spill(block, key):
                content = tuple(self.blocks[block])
                assert content == self.meaning.get(key), f"{op} reads a block that does not hold what its key says"
                assert self.tier is not None
                self.tier.put(key, content)
            case Copy(src, dst):
                assert src != dst
                self.blocks[dst] = self.blocks[src][:]
            case Fetch(key, block):
                assert self.tier is not None
                content = None if block in failing else self.tier.get(key)
                if content is None:
                    self.blocks[block] = [("half fetched", block, i) for i in range(self.block_size)]
                    failed.append(block)
                else:
                    self.blocks[block] = list(content)

    def write(self, table: Sequence[int], position: int, value: Any) -> None:
        block = table[position // self.block_size]
        assert block >= 0, f"position {position} is to be written and has no block"
        self.blocks[block][position % self.block_size] = value

    def read(self, table: Sequence[int], position: int) -> Any:
        block = table[position // self.block_size]
        assert block >= 0, f"position {position} is to be read and was given back"
        return self.blocks[block][position % self.block_size]

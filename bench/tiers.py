"""Cost of a block's way down and up: python bench/tiers.py [--blocks N] [--dir PATH] [--json]. Medians, wall clock.

A block is one of SmolLM2-135M: 16 tokens, 30 layers, 3 heads of 64, float32. `spill` is what the step waits for;
`written` is until the disk (through the system's cache) has the block; `fetch` is verified bytes back in the pool.
`crypt` is an encrypted disk."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from octavo.exec.block_mover import BlockMover
from octavo.kv import Fetch, Op, Spill
from octavo.ops.base import KVLayout
from octavo.ops.kv_pool import KVPool
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack
from octavo.tiers.encryption import KEY_BYTES, MasterKeys
from octavo.tiers.seal import HEADER_BYTES

LAYOUT = KVLayout(8, layers=30, kv_heads=3, block_size=16, head_size=64)
REPEATS = 5


def measure(prepare: Callable[[int], tuple[BlockMover, DiskTier | None]], blocks: int) -> dict[str, float]:
    """Median milliseconds a block, over REPEATS runs of `blocks` blocks."""
    samples: dict[str, list[float]] = {}
    for repeat in range(REPEATS):
        mover, disk = prepare(repeat)
        keys = [number.to_bytes(33, "little") for number in range(blocks)]
        steps: list[tuple[str, list[Op]]] = [("spill", [Spill(number % 8, key) for number, key in enumerate(keys)])]
        steps.append(("fetch", [Fetch(key, number % 8) for number, key in enumerate(keys)]))
        for name, ops in steps:
            begun = perf_counter()
            for op in ops:  # a step each, so that a spill may wait for room as it does when serving
                if mover.run([op]):
                    sys.exit(f"{op} failed")
            samples.setdefault(name, []).append((perf_counter() - begun) / blocks * 1e3)
            if name == "spill" and disk is not None:
                disk.drain()
                samples.setdefault("written", []).append((perf_counter() - begun) / blocks * 1e3)
        assert mover.tiers is not None
        mover.tiers.close()
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--dir", help="where the disk tier is made; by default the system's place for temporary files")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pool = KVPool(LAYOUT)
    pool.array[:] = np.random.default_rng(0).standard_normal(pool.array.shape, np.float32)
    size, blocks = LAYOUT.block_bytes, arguments.blocks

    def host(_: int) -> tuple[BlockMover, None]:
        tier = HostTier(blocks * size, size)
        for number in range(blocks):  # its memory has been used before, as after the first minutes of serving
            tier.put(b"former" + number.to_bytes(4, "little"), b"", bytes(size))
        return BlockMover(pool, TierStack(host=tier)), None

    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:

        def disk(repeat: int, keys: MasterKeys | None = None) -> tuple[BlockMover, DiskTier]:
            budget = 5 * 4096 + blocks * (size + HEADER_BYTES)
            name = f"{repeat}{'' if keys is None else ' encrypted'}"
            tier = DiskTier(Path(folder) / name, budget, Purpose(os.urandom(32), size, keys=keys))
            return BlockMover(pool, TierStack(disk=tier)), tier

        encrypted = partial(disk, keys=MasterKeys([os.urandom(KEY_BYTES)]))
        result = {"host": measure(host, blocks), "disk": measure(disk, blocks), "crypt": measure(encrypted, blocks)}
    if arguments.json:
        print(json.dumps({"machine": platform.processor(), "block_bytes": size, "ms_a_block": result}))
        return
    print(f"a block of {size / 2**20:.2f} MiB, {blocks} at a time")
    for tier, figures in result.items():
        for name, ms in figures.items():
            print(f"{tier:5} {name:8} {ms:8.3f} ms a block {size / ms / 1e6:7.2f} GB/s")


if __name__ == "__main__":
    main()

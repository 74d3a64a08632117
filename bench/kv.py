"""Cost of octavo.kv per operation: python bench/kv.py [--json]. Medians of repeated runs, in microseconds of CPU time.

CPU time of this one thread, and not the clock, so that neighbours on the machine weigh little."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable
from time import process_time

from octavo.kv import KVCacheManager
from octavo.kv.keys import BlockKeys

BLOCK_SIZE = 16
REPEATS = 31


def median_us(run: Callable[[], int]) -> float:
    """Median over REPEATS of the time of `run` / the number of operations that it returns."""
    samples = []
    for _ in range(REPEATS):
        start = process_time()
        operations = run()
        samples.append((process_time() - start) / operations * 1e6)
    return statistics.median(samples)


def filled(num_blocks: int, tokens: list[int]) -> KVCacheManager:
    """A manager whose sequence 0 holds `tokens`."""
    kv = KVCacheManager(num_blocks, BLOCK_SIZE)
    kv.open(0, tokens)
    kv.extend(0, len(tokens))
    kv.commit(0, len(tokens))
    return kv


def decode(tokens: list[int]) -> int:
    """extend + commit of one token, hashing and allocation of its blocks included."""
    kv = KVCacheManager(256, BLOCK_SIZE)
    kv.open(0, tokens)
    for _ in range(2048):
        kv.extend(0, 1)
        kv.commit(0, 1)
    return 2048


def hash_block() -> int:
    """The key of one 16-token block."""
    keys, tokens = BlockKeys(BLOCK_SIZE), list(range(50_000, 50_000 + 128 * BLOCK_SIZE))
    prefix = keys.root(b"")
    for number in range(128):
        prefix = keys.child(prefix, tokens, number)
    return 128


def match(kv: KVCacheManager, tokens: list[int]) -> int:
    """open of a prompt whose first 128 blocks are cached."""
    if kv.open(1, tokens) != 2048:
        raise AssertionError("the prompt is not cached")
    return 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    as_json = parser.parse_args().json
    tokens = list(range(2049))
    kv = filled(300, tokens)
    results: dict[str, float] = {
        "extend+commit, one token": median_us(lambda: decode(tokens)),
        "hash, 16-token block": median_us(hash_block),
    }
    timed: dict[str, list[float]] = {"match, 128 blocks": [], "fork, 129 blocks": [], "close, 129 blocks": []}
    for _ in range(REPEATS):
        marks = [process_time()]
        match(kv, tokens)
        marks.append(process_time())
        kv.fork(0, 2, tokens)
        marks.append(process_time())
        kv.close(2)
        marks.append(process_time())
        kv.close(1)
        for name, start, end in zip(timed, marks, marks[1:], strict=False):
            timed[name].append((end - start) * 1e6)
    results |= {name: statistics.median(samples) for name, samples in timed.items()}
    if as_json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "block_size": BLOCK_SIZE}
        json.dump({"unit": "us", "median": results, **machine}, sys.stdout, indent=1)
        print()
    else:
        for name, value in results.items():
            print(f"{name:<26}{value:>9.2f} us")


if __name__ == "__main__":
    main()

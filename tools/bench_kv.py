"""What the verbs of `octavo.kv` cost, in microseconds of CPU time, through the public interface (`make bench-kv`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from octavo.kv import KVCacheManager

BLOCK = 16
REPEATS = 5


def best(run: Callable[[], int]) -> float:
    """Microseconds for one of the operations that `run` does and counts; the best of several runs."""
    rates = []
    for _ in range(REPEATS):
        started = time.process_time()
        count = run()
        rates.append((time.process_time() - started) / count)
    return min(rates) * 1e6


def decode(prefix_cache: bool) -> int:
    """One token at a time for 64 sequences: extend and commit, end_step once for all."""
    kv = KVCacheManager(4096, BLOCK, prefix_cache=prefix_cache)
    tokens: list[list[int]] = [[seq] for seq in range(64)]
    for seq, own in enumerate(tokens):
        kv.open(seq, own)
    steps = 256
    for step in range(steps):
        for seq, own in enumerate(tokens):
            kv.extend(seq, 1)
            kv.commit(seq, 1)
            own.append(step)
        kv.take_ops()
        kv.end_step()
    return steps * len(tokens)


def publish() -> int:
    """Prompts of 64 full blocks: hashing and publishing, for one block."""
    kv = KVCacheManager(8192, BLOCK)
    for seq in range(64):
        prompt = list(range(seq, seq + 64 * BLOCK))
        kv.open(seq, prompt)
        kv.extend(seq, len(prompt))
        kv.commit(seq, len(prompt))
    return 64 * 64


def match(blocks: int) -> Callable[[], int]:
    """Opening and closing a sequence whose first `blocks` blocks are cached."""
    prompt = list(range(blocks * BLOCK + 1))
    kv = KVCacheManager(blocks * 2 + 2, BLOCK)
    kv.open(0, prompt)
    kv.extend(0, len(prompt))
    kv.commit(0, len(prompt))
    kv.close(0)

    def run() -> int:
        for seq in range(1, 101):
            found = kv.open(seq, list(prompt))
            assert found == blocks * BLOCK, found
            kv.close(seq)
        return 100

    return run


def fork() -> int:
    """Forking a sequence of 64 blocks and closing the fork."""
    kv = KVCacheManager(256, BLOCK)
    prompt = list(range(64 * BLOCK - 3))
    kv.open(0, prompt)
    kv.extend(0, len(prompt))
    kv.commit(0, len(prompt))
    for child in range(1, 501):
        kv.fork(0, child, list(prompt))
        kv.close(child)
    return 500


def main() -> None:
    """Print the table."""
    rows: list[tuple[str, Callable[[], int]]] = [
        ("extend + commit of one token, 64 sequences", lambda: decode(True)),
        ("the same without the prefix cache", lambda: decode(False)),
        (f"hash and publish a block of {BLOCK} tokens", publish),
        ("open on 128 cached blocks, close", match(128)),
        ("open on 1024 cached blocks, close", match(1024)),
        ("fork 64 blocks, close", fork),
    ]
    for name, run in rows:
        print(f"{name:<44} {best(run):>9.2f} us")


if __name__ == "__main__":
    main()

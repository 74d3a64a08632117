"""How much of the KV memory that is taken holds live tokens: python bench/utilisation.py [--block-size 1 4 16 64 256].

The real scheduler and block manager serve a chat mix of random lengths; the model is a stub, as only the allocator is
measured. Lengths are drawn from log-normal distributions with the means that ShareGPT conversations have (161 tokens in
and 338 out) and its long tail (sigma 1.2 and 1.0), cut at the context of 2,048. The queue is never empty.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.kv import KVCacheManager
from octavo.sched import Limits, Request, Scheduler

CONTEXT = 2048
MEAN_IN, SIGMA_IN = 161, 1.2
MEAN_OUT, SIGMA_OUT = 338, 1.0
POOL_TOKENS = 32_768
MAX_SEQS = 64


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the steps after the pool first filled. utilisation: live tokens over the slots of used blocks.
    contiguous: the same, had each sequence that runs taken its whole context at once."""

    utilisation: float
    least: float
    contiguous: float
    running: float
    used: float
    preemptions: int


def lengths(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Tokens of prompt and answer, for ever."""
    while True:
        prompt = round(rng.lognormvariate(math.log(MEAN_IN) - SIGMA_IN**2 / 2, SIGMA_IN))
        answer = round(rng.lognormvariate(math.log(MEAN_OUT) - SIGMA_OUT**2 / 2, SIGMA_OUT))
        prompt = min(max(prompt, 1), CONTEXT - 1)
        yield prompt, min(max(answer, 1), CONTEXT - prompt)


def measure(block_size: int, requests: int, seed: int) -> Figures:
    """Serve that many requests; no two prompts begin alike, so that nothing is shared."""
    kv = KVCacheManager(POOL_TOKENS // block_size, block_size)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=2048, max_seqs=MAX_SEQS, max_model_len=CONTEXT))
    rng = random.Random(seed)
    draw, number, ended = lengths(rng), 0, 0
    rows: list[tuple[float, float, int, float]] = []
    while ended < requests:
        while scheduler.waiting < 8:
            prompt, answer = next(draw)
            scheduler.add(Request(number, [rng.randrange(1 << 20) for _ in range(prompt)], max_tokens=answer))
            number += 1
        step = scheduler.schedule()
        ended += len(scheduler.apply(step, {row.seq: 7 for row in step.rows if row.sample}))
        kv.end_step()
        if ended > MAX_SEQS and step.id % 8 == 0:
            stats = kv.stats()
            contiguous = stats.tokens / (scheduler.running * CONTEXT)
            rows.append((stats.utilisation, contiguous, scheduler.running, stats.used / stats.num_blocks))
    columns = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    least = min(row[0] for row in rows)
    return Figures(columns[0], least, columns[1], columns[2], columns[3], scheduler.stats().preemptions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--block-size", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("block  effective utilisation (least)  contiguous  running  pool used  preemptions")
    for size in arguments.block_size:
        each = measure(size, arguments.requests, arguments.seed)
        print(
            f"{size:5}  {each.utilisation:9.2%} ({each.least:.2%}) {each.contiguous:20.2%} {each.running:8.1f}"
            f" {each.used:10.1%} {each.preemptions:12}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

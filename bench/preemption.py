"""What it costs to have a preempted sequence back, by block size: python bench/preemption.py [--dir PATH] [--json].

For each block size: `recompute`, the block's tokens through the model as part of a long prompt; `host` and `disk`, a
verified block from there into the pool (the disk through the system's cache). Milliseconds a block, medians of REPEATS,
with the least and the most; and the prompt tokens a second beyond which computing would be sooner than that tier. Then
the size from which each tier beats computing, and for a pool under pressure, in
counts that no machine changes, what is lost with and without the watermark, and closing against cutting back; and
whether it matters who gives way: the last in rank, or whoever loses least, or most, for each block that is taken."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

from octavo import LLM, SamplingParams
from octavo.exec.block_mover import BlockMover
from octavo.kv import Fetch, KVCacheManager, Spill
from octavo.sched import Limits, Request, Scheduler
from octavo.sched.cost import RECOMPUTE, Speeds
from octavo.sched.plan import Plan
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack
from octavo.tiers.block_file import HEADER_BYTES

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = 512  # of the sequence that comes back
REPEATS = 4
SEEDS = 4
Windows = tuple[int | None, ...]
MIXES: dict[str, tuple[bool, int, Windows]] = {  # prefix cache, answers to one prompt in three, layer windows
    "cached": (True, 1, (None,)),
    "no cache": (False, 1, (None,)),
    "four answers": (True, 4, (None,)),
    "windows": (True, 1, (None, 128)),
}


@dataclass(frozen=True)
class Sample:
    """Milliseconds a block."""

    median: float
    least: float
    most: float


def sample(seconds: list[float], blocks: float) -> Sample:
    values = [each * 1e3 / blocks for each in seconds]
    return Sample(statistics.median(values), min(values), max(values))


def measure(model: str, size: int, folder: Path) -> tuple[int, dict[str, Sample]]:
    """Bytes of a block, and its ways back."""
    blocks = TOKENS // size
    rng = random.Random(size)
    with LLM(model, block_size=size, num_blocks=2 * blocks + 8, max_model_len=TOKENS + 8, prefix_cache=False) as llm:
        computing = []
        for _ in range(REPEATS + 1):
            tokens = [rng.randrange(1000, 40000) for _ in range(TOKENS)]
            begun = perf_counter()
            llm.generate(tokens, SamplingParams(max_tokens=1), progress=False)
            computing.append(perf_counter() - begun)
        ways = {RECOMPUTE: sample(computing[1:], blocks)}
        pool = llm.engine._mover._blocks
        block_bytes = len(pool.read_block(0))
        for tier in ("host", "disk"):
            ways[tier] = sample([fetch(pool, tier, blocks, folder / f"{size}-{n}") for n in range(REPEATS)], blocks)
    return block_bytes, ways


def fetch(pool: object, tier: str, blocks: int, folder: Path) -> float:
    """Seconds in which `blocks` blocks come back in one step."""
    size = len(pool.read_block(0))  # type: ignore[attr-defined]
    if tier == "host":
        stack = TierStack(host=HostTier((blocks + 1) * size, size))
    else:
        budget = 8 * 4096 + 2 * blocks * (size + 2 * HEADER_BYTES)
        stack = TierStack(disk=(disk := DiskTier(folder, budget, Purpose(os.urandom(32), size))))
    mover = BlockMover(pool, stack)  # type: ignore[arg-type]
    keys = [number.to_bytes(33, "little") for number in range(blocks)]
    for number, key in enumerate(keys):
        mover.run([Spill(number, key)])
        if tier == "disk":
            disk.drain()
    begun = perf_counter()
    lost = mover.run([Fetch(key, number) for number, key in enumerate(keys)])
    seconds = perf_counter() - begun
    stack.close()
    if lost:
        raise SystemExit(f"{len(lost)} blocks were not stored")
    return seconds


def pressure(num_blocks: int, *, watermark: bool, prefix_cache: bool = True, close: bool = False) -> dict[str, int]:
    """400 requests of 16 to 400 tokens and about 250 new ones, all at once, 64 places, blocks of 16."""
    rng, kv = random.Random(0), KVCacheManager(num_blocks, 16, prefix_cache=prefix_cache)
    scheduler = Scheduler(kv, Limits(2048, 64, 4096))
    needed = 0
    for seq in range(400):
        prompt, new = rng.randint(16, 400), min(1500, max(1, int(rng.expovariate(1 / 250))))
        needed += prompt + new - 1
        scheduler.add(Request(seq, [rng.randrange(50_000) for _ in range(prompt)], max_tokens=new))
    with (
        patch("octavo.sched.watermark.MOST", 8 if watermark else 1 << 40),
        patch.object(Scheduler, "_cut_back", (lambda *_: False) if close else Scheduler._cut_back),
    ):
        while scheduler.has_work:
            step = scheduler.schedule()
            scheduler.apply(step, {row.seq: 1 for row in step.rows if row.sample})
            kv.end_step()
    stats = scheduler.stats()
    again = stats.computed_tokens - needed
    return {
        "steps": stats.steps,
        "preemptions": stats.preemptions,
        "again": again,
        "again_percent": 100 * again // needed,
    }


class CostChosen(Scheduler):
    """Takes blocks from whoever loses least (sign 1), or most (-1), for each, of those that rank after the one in need
    and never gave way. It then ranks last of those that run, so that all else holds, but for who goes first."""

    sign = 1

    def _preempt_last(self, plan: Plan, by: Request) -> None:
        self._choose(by)
        super()._preempt_last(plan, by)

    def _cut_back(self, wanted: int, plan: Plan, by: Request) -> bool:
        self._choose(by)
        return super()._cut_back(wanted, plan, by)

    def _choose(self, by: Request) -> None:
        last = self._running[-1]
        fresh = [each for each in self._running if each.rank > by.rank and not each.preemptions]
        if last not in fresh:
            return
        chosen = min(fresh, key=lambda each: (self.sign * self._loss(each), -each.age))
        first = self._running.index(chosen)
        ages = [each.age for each in self._running[first:]]
        self._running[first:] = [*self._running[first + 1 :], chosen]
        for each, age in zip(self._running[first:], ages, strict=True):
            each.age, each.rank = age, (0.0, age)

    def _loss(self, victim: Request) -> float:
        """Tokens to compute again for each of two blocks, its last, unfilled one lost in any case. A block that others
        share is not freed."""
        kv, size, needed = self.kv, self.kv.block_size, 2
        own = sum(kv._pool.refs[block] == 1 for block in kv.block_ids(victim.id) if block >= 0)
        return (kv.committed(victim.id) % size + (needed - 1) * size) / min(own, needed) if own else float("inf")


def chosen_by(who: str, mix: str, seed: int) -> tuple[int, int, int]:
    """Steps, preemptions and tokens computed for 250 requests of one of MIXES, 400 blocks of 16."""
    prefix_cache, most_answers, windows = MIXES[mix]
    rng, kv = random.Random(seed), KVCacheManager(400, 16, prefix_cache=prefix_cache, windows=windows)
    scheduler = (Scheduler if who == "the last in rank" else CostChosen)(kv, Limits(2048, 64, 4096))
    if isinstance(scheduler, CostChosen):
        scheduler.sign = 1 if who == "the cheapest" else -1
    ids = itertools.count()
    for _ in range(250):
        prompt, new = rng.randint(16, 400), min(1500, max(1, int(rng.expovariate(1 / 250))))
        seqs = [next(ids) for _ in range(rng.choice([1, 1, most_answers]))]
        tokens = [rng.randrange(50_000) for _ in range(prompt)]
        scheduler.add(Request(seqs[0], tokens, max_tokens=new, n=len(seqs), children=tuple(seqs[1:])))
    while scheduler.has_work:
        step = scheduler.schedule()
        scheduler.apply(step, {row.seq: 1 + row.seq % 7 for row in step.rows if row.sample})
        kv.end_step()
    stats = scheduler.stats()
    return stats.steps, stats.preemptions, stats.computed_tokens


def choices() -> dict[str, dict[str, str]]:
    """By mix and by who gives way: means over SEEDS."""
    table: dict[str, dict[str, str]] = {}
    for mix in MIXES:
        for who in ("the last in rank", "the cheapest", "the dearest"):
            runs = [chosen_by(who, mix, seed) for seed in range(SEEDS)]
            steps, preemptions, computed = (statistics.mean(values) for values in zip(*runs, strict=True))
            table.setdefault(mix, {})[who] = f"{steps:.0f} steps, {preemptions:.0f} preempted, {computed:.0f} computed"
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument(
        "--dir", help="where the disk tiers are made; by default the system's place for temporary files"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--victims", action="store_true", help="only whether it matters who gives way")
    arguments = parser.parse_args()
    if arguments.victims:
        print(json.dumps(choices(), indent=1))
        return
    curve, crossover = {}, {"host": None, "disk": None}
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        for size in SIZES:
            block_bytes, ways = measure(arguments.model, size, Path(folder))
            seconds = {way: each.median / 1e3 for way, each in ways.items()}
            speeds = Speeds(size / seconds[RECOMPUTE], {way: s for way, s in seconds.items() if way != RECOMPUTE})
            for tier in crossover:
                if crossover[tier] is None and seconds[tier] < seconds[RECOMPUTE]:
                    crossover[tier] = size
            ms = {way: asdict(each) for way, each in ways.items()}
            even = {tier: round(size / seconds[tier]) for tier in crossover}
            curve[size] = {"block_bytes": block_bytes, "best": speeds.way_back(size), "ms": ms, "even": even}
    pools = {
        blocks: {
            "with the watermark": pressure(blocks, watermark=True),
            "without": pressure(blocks, watermark=False),
            "no cache, cut back": pressure(blocks, watermark=True, prefix_cache=False),
            "no cache, closed": pressure(blocks, watermark=True, prefix_cache=False, close=True),
        }
        for blocks in (300, 600)
    }
    if arguments.json:
        print(
            json.dumps({"model": arguments.model, "curve": curve, "crossover": crossover, "pressure": pools}, indent=1)
        )
        return
    print("tokens   KiB |  recompute ms a block |   host |   disk | best | tokens/s beyond which computing is sooner")
    for size, row in curve.items():
        cells = " | ".join(
            f"{each['median']:8.3f} ({each['least']:.3f}-{each['most']:.3f})" for each in row["ms"].values()
        )
        even = " ".join(f"{tier} {speed:,}" for tier, speed in row["even"].items())
        print(f"{size:6} {row['block_bytes'] / 1024:5.0f} | {cells} | {row['best']} | {even}")
    print(f"block size from which fetching is sooner: {crossover}")
    for blocks, runs in pools.items():
        for name, counts in runs.items():
            print(f"{blocks} blocks, {name}: {counts}")


if __name__ == "__main__":
    main()

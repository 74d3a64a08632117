"""What looking costs: python bench/looking.py MODEL. Tokens/s with and without a page that polls GET /pool each second.

Rounds alternate, so that a machine that speeds up or slows down weighs on both alike. Also: how long the engine is kept
by one picture of pools of several sizes, and how many bytes it is."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from octavo import AsyncEngine, EngineConfig, SamplingParams
from octavo.server.known import KnownRequests
from octavo.server.pool import PoolWatch

POLL_S = 1.0


def prompt(rng: random.Random, length: int) -> list[int]:
    """Token ids that nothing else begins with."""
    return [rng.randrange(1000, 20_000) for _ in range(length)]


async def load(engine: AsyncEngine, answers: int, tokens: int, rng: random.Random) -> float:
    """Tokens a second while `answers` answers of `tokens` tokens are made at once."""
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    began = time.perf_counter()
    await asyncio.gather(*(engine.generate(prompt(rng, 32), params) for _ in range(answers)))
    return answers * tokens / (time.perf_counter() - began)


async def poll(watch: PoolWatch, sizes: list[int], costs: list[float]) -> None:
    """A page that is open."""
    while True:
        sizes.append(len(await watch.body("")))
        costs.append(watch.cost_s)
        await asyncio.sleep(POLL_S)


async def measure(model: str, blocks: int, options: argparse.Namespace) -> dict[str, Any]:
    """One pool size: `rounds` pairs of a quiet and a watched load."""
    config = EngineConfig(num_blocks=blocks, max_seqs=options.answers, threads=options.threads)
    rng = random.Random(blocks)
    quiet, watched, sizes, costs = list[float](), list[float](), list[int](), list[float]()
    with ThreadPoolExecutor(1) as threads:
        async with AsyncEngine(model, config) as engine:
            watch = PoolWatch(engine.picture, KnownRequests(), model, threads)
            await load(engine, options.answers, options.tokens, rng)  # warm, and something cached
            for _ in range(options.rounds):
                quiet.append(await load(engine, options.answers, options.tokens, rng))
                polling = asyncio.create_task(poll(watch, sizes, costs))
                watched.append(await load(engine, options.answers, options.tokens, rng))
                polling.cancel()
    ratios = [100 * (1 - second / first) for first, second in zip(quiet, watched, strict=True)]
    return {
        "blocks": blocks,
        "quiet_tokens_per_s": round(statistics.median(quiet), 1),
        "watched_tokens_per_s": round(statistics.median(watched), 1),
        "loss_percent": [round(ratio, 2) for ratio in sorted(ratios)],
        "picture_ms": [round(1e3 * cost, 2) for cost in (min(costs), statistics.median(costs), max(costs))],
        "body_bytes": [min(sizes), max(sizes)],
    }


def main() -> None:
    """Print a JSON line for each pool size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--blocks", type=int, nargs="+", default=[10_240])
    parser.add_argument("--answers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for blocks in options.blocks:
        print(json.dumps(asyncio.run(measure(options.model, blocks, options))), flush=True)


if __name__ == "__main__":
    main()

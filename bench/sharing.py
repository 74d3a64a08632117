"""What sharing saves: python bench/sharing.py [--part sampling beams prefix] [--requests N] [--rounds R] [--json].

`sampling`, `beams`: of the blocks that the same sequences would hold unshared, the part that sharing saves (1 - blocks
used / entries of all tables), mean over steps. Prompts and answers have the lengths of Alpaca (19 and 58 tokens) and
of ShareGPT (161 and 338), as `octavo bench serve` draws them; no two prompts begin alike, so that requests share
nothing with each other. For sampling the scheduler and the block manager run alone: how samples share does not hang on
what they say. Beams are those of `--model` on pieces of this repository's documentation: where they branch, it decides.
`prefix`: generated tokens a second of 64 requests at once that begin with the same 341 tokens and go on with 27 of
their own and 30 new ones, with the prefix cache, which knows nothing of them before, and without; medians of R rounds
in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from octavo import LLM, SamplingParams
from octavo.cli.load.schedule import MIXES
from octavo.kv import KVCacheManager
from octavo.sched import Limits, Request, Scheduler

COUNTS = (2, 4, 6)
CONTEXT = 2048
PREFIX, OWN, NEW, REQUESTS = 341, 27, 30, 64


def lengths(mix: str, count: int) -> Iterator[tuple[int, int]]:
    """Tokens of prompt and answer."""
    draw, (prompt, answer) = random.Random(0), MIXES[mix]
    for _ in range(count):
        taken = min(prompt.draw(draw), CONTEXT // 2)
        yield taken, min(answer.draw(draw), CONTEXT - taken)


def saved_by_samples(mix: str, samples: int, requests: int) -> float:
    """That part, of `requests` requests on 64 places, for parallel sampling."""
    kv = KVCacheManager(8192, 16)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=2048, max_seqs=64, max_model_len=CONTEXT))
    draw, ids, parts = random.Random(1), itertools.count(), []
    for prompt, answer in lengths(mix, requests):
        seq, *children = itertools.islice(ids, samples)
        tokens = [draw.randrange(1 << 20) for _ in range(prompt)]
        scheduler.add(Request(seq, tokens, max_tokens=answer, n=samples, children=tuple(children)))
    while scheduler.has_work:
        step = scheduler.schedule()
        stats = kv.stats()
        parts.append(1 - stats.used / stats.rows if stats.rows else 0.0)
        sampled = {row.seq: draw.randrange(1 << 20) for row in step.rows if row.sample}
        scheduler.apply(step, sampled)
        kv.end_step()
    return statistics.fmean(parts)


def saved_by_beams(llm: LLM, mix: str, width: int, requests: int) -> float:
    """That part, of `requests` beam searches."""
    root = Path(__file__).resolve().parent.parent
    text = llm.tokenizer.encode("\n".join(path.read_text() for path in sorted((root / "docs").glob("*.md"))))
    parts, at = [], 0
    for prompt, answer in lengths(mix, requests):
        params = SamplingParams(max_tokens=answer, beam_width=width, n=width, ignore_eos=True)
        llm.engine.add(text[at : at + prompt], params, seed=0)
        at += prompt
    while llm.engine.has_work:
        llm.engine.step()
        stats = llm.stats()
        if stats.blocks_used:
            parts.append(1 - 1 / stats.sharing_ratio)
    return statistics.fmean(parts)


def throughput(llm: LLM, number: int) -> float:
    """Generated tokens a second of one round, whose prefix no round before had."""
    draw = random.Random(number)
    prefix = [draw.randrange(1000, 40000) for _ in range(PREFIX)]
    prompts = [[*prefix, *(draw.randrange(1000, 40000) for _ in range(OWN))] for _ in range(REQUESTS)]
    begun = perf_counter()
    llm.generate(prompts, SamplingParams(max_tokens=NEW, ignore_eos=True), progress=False)
    return REQUESTS * NEW / (perf_counter() - begun)


def shared_prefix(model: str, rounds: int) -> dict[str, Any]:
    """Both engines' rates, a round of each in turn, and the quotients of the pairs."""
    settings: dict[str, Any] = {"max_model_len": 512, "max_seqs": REQUESTS, "num_blocks": 2048}
    with LLM(model, **settings) as cached, LLM(model, prefix_cache=False, **settings) as plain:
        for llm in (cached, plain):
            llm.generate([[1000 + number] * 64 for number in range(8)], SamplingParams(max_tokens=4), progress=False)
        pairs = [(throughput(cached, number), throughput(plain, number)) for number in range(rounds)]
    return {"cached": [a for a, _ in pairs], "plain": [b for _, b in pairs], "gain": [a / b for a, b in pairs]}


def show(result: dict[str, Any]) -> None:
    """As a table."""
    for part in ("sampling", "beams"):
        if part in result:
            print(f"{part + ': memory saved':24}" + "".join(f"{count:>8}" for count in COUNTS))
            for mix, row in result[part].items():
                print(f"  {mix:22}" + "".join(f"{saved:8.1%}" for saved in row.values()))
    for name, values in result.get("prefix", {}).items():
        print(f"prefix, {name:8} {statistics.median(values):8.2f} ({min(values):.2f}-{max(values):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--part", nargs="+", choices=("sampling", "beams", "prefix"), default=("sampling", "beams"))
    parser.add_argument("--mix", nargs="+", choices=("alpaca", "sharegpt"), default=("alpaca", "sharegpt"))
    parser.add_argument("--requests", type=int, default=4, help="beam searches at once; samplings: 100 times as many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    result: dict[str, Any] = {}
    if "sampling" in asked.part:
        result["sampling"] = {
            mix: {count: saved_by_samples(mix, count, 100 * asked.requests) for count in COUNTS} for mix in asked.mix
        }
    if "beams" in asked.part:
        with LLM(asked.model, max_model_len=CONTEXT, num_blocks=4096, max_seqs=64) as llm:
            result["beams"] = {
                mix: {count: saved_by_beams(llm, mix, count, asked.requests) for count in COUNTS} for mix in asked.mix
            }
    if "prefix" in asked.part:
        result["prefix"] = shared_prefix(asked.model, asked.rounds)
    if asked.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)


if __name__ == "__main__":
    main()

"""What a disk tier is worth after a restart: python bench/restart.py [--model M] [--tokens N] [--repeats R] [--json].

A prompt of N tokens is computed once, its engine closed, and another opened on the same directory. Medians of R:
`cold`: time to the first token without the tier; `alone`: with it, nothing else running; `beside`: with it, while one
other answer is generated, and `gap`, the longest time between two tokens of that one meanwhile: both with blocks read
ahead of the request's admission, and without (they are read in the step, which everybody waits for)."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, sleep

from octavo import LLM, SamplingParams
from octavo.engine.engine import Engine
from octavo.engine.tiers import Prefetcher
from octavo.tiers.files import Files

ONE = SamplingParams(max_tokens=1, ignore_eos=True)
MANY = SamplingParams(max_tokens=200, ignore_eos=True)


def slow_down(delay_s: float) -> None:
    """Stand in for a slower disk than this machine's, whose system has all of a new file in memory."""
    plain = Files.read

    def read(self: Files, fd: int, length: int, offset: int) -> bytes:
        if length > 4096:
            sleep(delay_s)
        return plain(self, fd, length, offset)

    if delay_s:
        Files.read = read  # type: ignore[method-assign]


def first_token(engine: Engine, prompt: list[int]) -> tuple[float, float]:
    """(seconds to the first token of `prompt`, the longest time between two tokens of anything else meanwhile)."""
    begun = last = perf_counter()
    request, gap = engine.add(prompt, ONE, seed=0), 0.0
    while True:
        deltas = engine.step()
        now = perf_counter()
        if any(delta.request_id != request for delta in deltas):
            gap, last = max(gap, now - last), now
        if any(delta.request_id == request for delta in deltas):
            return now - begun, gap


def measure(model: str, tokens: int, folder: Path, ahead: bool, keys: str | None) -> dict[str, float]:
    """Seconds, of one restart."""
    prompt = [100 + number % 4000 for number in range(tokens)]
    result: dict[str, float] = {}
    disk = {"disk_kv": folder / "tier", "disk_kv_size": "2GiB", "disk_kv_key": keys}
    with LLM(model, max_seqs=8, **disk) as llm:  # type: ignore[arg-type]
        result["cold"], _ = first_token(llm.engine, prompt)
    with LLM(model, max_seqs=8, **disk) as llm:  # type: ignore[arg-type]
        result["alone"], _ = first_token(llm.engine, prompt)
    with LLM(model, max_seqs=8, **disk) as llm:  # type: ignore[arg-type]
        engine = llm.engine
        if not ahead:
            engine._prefetcher = Prefetcher(engine._kv, engine._scheduler, None)
        engine.add([7] * 32, MANY, seed=0)
        for _ in range(20):
            engine.step()
        result["beside"], result["gap"] = first_token(engine, prompt)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keys", help="a file of keys: encrypted")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="every read of a block takes so much longer")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    slow_down(arguments.delay_ms / 1e3)
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(arguments.repeats):
        for name, ahead in (("read ahead", True), ("read in the step", False)):
            with tempfile.TemporaryDirectory() as folder:
                figures = measure(arguments.model, arguments.tokens, Path(folder), ahead, arguments.keys)
            for figure, value in figures.items():
                found.setdefault(name, {}).setdefault(figure, []).append(value * 1e3)
    if arguments.json:
        print(json.dumps({"tokens": arguments.tokens, "ms": found}))
        return
    for name, samples in found.items():
        for figure, values in samples.items():
            print(f"{name:17} {figure:7} {statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()

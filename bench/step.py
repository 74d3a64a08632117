"""Cost of a step beside the model: python bench/step.py [MODEL] [--json]. Microseconds of the clock, quartiles.

`engine`: schedule, encode, read out, apply, text and deltas, greedy, with a model that answers at once (its logits are
made up and its tokens are those of a text). `sample`: drawing a token for each row of logits of a real vocabulary's
size, by the native row sampler and by the numpy one.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from octavo.config import EngineConfig
from octavo.engine.build import build_engine
from octavo.engine.engine import Engine
from octavo.exec.executor import Executor
from octavo.ops.backends import Forward, StepOutput
from octavo.ops.native import _native
from octavo.ops.native.sampling import NativeRowSampler
from octavo.ops.numpy.sampling import NumpyRowSampler
from octavo.ops.sampling import Filters, RowSampler
from octavo.params import SamplingParams

BATCHES = (1, 8, 64)
NEW_TOKENS = 128
STEPS = 2000  # at least, of each batch
FILTERS = {
    "temperature": Filters(0.8, 0, 1.0, 0.0),
    "top_k 40": Filters(0.8, 40, 1.0, 0.0),
    "top_p 0.95": Filters(0.8, 0, 0.95, 0.0),
    "min_p 0.05": Filters(0.8, 0, 1.0, 0.05),
    "all three": Filters(0.8, 40, 0.95, 0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    engine = build_engine(arguments.model, EngineConfig(max_model_len=2048, kv_memory="256MiB")).engine
    text = engine.tokenizer.encode(Path(__file__).with_name("step.py").read_text(), add_special=False)
    figures: dict[str, dict[str, list[float]]] = {"engine": {}, "native sample": {}, "numpy sample": {}}
    engine._executor = _executor(engine, instant_model(np.array(text, np.int32), engine.vocab_size))
    for batch in BATCHES:
        figures["engine"][str(batch)] = quartiles(step_times(engine, batch))
    logits = peaked_logits(max(BATCHES), engine.vocab_size)
    native = NativeRowSampler(_native.Runtime(_native.instruction_sets()[-1], _native.Pool(2)))
    for name, filters in FILTERS.items():
        for batch in BATCHES:
            label = f"{name} x {batch}"
            figures["native sample"][label] = quartiles(draw_times(native, logits[:batch], filters, 40))
            figures["numpy sample"][label] = quartiles(draw_times(NumpyRowSampler(), logits[:batch], filters, 3))
    show(figures, as_json=arguments.json)


def _executor(engine: Engine, forward: Forward) -> Executor:
    """The engine's own, with another model."""
    return Executor(forward, engine._executor._rows, engine._scheduler.tokens)


def instant_model(text: np.ndarray, vocab_size: int) -> Forward:
    """Answers with the tokens of a text, every sequence from another place in it."""
    logits = np.zeros((max(BATCHES), vocab_size), np.float32)

    def forward(inputs: Any) -> StepOutput:
        rows = inputs.logit_rows
        places = (inputs.positions[rows] + np.arange(len(rows)) * 131) % len(text)
        return StepOutput(logits[: len(rows)], np.empty((len(inputs.ids), 0), np.float32), text[places])

    return forward


def step_times(engine: Engine, batch: int) -> list[float]:
    """Seconds of each step in which all of `batch` sequences decode."""
    params = replace(SamplingParams(), max_tokens=NEW_TOKENS, ignore_eos=True)
    times: list[float] = []
    while len(times) < STEPS:
        for seed in range(batch):
            engine.add([seed + 5, *range(100, 113)], params, seed=seed)
        run = []
        while engine.has_work:
            start = perf_counter()
            deltas = engine.step()
            if len(deltas) == batch:
                run.append(perf_counter() - start)
        times += run[2:-2]
    return times


def peaked_logits(rows: int, vocab_size: int) -> np.ndarray:
    """Like a language model's: a bulk some 15 nats below a few tokens."""
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3.0, size=(rows, vocab_size))
    for row in logits:
        row[rng.integers(vocab_size, size=30)] += np.linspace(4, 15, 30)
    return logits.astype(np.float32)


def draw_times(sampler: RowSampler, logits: np.ndarray, filters: Filters, repeats: int) -> list[float]:
    rows, all_filters = list(logits), [filters] * len(logits)
    uniforms = np.random.default_rng(1).random(len(logits)).tolist()
    times = []
    for _ in range(repeats + 1):
        start = perf_counter()
        sampler.draw(rows, all_filters, uniforms)
        times.append(perf_counter() - start)
    return times[1:]


def quartiles(times: list[float]) -> list[float]:
    return [round(each * 1e6, 1) for each in statistics.quantiles(times, n=4)]


def show(figures: dict[str, dict[str, list[float]]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    for part, lines in figures.items():
        for label, (low, middle, high) in lines.items():
            print(f"{part:<14} {label:<18} {middle:>9.1f} us   ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()

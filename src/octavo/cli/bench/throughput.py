"""`octavo bench throughput`: tokens a second of prompt x generated x batch. Times nothing itself."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from octavo.cli.bench.roofline import ModelWork
from octavo.cli.bench.subject import Plan, settings_of
from octavo.cli.bench.table import Table
from octavo.config import EngineConfig
from octavo.engine.measure import Throughput, measure_throughput
from octavo.errors import InvalidRequest
from octavo.models.load import read_model
from octavo.ops.backends import backend
from octavo.weights.catalog import resolve

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM
    from octavo.engine.llm import LLM

PROMPT, GENERATED, BATCH, REPEATS = (14,), (128,), (1, 8, 32, 64), 3
TITLES = ("prompt", "generated", "batch", "  median", "   least", "    most", "seconds", "unit           ")
LIMIT_TITLES = ("of reading", "of arithmetic")


def measure(plan: Plan, make_llm: MakeLLM, out: IO[str] | None) -> dict[str, Any]:
    """Run every workload on one loaded model."""
    workloads = plan.workloads(PROMPT, GENERATED, BATCH)
    repeats = plan.repeats or REPEATS
    config = plan.engine(workloads)
    limits = _measure_limits(config, out) if plan.limits else {}
    results = []
    with make_llm(plan.model, **settings_of(config)) as llm:
        work = _work(plan.model, config, llm) if plan.limits else None
        table = Table(out, TITLES + (LIMIT_TITLES if work else ()))
        for workload in workloads:
            result = measure_throughput(llm, workload, repeats=repeats, seed=plan.seed)
            cells, entry = _cells(result), _entry(result)
            if work is not None:
                median = statistics.median(result.seconds)
                shares = work.shares(workload, median, config.max_batched_tokens, limits)
                cells += (f"{shares.read:.0%}", f"{shares.arithmetic:.0%} {shares.arithmetic_limit}")
                entry |= {"share_of_limits": asdict(shares)}
            table.row(cells)
            results.append(entry)
    report = {"settings": settings_of(config), "repeats": repeats, "results": results}
    return report | {"limits": limits} if limits else report


def _measure_limits(config: EngineConfig, out: IO[str] | None) -> dict[str, float]:
    if config.backend != "native":
        raise InvalidRequest(f"--limits are of the native kernels, not of backend {config.backend}", param="limits")
    backend("native")  # or the reason why it is not there
    from octavo.cli.bench import kernels
    from octavo.ops.native.backend import default_threads

    (isa,) = kernels.chosen_sets(None)
    threads = config.threads or default_threads()
    limits = kernels.measured_limits(isa, threads)
    if out is not None:
        print(kernels.describe_limits(isa, threads, limits), file=out, flush=True)
    return limits


def _work(model: str, config: EngineConfig, llm: LLM) -> ModelWork:
    files = read_model(resolve(model), length=config.max_model_len)
    return ModelWork.of(files, weight_bytes=llm.plan.weights, kv_bytes=4 if config.kv_dtype == "float32" else 2)


def _cells(result: Throughput) -> tuple[str, ...]:
    work, rates = result.workload, result.rates
    figures = (statistics.median(rates), min(rates), max(rates))
    unit = work.unit + (f", {result.preemptions} preempted" if result.preemptions else "")
    seconds = f"{statistics.median(result.seconds):.2f}"
    return (str(work.prompt), str(work.generated), str(work.batch), *(f"{each:.1f}" for each in figures), seconds, unit)


def _entry(result: Throughput) -> dict[str, Any]:
    work, rates = result.workload, result.rates
    return {
        "prompt": work.prompt,
        "generated": work.generated,
        "batch": work.batch,
        "unit": work.unit,
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "seconds": list(result.seconds),
        "preemptions": result.preemptions,
    }

"""`octavo bench throughput`: tokens a second of prompt x generated x batch. Times nothing itself."""

from __future__ import annotations

import statistics
from typing import IO, TYPE_CHECKING, Any

from octavo.cli.bench.subject import Plan, settings_of
from octavo.cli.bench.table import Table
from octavo.engine.measure import Throughput, measure_throughput

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

PROMPT, GENERATED, BATCH, REPEATS = (14,), (128,), (1, 8, 32, 64), 3
TITLES = ("prompt", "generated", "batch", "  median", "   least", "    most", "seconds", "unit           ")


def measure(plan: Plan, make_llm: MakeLLM, out: IO[str] | None) -> dict[str, Any]:
    """Run every workload on one loaded model."""
    workloads = plan.workloads(PROMPT, GENERATED, BATCH)
    repeats = plan.repeats or REPEATS
    config = plan.engine(workloads)
    results = []
    with make_llm(plan.model, **settings_of(config)) as llm:
        table = Table(out, TITLES)
        for workload in workloads:
            result = measure_throughput(llm, workload, repeats=repeats, seed=plan.seed)
            table.row(_cells(result))
            results.append(_entry(result))
    return {"settings": settings_of(config), "repeats": repeats, "results": results}


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

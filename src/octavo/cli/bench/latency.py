"""`octavo bench latency`: time to first token and between tokens, as percentiles. Times nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from octavo.cli.bench.subject import Plan, settings_of
from octavo.cli.bench.table import Table
from octavo.engine.measure import Latency, measure_latency, percentile

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

PROMPT, GENERATED, BATCH, REPEATS = (128,), (64,), (1, 8), 3
PERCENTILES = (50, 90, 99)
TITLES = ("prompt", "generated", "batch", *(f"{kind} p{each}" for kind in ("first", "next") for each in PERCENTILES))


def measure(plan: Plan, make_llm: MakeLLM, out: IO[str] | None) -> dict[str, Any]:
    """Run every workload on one loaded model."""
    workloads = plan.workloads(PROMPT, GENERATED, BATCH)
    repeats = plan.repeats or REPEATS
    config = plan.engine(workloads)
    results = []
    with make_llm(plan.model, **settings_of(config)) as llm:
        if out is not None:
            print("milliseconds to the first token, and from each to the next", file=out)
        table = Table(out, [title.rjust(9) for title in TITLES])
        for workload in workloads:
            result = measure_latency(llm, workload, repeats=repeats, seed=plan.seed)
            table.row(_cells(result))
            results.append(_entry(result))
    return {"settings": settings_of(config), "repeats": repeats, "results": results}


def _percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """By name, in seconds; None when one token leaves nothing between tokens."""
    return {f"p{each}": percentile(seconds, each) for each in PERCENTILES} if seconds else None


def _cells(result: Latency) -> tuple[str, ...]:
    work, cells = result.workload, []
    for seconds in (result.first_token, result.gaps):
        values = _percentiles(seconds)
        cells += ["-"] * len(PERCENTILES) if values is None else [f"{each * 1e3:.2f}" for each in values.values()]
    return (str(work.prompt), str(work.generated), str(work.batch), *cells)


def _entry(result: Latency) -> dict[str, Any]:
    work = result.workload
    return {
        "prompt": work.prompt,
        "generated": work.generated,
        "batch": work.batch,
        "first_token_s": _percentiles(result.first_token),
        "between_tokens_s": _percentiles(result.gaps),
        "samples": {"first_token_s": list(result.first_token), "between_tokens_s": list(result.gaps)},
    }

"""Samples -> rates, percentiles and goodput, as a table, as JSON or as a plot. Measures nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.cli.load.client import Sample
from octavo.engine.measure import percentile
from octavo.errors import InvalidRequest

PERCENTILES = (50, 90, 99)
TITLES = (
    *("requests/s", "done/s", "tokens/s", "failed"),
    *(f"{kind} p{each}" for kind in ("first", "next") for each in PERCENTILES),
    *("total p50", "total p99", "good/s"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take to count as good, in seconds: to its first token, and for each token after it."""

    first: float
    next: float

    def met(self, sample: Sample) -> bool:
        """Whether the request was good."""
        return sample.error is None and sample.first <= self.first and sample.per_token <= self.next


@dataclass(frozen=True, slots=True)
class Figures:
    """One load's figures; seconds, and rates a second. offered: requests; None for a trace, inf for all at once.
    late_s: the most by which the load generator itself was late: above some milliseconds it was the bottleneck."""

    offered: float | None
    requests: int
    failed: int
    seconds: float
    completed: float
    output_tokens: float
    prompt_tokens: int
    cached_tokens: int
    goodput: float
    first_token_s: dict[str, float]
    between_tokens_s: dict[str, float]
    total_s: dict[str, float]
    late_s: float
    errors: dict[str, int]


def figures_of(samples: Sequence[Sample], offered: float | None, limits: Limits) -> Figures:
    """What one load came to."""
    whole = [sample for sample in samples if sample.error is None]
    seconds = max((sample.end for sample in samples), default=0.0)
    gaps = [after - before for sample in whole for before, after in itertools.pairwise(sample.pieces)]
    errors: dict[str, int] = {}
    for sample in samples:
        if sample.error is not None:
            errors[sample.error] = errors.get(sample.error, 0) + 1
    rate = 1 / seconds if seconds else 0.0
    return Figures(
        offered=offered,
        requests=len(samples),
        failed=len(samples) - len(whole),
        seconds=seconds,
        completed=len(whole) * rate,
        output_tokens=sum(sample.output_tokens for sample in whole) * rate,
        prompt_tokens=sum(sample.prompt_tokens for sample in whole),
        cached_tokens=sum(sample.cached_tokens for sample in whole),
        goodput=sum(limits.met(sample) for sample in whole) * rate,
        first_token_s=_spread(sample.first for sample in whole),
        between_tokens_s=_spread(gaps),
        total_s=_spread(sample.total for sample in whole),
        late_s=max((sample.sent - sample.due for sample in samples), default=0.0),
        errors=errors,
    )


def cells(figures: Figures) -> tuple[str, ...]:
    """A row under TITLES; latencies in milliseconds, whole answers in seconds."""
    offered = figures.offered
    shown = "trace" if offered is None else "all" if math.isinf(offered) else f"{offered:g}"
    latencies = [
        f"{values[f'p{each}'] * 1e3:.1f}" if values else "-"
        for values in (figures.first_token_s, figures.between_tokens_s)
        for each in PERCENTILES
    ]
    totals = [f"{figures.total_s[name]:.2f}" if figures.total_s else "-" for name in ("p50", "p99")]
    rates = (shown, f"{figures.completed:.2f}", f"{figures.output_tokens:.1f}", str(figures.failed))
    return (*rates, *latencies, *totals, f"{figures.goodput:.2f}")


def entry(figures: Figures, samples: Sequence[Sample]) -> dict[str, Any]:
    """The same for --json, with every sample. A rate that is no number in JSON is null, as for a trace."""
    about = asdict(figures)
    if figures.offered is not None and math.isinf(figures.offered):
        about["offered"] = None
    return about | {"samples": [asdict(sample) for sample in samples]}


def plot(path: Path, loads: Sequence[tuple[Figures, Sequence[Sample]]], limits: Limits) -> None:
    """Latencies of each load as cumulative shares of its requests, the limits dashed. Needs the extra `plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise InvalidRequest("--plot needs matplotlib: pip install 'octavo[plot]'", param="plot") from missing
    picture = Figure(figsize=(10, 4), layout="constrained")
    axes = picture.subplots(1, 2)
    for figures, samples in loads:
        whole = [sample for sample in samples if sample.error is None]
        label = f"{cells(figures)[0]} requests/s"
        for axis, values in zip(axes, ([s.first for s in whole], [s.per_token for s in whole]), strict=True):
            shares = [(place + 1) / len(values) for place in range(len(values))]
            axis.step([each * 1e3 for each in sorted(values)], shares, where="post", label=label)
    for axis, limit, title in zip(
        axes, (limits.first, limits.next), ("time to first token", "time per token after it"), strict=True
    ):
        axis.axvline(limit * 1e3, linestyle="--", color="grey")
        axis.set(xlabel=f"{title}, ms", ylabel="share of requests", xscale="log", ylim=(0, 1))
    axes[0].legend()
    picture.savefig(path)


def _spread(values: Iterable[float]) -> dict[str, float]:
    """Mean and percentiles by name; {} of nothing."""
    seconds = list(values)
    if not seconds:
        return {}
    return {"mean": sum(seconds) / len(seconds)} | {f"p{each}": percentile(seconds, each) for each in PERCENTILES}

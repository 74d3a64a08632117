"""docs/peers.svg: each engine's best form over the best peer's, by workload. Needs matplotlib (the plot extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.peers.report import Column, best_peer, median_rate
from matplotlib import rc_context
from matplotlib.figure import Figure

from octavo.engine.measure import Workload

COLOURS = {
    "octavo": "#1b6ca8",
    "llama.cpp": "#b0b7bf",
    "openvino": "#8a949e",
    "vllm": "#66707a",
    "transformers": "#d5dade",
}


def write_plot(path: Path, columns: Sequence[Column], workloads: Sequence[Workload]) -> None:
    """One group of bars a workload; the best peer is 1. The same samples give the same file."""
    shown = [workload for workload in workloads if best_peer(columns, workload) is not None]
    engines = [name for name in COLOURS if any(column.form.engine == name for column in columns)]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "octavo", "font.size": 9, "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.5, 3.4), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / max(len(engines), 1)
        for place, engine in enumerate(engines):
            heights = [_relative(columns, engine, workload) for workload in shown]
            where = [group + (place + 0.5) * width - 0.4 for group in range(len(shown))]
            bars = axes.bar(where, heights, width * 0.92, color=COLOURS[engine], label=engine)
            if engine == "octavo":
                axes.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, fontweight="bold")
        axes.axhline(1.0, color="#333333", linewidth=0.6, linestyle=(0, (4, 3)))
        axes.set_xticks(range(len(shown)), [str(workload) for workload in shown])
        axes.set_xlabel("prompt x generated x batch")
        axes.set_ylabel("rate over the best other engine's")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.12)
        figure.legend(loc="outside upper center", ncols=len(engines), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _relative(columns: Sequence[Column], engine: str, workload: Workload) -> float:
    """The rate of the engine's best form over the best peer's; 0 when it has none."""
    best = best_peer(columns, workload)
    rates = [median_rate(column, workload) or 0.0 for column in columns if column.form.engine == engine]
    return max(rates, default=0.0) / best[1] if best else 0.0

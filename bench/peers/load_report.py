"""Answers under load -> the rate that each server sustains, as a page, as JSON and as a picture. Measures nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.engine.machine import Machine
from octavo.engine.measure import percentile

NEEDED = 0.9  # of the requests of a rate must be good for it to be sustained
OURS = "octavo"
COLOURS = ("#1b6ca8", "#8a949e", "#66707a", "#b0b7bf")

PAGE = """\
# octavo under load beside other servers

Written by `make bench-load`, which starts the servers on one machine, offers all of them the same requests in turn, and
writes this page. Figures of different machines or runs must not be compared with each other.

{machine}, {system}. Written {when} UTC.

![Share of good requests, and latencies, by rate](peers-load.svg)

A request is good when its first token comes within {first:.0f} ms of when it was due and each token after it takes at
most {next:.0f} ms on average. Sustained: the rate up to which {needed:.0%} are good, between two measured rates by a
straight line; in brackets what each round alone came to.

| server | sustained, requests/s | octavo over it |
|---|---|---|
{ratios}

{table}

- Load: {load}. Requests arrive at random (Poisson) and do not wait for one another; lengths are log-normal with the
  means of ShareGPT times that factor; prompts are random words, the same for every server and new in every load;
  answers are greedy, of fixed lengths, and streamed.
- The client runs on the same cores as the server. All servers are started once and stopped but for the one at work; a
  server that less than half of its requests were good with is not offered more in that round.
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """One request, in seconds from when it was due; None where it failed."""

    first: float | None
    per_token: float | None
    total: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: to the first token, and for each token after it."""

    first: float
    next: float

    def met(self, answer: Answered) -> bool:
        """Whether it was good."""
        if answer.first is None or answer.per_token is None:
            return False
        return answer.first <= self.first and answer.per_token <= self.next


@dataclass(frozen=True, slots=True)
class Point:
    """A server at one rate: the answers of each round."""

    rate: float
    rounds: Sequence[Sequence[Answered]]


def summary(points: dict[str, list[Point]], limits: Limits) -> dict[str, Any]:
    """By server: the sustained rate, of each round too, and figures of every rate."""
    return {
        name: {
            "sustained": sustained([(each.rate, _share(_pooled(each), limits)) for each in of_server]),
            "rounds": [
                sustained(
                    [(each.rate, _share(each.rounds[turn], limits)) for each in of_server if turn < len(each.rounds)]
                )
                for turn in range(max((len(each.rounds) for each in of_server), default=0))
            ],
            "rates": [_figures(each, limits) for each in of_server],
        }
        for name, of_server in points.items()
    }


def sustained(shares: Sequence[tuple[float, float]]) -> float:
    """The rate up to which NEEDED of the requests were good, by shares at rising rates; at rate 0 all would be."""
    before = (0.0, 1.0)
    for rate, share in shares:
        if share < NEEDED:
            lost = (before[1] - NEEDED) / (before[1] - share)
            return before[0] + (rate - before[0]) * lost
        before = (rate, share)
    return before[0]


def markdown(found: dict[str, Any], limits: Limits, load: str, machine: Machine, problems: dict[str, str]) -> str:
    """The whole page."""
    ours = found.get(OURS, {}).get("sustained", 0.0)
    ratios = []
    for name, figures in found.items():
        rounds = "-".join(f"{each:.1f}" for each in sorted(figures["rounds"]))
        open_end = "at least " if figures["rates"] and figures["rates"][-1]["good"] >= NEEDED else ""
        over = "" if name == OURS or not figures["sustained"] else f"**{ours / figures['sustained']:.2f}**"
        ratios.append(f"| {name} | {open_end}{figures['sustained']:.2f} ({rounds}) | {over} |")
    ratios += [f"| {name} | failed: {reason} | |" for name, reason in problems.items()]
    return PAGE.format(
        machine=machine,
        system=machine.system,
        when=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        first=limits.first * 1e3,
        next=limits.next * 1e3,
        needed=NEEDED,
        ratios="\n".join(ratios),
        table=_table(found),
        load=load,
    )


def write_plot(path: Path, found: dict[str, Any], limits: Limits) -> None:
    """Share of good requests and both latencies by rate. Needs matplotlib (the plot extra)."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = (("good", "share of good requests", NEEDED), ("first_p90", "first token, p90, s", limits.first))
    shown += (("next_p90", "time per token, p90, s", limits.next),)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "octavo", "font.size": 9}):
        figure = Figure(figsize=(9, 3), layout="constrained")
        for axes, (name, title, limit) in zip(figure.subplots(1, 3), shown, strict=True):
            for colour, (server, figures) in zip(COLOURS, found.items(), strict=False):
                rates = [each for each in figures["rates"] if each[name] is not None]
                axes.plot(
                    [each["rate"] for each in rates], [each[name] for each in rates], "o-", color=colour, label=server
                )
            axes.axhline(limit, color="#333333", linewidth=0.6, linestyle=(0, (4, 3)))
            axes.set(xlabel="requests/s offered", title=title, yscale="linear" if name == "good" else "log")
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(found), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _figures(point: Point, limits: Limits) -> dict[str, Any]:
    answers = _pooled(point)
    first = [each.first for each in answers if each.first is not None]
    next_ = [each.per_token for each in answers if each.per_token is not None]
    quantiles = {
        f"{name}_p{each}": percentile(values, each) if values else None
        for name, values in (("first", first), ("next", next_))
        for each in (50, 90, 99)
    }
    failed = sum(each.first is None for each in answers)
    return {"rate": point.rate, "requests": len(answers), "failed": failed, "good": _share(answers, limits)} | quantiles


def _table(found: dict[str, Any]) -> str:
    lines = [
        "| server | offered, requests/s | requests | failed | good | first token p50, p90, p99, ms | per token, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, figures in found.items():
        for each in figures["rates"]:
            first, next_ = (
                ", ".join(
                    "-" if (value := each[f"{kind}_p{p}"]) is None else f"{value * 1e3:.0f}" for p in (50, 90, 99)
                )
                for kind in ("first", "next")
            )
            counts = f"{each['rate']:g} | {each['requests']} | {each['failed']} | {each['good']:.0%}"
            lines.append(f"| {name} | {counts} | {first} | {next_} |")
    return "\n".join(lines)


def _pooled(point: Point) -> list[Answered]:
    return [answer for answers in point.rounds for answer in answers]


def _share(answers: Sequence[Answered], limits: Limits) -> float:
    return sum(map(limits.met, answers)) / len(answers)

"""`octavo bench serve`: a load on a server of OpenAI's protocol, and what its users would feel. Draws nothing."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from octavo import __version__
from octavo.cli.bench.table import Table
from octavo.cli.flags import add_engine_flags, as_environment, engine_settings
from octavo.cli.load.own_server import own_server
from octavo.cli.load.schedule import MIXES, Arrival, Lengths, Load, draw_arrivals, read_trace
from octavo.engine.machine import describe_machine
from octavo.errors import InvalidRequest

if TYPE_CHECKING:
    from octavo.cli.load.client import Sample, Target
    from octavo.cli.main import MakeLLM

USAGE = "octavo bench serve [MODEL | --url URL] [options]"
SUMMARY = """\
Measure a server under load: requests arrive when they are due, whether or not earlier ones were answered, and their
latencies count from then. Any server of OpenAI's protocol can be measured with --url; without it one is started for
MODEL and ended after. Prompts are random words, answers are greedy and of a fixed length where the server knows
ignore_eos. Columns: requests offered, answered and good a second, tokens generated a second, requests that failed,
milliseconds to the first token and between pieces of text, seconds to the end.

examples:
  octavo bench serve smollm2-135m --rate 1 2 4 --requests 60
  octavo bench serve --url http://127.0.0.1:8080/v1 --rate all --mix sharegpt --json > load.json
  octavo bench serve --rate 4 --arrivals burst --burst 16 --shared-prefix 341
  octavo bench serve --trace day.jsonl --plot day.svg
"""
DEFAULT_MODEL = "smollm2-135m"
WARM_UP = Load(2, math.inf, "constant", Lengths(32, 0), Lengths(8, 0), seed=-1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help=f"what to serve and measure (default {DEFAULT_MODEL})"
    )
    target = parser.add_argument_group("target")
    target.add_argument("--url", help="a running server instead, such as http://127.0.0.1:8000/v1")
    target.add_argument(
        "--model-name", metavar="NAME", help="as the server knows it; by default the first that it lists"
    )
    target.add_argument(
        "--api-key", metavar="KEY", default=os.environ.get("OPENAI_API_KEY"), help="by default OPENAI_API_KEY's"
    )
    target.add_argument("--chat", action="store_true", help="chats instead of completions")
    target.add_argument("--timeout", type=_positive, default=600.0, metavar="S", help="of one request (default 600)")
    load = parser.add_argument_group("load")
    load.add_argument(
        "--rate", type=_rate, nargs="+", metavar="R", help="requests a second, 'all' for all at once; several in turn"
    )
    load.add_argument("--requests", type=_count, default=64, metavar="N", help="of each rate (default 64)")
    load.add_argument("--arrivals", choices=("poisson", "constant", "burst"), default="poisson", help="default poisson")
    load.add_argument("--burst", type=_count, default=8, metavar="N", help="requests of one burst (default 8)")
    load.add_argument("--prompt", type=_count, default=128, metavar="N", help="tokens of each prompt (default 128)")
    load.add_argument("--generated", type=_count, default=128, metavar="N", help="tokens of each answer (default 128)")
    load.add_argument("--mix", choices=tuple(MIXES), help="lengths with the statistics of a published set instead")
    load.add_argument(
        "--shared-prefix", type=_count, default=0, metavar="N", help="tokens that prompts of a group have in common"
    )
    load.add_argument("--groups", type=_count, default=1, metavar="N", help="groups with a prefix each (default 1)")
    load.add_argument("--trace", type=Path, metavar="FILE", help="replay: JSON lines with at, prompt, generated")
    load.add_argument("--load-seed", type=int, default=0, metavar="N", help="draws another load (default 0)")
    shown = parser.add_argument_group("report")
    shown.add_argument("--limit-first", type=_positive, default=500.0, metavar="MS", help="of a good request (500)")
    shown.add_argument("--limit-next", type=_positive, default=100.0, metavar="MS", help="of a good request (100)")
    shown.add_argument("--json", action="store_true", help="one JSON object with every sample")
    shown.add_argument("--plot", type=Path, metavar="FILE", help="latencies as a picture, .svg or .png")
    add_engine_flags(parser)


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Measure and show. 1 when a request failed."""
    from octavo.cli.load import report  # aiohttp, of an extra

    if arguments.url is not None and arguments.model is not None:
        raise InvalidRequest(f"give MODEL ({arguments.model}) or --url, not both", param="url")
    loads = _loads(arguments)
    limits = report.Limits(arguments.limit_first / 1e3, arguments.limit_next / 1e3)
    measured = []
    with ExitStack() as stack:
        target, about = _target(arguments, stack)
        table = _table(arguments, target.url, report.TITLES)
        asyncio.run(_drive(target, draw_arrivals(WARM_UP), quiet=True))
        for offered, arrivals in loads:
            samples = asyncio.run(_drive(target, arrivals, quiet=arguments.json))
            figures = report.figures_of(samples, offered, limits)
            measured.append((figures, samples))
            table.row(report.cells(figures))
            if not arguments.json:
                print(*(f"  {count} failed: {message}\n" for message, count in figures.errors.items()), sep="", end="")
    if arguments.plot is not None:
        report.plot(arguments.plot, measured, limits)
    if arguments.json:
        results = [report.entry(figures, samples) for figures, samples in measured]
        print(json.dumps(about | {"limits": asdict(limits), "results": results}))
    return int(any(figures.failed for figures, _ in measured))


def _loads(arguments: argparse.Namespace) -> list[tuple[float | None, list[Arrival]]]:
    """The requests of each load, and the rate that was asked for."""
    if arguments.trace is not None:
        if arguments.rate is not None:
            raise InvalidRequest("a trace says itself when requests arrive: leave out --rate", param="rate")
        return [(None, read_trace(arguments.trace, arguments.load_seed))]
    lengths = (Lengths(arguments.prompt, 0), Lengths(arguments.generated, 0))
    prompt, generated = lengths if arguments.mix is None else MIXES[arguments.mix]
    return [
        (
            rate,
            draw_arrivals(
                Load(
                    requests=arguments.requests,
                    rate=rate,
                    process=arguments.arrivals,
                    prompt=prompt,
                    generated=generated,
                    burst=arguments.burst,
                    shared=arguments.shared_prefix,
                    groups=arguments.groups,
                    seed=arguments.load_seed,
                    turn=turn,
                )
            ),
        )
        for turn, rate in enumerate(arguments.rate or [1.0])
    ]


def _target(arguments: argparse.Namespace, stack: ExitStack) -> tuple[Target, dict[str, Any]]:
    """The server, started if need be, and what --json tells of it."""
    from octavo.cli.load.client import Target, model_name

    about: dict[str, Any] = {"octavo": __version__, "kind": "serve", "machine": asdict(describe_machine())}
    if arguments.url is None:
        environment = as_environment(engine_settings(arguments))
        url, seconds = stack.enter_context(own_server(arguments.model or DEFAULT_MODEL, environment))
        about["ready_s"] = seconds
    else:
        url = arguments.url.rstrip("/")
    name = arguments.model_name or asyncio.run(model_name(url, arguments.api_key))
    about |= {"url": url, "model": name}
    return Target(url, name, arguments.api_key, arguments.chat, arguments.timeout), about


def _table(arguments: argparse.Namespace, url: str, titles: Sequence[str]) -> Table:
    if arguments.json:
        return Table(None, titles)
    print(f"{url} from {describe_machine()}", flush=True)
    return Table(sys.stdout, titles)


async def _drive(target: Target, arrivals: Sequence[Arrival], *, quiet: bool) -> list[Sample]:
    from octavo.cli.load.client import drive

    with tqdm(total=len(arrivals), unit=" requests", leave=False, disable=True if quiet else None) as bar:
        return await drive(target, arrivals, lambda _: bar.update())


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 1_000_000:
        raise argparse.ArgumentTypeError(f"must be from 1 to 1000000, not {count}")
    return count


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def _rate(text: str) -> float:
    return math.inf if text == "all" else _positive(text)


# argparse names the function in its complaints
_count.__name__ = "whole number"
_positive.__name__ = "number"
_rate.__name__ = "rate"

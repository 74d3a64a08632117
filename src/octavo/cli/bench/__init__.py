"""`octavo bench`: how fast this machine runs a model, as a table or as JSON with every sample. Computes no medians.

The measuring is `octavo.engine.measure`'s; each module here runs one kind of measurement and shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from octavo import __version__
from octavo.cli.bench import latency, start, throughput
from octavo.cli.bench.subject import Plan, model_bytes, random_model
from octavo.cli.flags import add_engine_flags, engine_settings
from octavo.engine.machine import describe_machine
from octavo.errors import InvalidRequest
from octavo.weights.synthetic import FORMATS, SHAPES

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

USAGE = "octavo bench {throughput,latency,start} [MODEL] [options]"
SUMMARY = """\
Measure a model on this machine. Prompts are random tokens, answers are greedy and ignore the model's own end, and a
short run before each measurement warms up. Medians of repeated runs, with the least and the most.

  throughput   tokens generated over the whole wall time, prompts included; prompt tokens/s where one is generated.
               --limits adds how close the median came to what this machine can do, measured first: reading the weights
               and keys that the workload cannot do without, and computing their products
  latency      time to first token, and between tokens, at the 50th, 90th and 99th percentile
  start        process start to first token in fresh processes, with the model file cached and not, and `import octavo`

examples:
  octavo bench throughput smollm2-135m --threads 2
  octavo bench throughput --prompt 512 --generated 1 --batch 1
  octavo bench throughput --random 1b --format q8_0 --batch 1 --limits
  octavo bench latency --prompt 128 --generated 128 --batch 1 8 32

'octavo bench kernels --help' tells of single kernels, 'octavo bench serve --help' of a server under load.
"""
DEFAULT_MODEL = "smollm2-135m"
KINDS = {"throughput": throughput.measure, "latency": latency.measure, "start": start.measure}
_MOST = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("kind", metavar="KIND", choices=tuple(KINDS), help=", ".join(KINDS))
    parser.add_argument("model", metavar="MODEL", nargs="?", help=f"what to measure (default {DEFAULT_MODEL})")
    workload = parser.add_argument_group("workload", "Several numbers measure every combination.")
    for name, text in (("prompt", "tokens of each prompt"), ("generated", "new tokens of each prompt")):
        workload.add_argument(f"--{name}", type=_count, nargs="+", metavar="N", help=text)
    workload.add_argument("--batch", type=_count, nargs="+", metavar="N", help="prompts given at once")
    workload.add_argument("--repeats", type=_count, metavar="N", help="runs of each combination, after the warm-up")
    workload.add_argument("--prompt-seed", type=int, default=0, metavar="N", help="draws other prompts (default 0)")
    workload.add_argument(
        "--random", choices=tuple(SHAPES), help="a Llama of this shape with random weights, made in the cache"
    )
    workload.add_argument("--format", choices=tuple(FORMATS), help="of the random weights (default q4_1)")
    workload.add_argument(
        "--limits", action="store_true", help="throughput: hold runs against this machine's reading and arithmetic"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object: machine, settings, every sample")
    add_engine_flags(parser)


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Measure and show."""
    plan = Plan(
        model=_model(arguments),
        settings=engine_settings(arguments),
        prompt=arguments.prompt,
        generated=arguments.generated,
        batch=arguments.batch,
        repeats=arguments.repeats,
        seed=arguments.prompt_seed,
        limits=arguments.limits,
    )
    machine = describe_machine()
    if not arguments.json:
        print(f"{Path(plan.model).name} on {machine}", flush=True)
    out = None if arguments.json else sys.stdout
    report = KINDS[arguments.kind](plan, make_llm, out)
    if arguments.json:
        about = {
            "octavo": __version__,
            "kind": arguments.kind,
            "model": plan.model,
            "model_bytes": model_bytes(plan.model),
            "machine": asdict(machine),
            "prompt_seed": plan.seed,
        }
        print(json.dumps(about | report))
    return 0


def _model(arguments: argparse.Namespace) -> str:
    if arguments.random is None:
        if arguments.format is not None:
            raise InvalidRequest("--format is the form of random weights: it needs --random", param="format")
        return arguments.model or DEFAULT_MODEL
    if arguments.model is not None:
        raise InvalidRequest(f"give MODEL ({arguments.model}) or --random, not both", param="random")
    return str(random_model(arguments.random, arguments.format or "q4_1"))


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= _MOST:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MOST}, not {count}")
    return count


_count.__name__ = "whole number"  # argparse names the function in its complaints

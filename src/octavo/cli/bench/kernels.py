"""`octavo bench kernels`: each native kernel beside what this machine can do at best. Times nothing itself.

That is `octavo.ops.native.timing`'s, which is imported once the backend is known to be there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from octavo import __version__
from octavo.cli.bench.roofline import arithmetic_of
from octavo.cli.bench.table import Table
from octavo.engine.machine import describe_machine
from octavo.errors import InvalidRequest
from octavo.ops.backends import backend
from octavo.ops.tensor import StorageType
from octavo.weights.synthetic import SHAPES, LlamaShape

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM
    from octavo.ops.native.timing import KernelTimer, Timing

USAGE = "octavo bench kernels [options]"
SUMMARY = """\
Time each native kernel, on random weights and keys, beside what this machine can do at best, measured in the same run.
A product reads its matrix and attention its keys and values from memory, not from a cache; norm and rope have theirs in
a cache, as in a step.

limits:
  read         bytes a second from memory, by all threads
  int8         8-bit products summed in as few bits as the instruction set allows: more than any whole kernel can reach
  exact_int8   8-bit signed products summed in 32 bits, which is what a format of 8-bit codes needs
  bf16, f32    products of those numbers, summed in float32

The last two columns tell which limit a kernel meets first, by the bytes and operations that it cannot do without, and
how close its median comes to that limit.

examples:
  octavo bench kernels --threads 2
  octavo bench kernels --shape 1b --format q4_1 q8_0 --rows 1 64
  octavo bench kernels --isa avx2 portable --keys 1024 8192 --json > kernels.json
"""
FORMATS, ROWS, KEYS = ("q4_1", "q8_0", "bf16"), (1, 8, 64, 512), (48, 1024)
ISA_VARIABLE = "OCTAVO_ISA"
VOCABULARY = 49152
MOST_LOGIT_ROWS = 64
SMALL_ROWS = 64
MOST_CACHED_KEYS = 1 << 18
TITLES = ("kernel".ljust(38), "rows", "median us", " least us", "   GB/s", "  GOP/s", "limit     ", "of it")
LIMITS = ("read_bytes", "int8", "exact_int8", "bf16", "f32", "fork_join")


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """What to time. isas: instruction sets. rows: tokens of a step, of products. keys: of attention's sequences.
    block_size: of paged attention, beside which the same keys lie in one block."""

    shape: LlamaShape
    formats: Sequence[StorageType]
    isas: Sequence[str]
    threads: int
    rows: Sequence[int]
    keys: Sequence[int]
    block_size: int


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel's timing. arithmetic: which limit of operations holds for it."""

    kernel: str
    rows: int
    arithmetic: str
    timing: Timing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    shapes = ", ".join(SHAPES)
    parser.add_argument(
        "--shape", choices=tuple(SHAPES), default="135m", help=f"of the layers: {shapes} (default 135m)"
    )
    for name, default, text in (
        ("rows", ROWS, "tokens of a product's step, and sequences that decode"),
        ("keys", KEYS, "tokens of each sequence that attention reads, and of a prompt"),
    ):
        shown = " ".join(map(str, default))
        parser.add_argument(
            f"--{name}", type=_count, nargs="+", metavar="N", default=default, help=f"{text} (default {shown})"
        )
    types = tuple(kind.name.lower() for kind in StorageType)
    parser.add_argument(
        "--format",
        nargs="+",
        choices=types,
        default=FORMATS,
        metavar="TYPE",
        help=f"of the weights, as files store them: {', '.join(types)} (default {' '.join(FORMATS)})",
    )
    parser.add_argument(
        "--isa", nargs="+", metavar="SET", help=f"instruction sets (default ${ISA_VARIABLE}, or the widest)"
    )
    parser.add_argument("--block-size", type=_count, default=16, metavar="N", help="of paged attention (default 16)")
    parser.add_argument("--threads", type=_count, metavar="N", help="default: every core that this process may use")
    parser.add_argument("--json", action="store_true", help="one JSON object: machine, limits, every kernel")


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Measure and show."""
    backend("native")  # or the reason why it is not there
    from octavo.ops.native.backend import default_threads

    plan = KernelPlan(
        shape=SHAPES[arguments.shape],
        formats=[StorageType[name.upper()] for name in arguments.format],
        isas=chosen_sets(arguments.isa),
        threads=arguments.threads or default_threads(),
        rows=arguments.rows,
        keys=arguments.keys,
        block_size=arguments.block_size,
    )
    machine = describe_machine()
    if not arguments.json:
        print(machine, flush=True)
    report = measure(plan, None if arguments.json else sys.stdout)
    if arguments.json:
        print(json.dumps({"octavo": __version__, "kind": "kernels", "machine": asdict(machine)} | report))
    return 0


def chosen_sets(names: Sequence[str] | None) -> Sequence[str]:
    """Instruction sets: those named, or the environment's, or the widest. InvalidRequest for what does not run here."""
    from octavo.ops.native.backend import instruction_sets

    available = instruction_sets()
    isas = names or [os.environ.get(ISA_VARIABLE) or available[-1]]
    for isa in isas:
        if isa not in available:
            raise InvalidRequest(f"this machine does not run {isa!r}, but {', '.join(available)}", param="isa")
    return isas


def measured_limits(isa: str, threads: int) -> dict[str, float]:
    """By name, in bytes or operations a second; fork_join in seconds."""
    from octavo.ops.native.timing import KernelTimer

    measured = KernelTimer(isa, threads).limits()
    return {name: getattr(measured, name) for name in LIMITS}


def measure(plan: KernelPlan, out: IO[str] | None) -> dict[str, Any]:
    """Time everything on each instruction set, its limits first."""
    from octavo.ops.native.timing import KernelTimer

    results = []
    for isa in plan.isas:
        timer = KernelTimer(isa, plan.threads)
        limits = measured_limits(isa, plan.threads)
        if out is not None:
            print(describe_limits(isa, plan.threads, limits), file=out, flush=True)
        table = Table(out, TITLES)
        entries = []
        for row in _rows(timer, plan):
            limit, share = _share(row, limits)
            table.row(_cells(row, limit, share))
            entries.append(_entry(row, limit, share))
        results.append({"isa": isa, "limits": limits, "kernels": entries})
    return {"threads": plan.threads, "shape": asdict(plan.shape), "results": results}


def _rows(timer: KernelTimer, plan: KernelPlan) -> Iterator[Row]:
    yield from _products(timer, plan)
    yield from _attentions(timer, plan)
    shape = plan.shape
    yield Row(f"norm {shape.hidden}", SMALL_ROWS, "f32", timer.norm(shape.hidden, SMALL_ROWS))
    heads = f"rope {shape.heads} heads of {shape.head_size}"
    yield Row(heads, SMALL_ROWS, "f32", timer.rope(shape.heads, shape.head_size, SMALL_ROWS))


def _products(timer: KernelTimer, plan: KernelPlan) -> Iterator[Row]:
    shape = plan.shape
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    matrices = (
        ("query, key, value", (query + 2 * key, shape.hidden), False),
        ("attention output", (shape.hidden, query), False),
        ("gate and up", (2 * shape.intermediate, shape.hidden), True),
        ("down", (shape.hidden, shape.intermediate), False),
        ("logits", (VOCABULARY, shape.hidden), False),
    )
    for kind in plan.formats:
        for name, size, gated in matrices:
            # A step computes logits for the rows that sample, not for a prompt's.
            rows = [count for count in plan.rows if name != "logits" or count <= MOST_LOGIT_ROWS]
            if size[1] % kind.block or not rows:
                continue
            label = f"{kind.name.lower()} {name} {size[0]} x {size[1]}"
            for count, timing in zip(rows, timer.linear(kind, size, rows, gated=gated), strict=True):
                yield Row(label, count, arithmetic_of(kind), timing)


def _attentions(timer: KernelTimer, plan: KernelPlan) -> Iterator[Row]:
    """Decode of every batch and a whole prompt, over every number of keys, paged and contiguous."""
    from octavo.ops.native.timing import AttentionCase

    shape = plan.shape
    for keys in plan.keys:
        whole = -(-keys // plan.block_size) * plan.block_size
        for name, batch, new in [*(("decode", batch, 1) for batch in plan.rows), ("prompt", 1, keys)]:
            if batch * keys > MOST_CACHED_KEYS:
                continue
            case = AttentionCase(shape.heads, shape.kv_heads, shape.head_size, batch, keys, new)
            for kind, block_size in (("paged", plan.block_size), ("contiguous", whole)):
                label = f"{name} attention, {keys} keys, {kind}"
                yield Row(label, batch * new, "f32", timer.attention(case, block_size))


def _share(row: Row, limits: dict[str, float]) -> tuple[str, float]:
    """The limit that a kernel meets first, and how close its median comes to it: 1 is the limit itself."""
    timing = row.timing
    least = {
        "read_bytes": timing.bytes / limits["read_bytes"],
        row.arithmetic: timing.operations / limits[row.arithmetic],
    }
    limit = max(least, key=lambda name: least[name])
    return limit, least[limit] / timing.median


def describe_limits(isa: str, threads: int, limits: Mapping[str, float]) -> str:
    """One line for people."""
    giga = {name: value / 1e9 for name, value in limits.items()}
    return (
        f"{isa}, {threads} threads. Limits: read {giga['read_bytes']:.1f} GB/s, int8 {giga['int8']:.0f} GOP/s, "
        f"exact_int8 {giga['exact_int8']:.0f}, bf16 {giga['bf16']:.0f}, f32 {giga['f32']:.0f}, "
        f"fork and join {limits['fork_join'] * 1e6:.1f} us"
    )


def _cells(row: Row, limit: str, share: float) -> tuple[str, ...]:
    timing = row.timing
    read = f"{timing.bytes / timing.median / 1e9:.1f}" if timing.bytes else "-"
    return (
        row.kernel.ljust(len(TITLES[0])),
        str(row.rows),
        f"{timing.median * 1e6:.1f}",
        f"{timing.least * 1e6:.1f}",
        read,
        f"{timing.operations / timing.median / 1e9:.1f}",
        {"read_bytes": "read"}.get(limit, limit).ljust(len(TITLES[6])),
        f"{share:.0%}",
    )


def _entry(row: Row, limit: str, share: float) -> dict[str, Any]:
    timing = row.timing
    return {
        "kernel": row.kernel,
        "rows": row.rows,
        "bytes": timing.bytes,
        "operations": timing.operations,
        "limit": limit,
        "share_of_limit": share,
        "median_s": timing.median,
        "min_s": timing.least,
        "max_s": timing.most,
    }


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MOST_CACHED_KEYS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_CACHED_KEYS}, not {count}")
    return count


_count.__name__ = "whole number"  # argparse names the function in its complaints

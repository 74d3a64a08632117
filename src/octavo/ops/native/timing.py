"""Times native kernels one by one, each as a step runs it. Prints nothing; all data is random.

What products and attention read is not in a cache: as many matrices, or layers of KV, take turns as no cache holds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.ops.base import AttentionMeta, KVLayout, Rope, StepInputs
from octavo.ops.native import _native
from octavo.ops.native.backend import NativeOps
from octavo.ops.native.program import Floats, NativeProgram, step_symbols
from octavo.ops.tensor import StorageType, Tensor

COLD_BYTES = 96 << 20  # read between two uses of the same data
MOST_LAYERS = 64
MOST_OPERATIONS = 2e10  # of one run: a second or less
SMALL_COPIES = 100  # of operations that take microseconds
SECONDS, LEAST_RUNS, MOST_RUNS = 0.3, 5, 200
NO_POOL = KVLayout(1, 1, 1, 16, 16, "bfloat16")
SYMBOLS = step_symbols()

StepArrays = StepInputs[npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Timing:
    """median, least, most: seconds of one call. What it cannot do without: bytes read from memory (0: all is in a
    cache), operations (a product is one, its addition another)."""

    bytes: int
    operations: int
    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """`batch` sequences of `keys` tokens, the last `new` of which ask. Keys and values are bfloat16."""

    heads: int
    kv_heads: int
    head_size: int
    batch: int
    keys: int
    new: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A program whose operations called `name` are `calls` equal ones."""

    program: NativeProgram
    step: StepArrays
    floats: Floats
    name: str
    calls: int

    def seconds(self) -> float:
        """Run once; what one call took, waiting for other threads included."""
        self.program.profile(True)
        self.program(self.step, [self.floats])
        return sum(spent for name, spent, _ in self.program.times() if name.partition("/")[0] == self.name) / self.calls


class KernelTimer:
    """Times the kernels of one instruction set on `threads` threads."""

    def __init__(self, isa: str, threads: int) -> None:
        self.isa = isa
        self.threads = threads

    def limits(self) -> _native.MachineLimits:
        """What the machine can do, measured now."""
        return _native.measure_limits(self.isa, _native.Pool(self.threads))

    def linear(
        self, kind: StorageType, shape: tuple[int, int], rows: Sequence[int], *, gated: bool = False
    ) -> list[Timing]:
        """One timing for each number of rows. shape: [out, in]. gated: a gate above an up, with silu."""
        ops = self._ops(max(rows))
        copies = [ops.prepare([_random_tensor(kind, shape)])]
        copies += (ops.prepare([_random_tensor(kind, shape)]) for _ in range(COLD_BYTES // copies[0].nbytes))
        return [self._linear(ops, copies, shape, count, gated) for count in rows]

    def _linear(
        self, ops: NativeOps, copies: Sequence[_native.Matrix], shape: tuple[int, int], rows: int, gated: bool
    ) -> Timing:
        operations = 2 * rows * shape[0] * shape[1]
        used = copies[: max(1, int(MOST_OPERATIONS / operations))]
        x = ops.input(shape[1])
        for weight in used:
            if gated:
                ops.gated(x, weight, "silu")
            else:
                ops.linear(x, weight)
        name = "gated" if gated else "linear"
        run = _Run(ops.compile(None), _step(rows), _normal(rows, shape[1]), name, len(used))
        return Timing(copies[0].nbytes, operations, *_sample(run))

    def attention(self, case: AttentionCase, block_size: int) -> Timing:
        """Blocks lie scattered in the pool; a block size of all keys makes them contiguous."""
        layer_bytes = case.batch * case.keys * 4 * case.kv_heads * case.head_size
        pairs = case.batch * case.heads * case.keys * case.new
        layers = max(
            1, min(COLD_BYTES // layer_bytes, int(MOST_OPERATIONS / (4 * case.head_size * pairs)), MOST_LAYERS)
        )
        time = _native.time_attention(
            self.isa,
            _native.Pool(self.threads),
            sequences=case.batch,
            context=case.keys,
            fresh=case.new,
            heads=case.heads,
            kv_heads=case.kv_heads,
            head_size=case.head_size,
            layers=layers,
            block_size=block_size,
            seconds=SECONDS,
        )
        each = [seconds / layers for seconds in (time.median, time.least, time.most)]
        return Timing(round(time.bytes / layers), round(time.operations / layers), *each)

    def norm(self, columns: int, rows: int) -> Timing:
        """Root mean square norm of rows that are in a cache, as they are in a step."""
        ops = self._ops(rows)
        x, weight = ops.input(columns), ops.constant(np.ones(columns, np.float32))
        for _ in range(SMALL_COPIES):
            ops.norm(x, weight, eps=1e-5)
        return self._small(ops, "norm", rows, columns, 4)

    def rope(self, heads: int, head_size: int, rows: int) -> Timing:
        """Heads that are in a cache. The angles' own cost is left out: a step computes them once for all layers."""
        ops = self._ops(rows)
        x, frequencies = ops.input(heads * head_size), np.linspace(1.0, 1e-4, head_size // 2, dtype=np.float32)
        rope = Rope(ops.constant(frequencies), head_size)
        for _ in range(SMALL_COPIES):
            ops.rope(x, SYMBOLS.positions, rope)
        return self._small(ops, "rope", rows, heads * head_size, 3)

    def _small(self, ops: NativeOps, name: str, rows: int, columns: int, operations: int) -> Timing:
        run = _Run(ops.compile(None), _step(rows), _normal(rows, columns), name, SMALL_COPIES)
        return Timing(0, rows * columns * operations, *_sample(run))

    def _ops(self, rows: int) -> NativeOps:
        return NativeOps(NO_POOL, max_tokens=rows, threads=self.threads, isa=self.isa)


def _sample(run: _Run) -> tuple[float, float, float]:
    """What a call took: median, least and most of many runs, after one that warms up."""
    run.seconds()
    taken: list[float] = []
    stop = time.perf_counter() + SECONDS
    while len(taken) < LEAST_RUNS or (time.perf_counter() < stop and len(taken) < MOST_RUNS):
        taken.append(run.seconds())
    return statistics.median(taken), min(taken), max(taken)


def _normal(rows: int, columns: int) -> Floats:
    return np.random.default_rng(0).standard_normal((rows, columns), np.float32)


def _random_tensor(kind: StorageType, shape: tuple[int, int]) -> Tensor:
    """Weights whose scales are ordinary numbers: bytes below 0x38 are finite as float16, wherever a block has them."""
    size = shape[0] * shape[1] // kind.block * kind.nbytes
    whole = kind.block == 1  # 0x3c3c is a number far from denormal in every float format
    data = np.full(size, 0x3C, np.uint8) if whole else np.random.default_rng(0).integers(0, 0x38, size, np.uint8)
    return Tensor("random", shape, kind, data)


def _step(rows: int) -> StepArrays:
    """Rows of one sequence, for programs that touch no KV."""
    meta: AttentionMeta[npt.NDArray[np.generic]] = AttentionMeta(
        cu_seqlens_q=np.array([0, rows], np.int32),
        seq_lens=np.array([rows], np.int32),
        block_table=np.zeros((1, 1, 1), np.int32),
        slot_mapping=np.zeros((1, rows), np.int64),
        max_query_len=rows,
        max_seq_len=rows,
    )
    return StepInputs(np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32), np.zeros(0, np.int32), meta)

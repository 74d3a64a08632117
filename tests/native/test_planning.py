"""Memory is planned over shapes alone, exactly, and no step within the limits takes more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot, StepInputs
from octavo.ops.native import NativeOps, _native, step_symbols
from octavo.ops.native.backend import NativePlanner
from octavo.ops.tensor import StorageType, Tensor

SYMBOLS = step_symbols()
HEADS, SIZE, BLOCK, VOCABULARY = 4, 32, 16, 40
LENGTH = 3000  # six splits of attention, one of them partly filled
LAYOUT = KVLayout(LENGTH // BLOCK + 1, 1, HEADS, BLOCK, SIZE, "bfloat16")


def matrix(name: str, out: int, depth: int, data: bool) -> Tensor:
    values = np.full((out, depth), 0.01, np.float32).view(np.uint8).reshape(-1)
    return Tensor(name, (out, depth), StorageType.F32, values if data else values[:0])


def record(ops: NativeOps, window: int | None = None, *, data: bool = True) -> Any:
    """One layer and its logits."""
    columns = HEADS * SIZE
    x = ops.embed(SYMBOLS.ids, ops.prepare([matrix("embed", VOCABULARY, columns, data)]))
    parts = [matrix(role, columns, columns, data) for role in "qkv"]
    q, k, v = ops.split(ops.linear(x, ops.prepare(parts)), (columns,) * 3)
    ops.write_kv(k, v, KVSlot(0, 0), SYMBOLS.meta)
    mixed = ops.attend(q, KVSlot(0, 0), Attention(HEADS, HEADS, SIZE, SIZE**-0.5, window), SYMBOLS.meta)
    return ops.logits(mixed, ops.prepare([matrix("head", VOCABULARY, columns, data)]), SYMBOLS.logit_rows)


def step(position: int, count: int) -> StepInputs[Any]:
    """`count` tokens of one sequence, which fill its blocks in order."""
    end = position + count
    positions = np.arange(position, end, dtype=np.int32)
    meta: AttentionMeta[Any] = AttentionMeta(
        cu_seqlens_q=np.array([0, count], np.int32),
        seq_lens=np.array([end], np.int32),
        block_table=np.arange(LAYOUT.num_blocks, dtype=np.int32).reshape(1, 1, -1),
        slot_mapping=positions.astype(np.int64).reshape(1, -1),
        max_query_len=count,
        max_seq_len=end,
    )
    return StepInputs(positions % VOCABULARY, positions, np.array([count - 1], np.int32), meta)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("window", [None, 700])
def test_the_plan_is_what_the_program_holds_before_and_after_the_longest_step(threads: int, window: int | None) -> None:
    limits = {"max_tokens": 512, "max_length": LENGTH, "threads": threads}
    planner = NativePlanner(KVLayout(1, 1, HEADS, BLOCK, SIZE, "bfloat16"), **limits)
    planned = planner.measure(record(planner, window, data=False), 7)
    ops = NativeOps(LAYOUT, **limits)
    program = ops.compile(record(ops, window), rows=7)
    assert planned == program.nbytes + 7 * VOCABULARY * 4
    for position in range(0, LENGTH - 512, 512):
        program(step(position, 512))
    for position in range(LENGTH - LENGTH % 512, LENGTH, 100):
        program(step(position, 1))  # alone, and so cut over the threads
    assert planned == program.nbytes + 7 * VOCABULARY * 4


def test_a_longer_sequence_than_planned_takes_more_when_it_comes() -> None:
    ops = NativeOps(LAYOUT, max_tokens=8, max_length=100, threads=2)
    program = ops.compile(record(ops))
    before = program.nbytes
    program(step(LENGTH - 1, 1))
    assert program.nbytes > before


def test_more_threads_and_longer_sequences_are_planned_more() -> None:
    def planned(threads: int, length: int) -> int:
        planner = NativePlanner(LAYOUT, max_tokens=8, max_length=length, threads=threads)
        return planner.measure(record(planner, data=False), 1)

    assert planned(2, 100) < planned(2, 3000) < planned(2, 30000)
    assert planned(1, 3000) < planned(2, 3000) < planned(3, 3000)
    assert planned(1, 100) == planned(1, 30000)  # one thread cuts nothing


def test_shapes_alone_cannot_compute() -> None:
    planner = NativePlanner(LAYOUT, max_tokens=8, threads=1)
    with pytest.raises(RuntimeError, match="measured, not run"):
        planner.compile(record(planner, data=False))
    shape = _native.Matrix.shaped(planner.isa, [("F32", 4)], 8)
    pool = _native.Pool(1)
    with pytest.raises(ValueError, match="computes nothing"):
        _native.linear(pool, shape, np.zeros((1, 8), np.float32))
    with pytest.raises(ValueError, match="has no rows"):
        _native.embed(shape, np.zeros(1, np.int32))


@pytest.mark.parametrize("parts", [[("F32", 4), ("Q4_1", 6)], [("Q8_0", 20)], [("BF16", 21), ("Q6_K", 16)]])
def test_a_shape_takes_what_the_matrix_takes(parts: Sequence[tuple[str, int]]) -> None:
    isa = _native.instruction_sets()[-1]
    kinds = [(StorageType[name], rows) for name, rows in parts]
    filled = [(kind.name, rows, np.zeros(rows * 256 // kind.block * kind.nbytes, np.uint8)) for kind, rows in kinds]
    assert (
        _native.Matrix.shaped(isa, parts, 256).nbytes
        == _native.Matrix(isa, filled, 256, _native.Pool(1), _native.Arena()).nbytes
    )
    with pytest.raises(ValueError, match="does not fit"):
        _native.Matrix.shaped(isa, [("Q4_1", 3)], 40)

"""The native program: long attention cut over threads, memory planned once, inputs checked before anything runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from octavo.errors import InvalidRequest, KVError
from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot, Rope, StepInputs
from octavo.ops.native import NativeOps, NativeProgram, _native, step_symbols
from octavo.ops.tensor import StorageType, Tensor

SYMBOLS = step_symbols()
HEADS, KV_HEADS, SIZE, BLOCK = 6, 2, 32, 16
ISAS = _native.instruction_sets()


def paged(lengths: list[int], news: list[int], groups: int = 1) -> StepInputs[np.ndarray]:
    """A step in which each sequence's last `news` tokens are new; blocks lie scattered."""
    columns = -(-max(lengths) // BLOCK)
    order = np.random.default_rng(1).permutation(groups * len(lengths) * columns).astype(np.int32)
    table = order.reshape(groups, len(lengths), columns)
    offsets = np.cumsum([0, *news]).astype(np.int32)
    positions = np.concatenate([np.arange(end - new, end) for end, new in zip(lengths, news, strict=True)])
    owner = np.repeat(np.arange(len(lengths)), news)
    slots = table[:, owner, positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
    meta = AttentionMeta(
        offsets, np.array(lengths, np.int32), table, np.ascontiguousarray(slots), max(news), max(lengths)
    )
    return StepInputs(np.zeros(len(owner), np.int32), positions.astype(np.int32), np.zeros(0, np.int32), meta)


def attention(isa: str, threads: int, num_blocks: int, window: int | None = None, tokens: int = 64) -> Any:
    """(ops, program) of one layer: queries, keys and values in, the mix out."""
    layout = KVLayout(num_blocks, 1, KV_HEADS, BLOCK, SIZE, "bfloat16")
    ops = NativeOps(layout, max_tokens=tokens, threads=threads, isa=isa)
    q, k, v = (ops.input(heads * SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS))
    ops.write_kv(k, v, KVSlot(0, 0), SYMBOLS.meta)
    numbers = Attention(HEADS, KV_HEADS, SIZE, SIZE**-0.5, window)
    return ops, ops.compile(ops.attend(q, KVSlot(0, 0), numbers, SYMBOLS.meta))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("window", [None, 700])
def test_a_long_sequence_has_the_same_bits_however_many_threads_share_it(isa: str, window: int | None) -> None:
    """Beyond 512 keys a lone sequence is cut over threads, beside others it is not; the whole is also right."""
    rng = np.random.default_rng(0)
    length, new = 1700, 2
    draws = [rng.standard_normal((length, heads * SIZE), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    results = []
    for threads, others in [(1, 0), (2, 0), (3, 0), (8, 0), (2, 20)]:
        lengths = [length, *[40] * others]
        warm = paged(lengths, lengths)
        blocks = int(warm.meta.block_table.max()) + 1
        _, program = attention(isa, threads, blocks, window, tokens=sum(lengths))
        floats = [np.concatenate([draw, *[draw[:40]] * others]) for draw in draws]
        program(warm, floats)
        step = paged(lengths, [new] + [1] * others)
        rows = [np.concatenate([draw[-new:], *[draw[39:40]] * others]) for draw in draws]
        results.append(program(step, rows)[:new].copy())
        assert np.array_equal(results[-1], results[0]), (threads, others)
    keys, values = (_as_bfloat16(draw).reshape(length, KV_HEADS, SIZE).astype(float) for draw in draws[1:])
    first = 0 if window is None else length - window
    for head in range(HEADS):
        query = draws[0][-1].reshape(HEADS, SIZE)[head]
        weights = np.exp(keys[first:, head // 3] @ query * SIZE**-0.5)
        want = weights / weights.sum() @ values[first:, head // 3]
        np.testing.assert_allclose(results[0][-1].reshape(HEADS, SIZE)[head], want, atol=2e-6)


def _as_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def random_matrix(ops: NativeOps, out: int, depth: int, seed: int) -> Any:
    values = np.random.default_rng(seed).standard_normal((out, depth), np.float32) / depth**0.5
    return ops.prepare([Tensor("w", (out, depth), StorageType.F32, values.view(np.uint8).reshape(-1))])


def deep(ops: NativeOps, layers: int = 12, hidden: int = 48) -> Any:
    """A residual network of every kind of op that lives in the workspace, so that slots are reused many times."""
    rope = Rope(ops.constant(np.linspace(1, 0.1, 8, dtype=np.float32)), 16)
    weight = ops.constant(np.ones(hidden, np.float32))
    x = ops.input(hidden)
    for layer in range(layers):
        y = ops.norm(x, weight, eps=1e-6)
        a, b = ops.split(ops.linear(y, random_matrix(ops, 96, hidden, 3 * layer)), (48, 48))
        y = ops.add(ops.rope(a, SYMBOLS.positions, rope), b)
        y = ops.gated(y, random_matrix(ops, 128, hidden, 3 * layer + 1), "silu")
        x = ops.linear(y, random_matrix(ops, hidden, 64, 3 * layer + 2), residual=x)
    return x


def deep_in_numpy(x: np.ndarray, positions: np.ndarray, layers: int = 12) -> np.ndarray:
    """The same in float64, with no memory to share."""
    angles = (positions.astype(np.float32)[:, None] * np.linspace(1, 0.1, 8, dtype=np.float32)).astype(float)
    x = x.astype(float)
    for layer in range(layers):
        w = [
            (np.random.default_rng(3 * layer + i).standard_normal(s, np.float32) / s[1] ** 0.5).astype(float)
            for i, s in enumerate(((96, 48), (128, 48), (48, 64)))
        ]
        y = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) @ w[0].T
        pairs = y[:, :48].reshape(len(y), 3, 2, 8)
        c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
        turned = np.stack([pairs[:, :, 0] * c - pairs[:, :, 1] * s, pairs[:, :, 1] * c + pairs[:, :, 0] * s], axis=2)
        gate, up = np.split((turned.reshape(len(y), 48) + y[:, 48:]) @ w[1].T, 2, axis=1)
        x = x + gate / (1 + np.exp(-gate)) * up @ w[2].T
    return x


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_kept_outlives_the_run(threads: int) -> None:
    """An activation from the middle, whose memory later ops would take; read without a copy, planned for 40 tokens."""
    ops = NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=40, threads=threads)
    kept = deep(ops, layers=3)
    weight = ops.constant(np.ones(48, np.float32))
    x = kept
    for _ in range(4):
        x = ops.add(ops.norm(x, weight, eps=1e-6), ops.norm(x, weight, eps=1e-6))
    program = ops.compile(x, kept=kept)
    assert program.kept.shape == (40, 48)
    for rows in (5, 40, 3):
        draw = np.random.default_rng(rows).standard_normal((rows, 48), np.float32)
        step = paged([rows], [rows])
        program(step, [draw])
        np.testing.assert_allclose(program.kept[:rows], deep_in_numpy(draw, step.positions, 3), atol=0.05)
    assert ops.compile(None).kept.shape == (0, 0)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_reused_memory_never_mixes_values(threads: int, rows: int) -> None:
    ops = NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=40, threads=threads)
    program = ops.compile(deep(ops))
    x = np.random.default_rng(5).standard_normal((rows, 48), np.float32)
    inputs = paged([rows], [rows])
    for _ in range(3):  # what an earlier run left does not show
        np.testing.assert_allclose(program(inputs, [x]), deep_in_numpy(x, inputs.positions), atol=3e-4)


def test_memory_is_planned_for_what_lives_at_once() -> None:
    """Twelve layers take no more than two: a slot's memory is handed on."""

    def size(layers: int) -> int:
        ops = NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=512, threads=1)
        return ops.compile(deep(ops, layers)).nbytes

    assert size(12) == size(2)
    assert size(12) < 512 * 4 * (48 * 4 + 96 * 2 + 64 * 2 + 16) + 200_000


def bad_steps() -> dict[str, tuple[StepInputs[np.ndarray], type[Exception]]]:
    """Each of these would read or write where it must not."""
    good = paged([40, 17], [3, 17])
    meta = good.meta

    def change(**fields: Any) -> StepInputs[np.ndarray]:
        return dataclasses.replace(good, meta=dataclasses.replace(meta, **fields))

    def at(array: np.ndarray, place: Any, value: int) -> np.ndarray:
        changed = array.copy()
        changed[place] = value
        return changed

    return {
        "block given back": (change(block_table=at(meta.block_table, (0, 0, 0), -1)), KVError),
        "block past the pool": (change(block_table=at(meta.block_table, (0, 1, 1), 6)), KVError),
        "table too short": (change(block_table=np.ascontiguousarray(meta.block_table[:, :, :2])), KVError),
        "slot below": (change(slot_mapping=at(meta.slot_mapping, (0, 5), -1)), KVError),
        "slot above": (change(slot_mapping=at(meta.slot_mapping, (0, 5), 6 * 16)), KVError),
        "offsets fall": (change(cu_seqlens_q=np.array([0, 30, 20], np.int32)), ValueError),
        "offsets start late": (change(cu_seqlens_q=np.array([1, 3, 20], np.int32)), ValueError),
        "offsets end early": (change(cu_seqlens_q=np.array([0, 3, 19], np.int32)), ValueError),
        "more new tokens than tokens": (change(seq_lens=np.array([2, 17], np.int32)), ValueError),
        "negative length": (change(seq_lens=np.array([40, -1], np.int32)), ValueError),
        "lengths of other sequences": (change(seq_lens=np.array([40, 17, 3], np.int32)), ValueError),
        "negative position": (dataclasses.replace(good, positions=good.positions - 60), ValueError),
        "positions of other tokens": (dataclasses.replace(good, positions=good.positions[:-1]), ValueError),
        "other integers": (dataclasses.replace(good, ids=good.ids.astype(np.int64)), TypeError),
        "a stride": (dataclasses.replace(good, ids=np.zeros(40, np.int32)[::2]), TypeError),
        "too many tokens": (paged([65], [65]), InvalidRequest),
    }


@pytest.mark.parametrize("name", bad_steps())
def test_a_bad_step_is_refused_and_nothing_is_written(name: str) -> None:
    step, error = bad_steps()[name]
    ops, program = attention(ISAS[-1], 2, num_blocks=6)
    floats = [np.ones((len(step.ids), heads * SIZE), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    with pytest.raises(error, match=r".") as refusal:
        program(step, floats)
    assert type(refusal.value) is error
    assert not ops.pool.array.any()
    good = paged([40, 17], [3, 17])
    assert np.isfinite(program(good, [part[:20].copy() for part in floats])).all()


def test_only_what_a_window_sees_must_be_there() -> None:
    _, program = attention(ISAS[-1], 1, num_blocks=6, window=20)
    step = paged([96], [3])
    table = step.meta.block_table.copy()
    table[0, 0, :4] = -1  # the first query is at 93 and sees 74 onwards, in block 4
    floats = [np.ones((3, heads * SIZE), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    program(dataclasses.replace(step, meta=dataclasses.replace(step.meta, block_table=table)), floats)
    table[0, 0, 4] = -1
    with pytest.raises(KVError, match="-1"):
        program(dataclasses.replace(step, meta=dataclasses.replace(step.meta, block_table=table)), floats)


def head(columns: int, sampled: int) -> NativeProgram:
    """Logits that are the input itself: an identity matrix."""
    ops = NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=8, threads=2)
    values = np.eye(columns, dtype=np.float32)
    weight = ops.prepare([Tensor("w", values.shape, StorageType.F32, values.view(np.uint8).reshape(-1))])
    return ops.compile(ops.logits(ops.input(columns), weight, SYMBOLS.logit_rows), largest=sampled)


def test_the_largest_of_each_row_is_argmax_of_the_leading_columns() -> None:
    program = head(70, 60)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 70), np.float32)
    x[0, 60:] = 100  # padding does not count
    x[1, [7, 30]] = 50  # the first of equals
    x[2] = -np.abs(x[2])
    x[3] = -np.inf
    x[4, 13] = np.inf
    x[5] = -np.abs(x[5]) - 1
    x[5, [20, 40]] = [-0.0, 0.0]  # equal, so the first
    step = dataclasses.replace(paged([8], [8]), logit_rows=np.array([7, 5, 2, 1, 0], np.int32))
    logits = program(step, [x])
    assert program.largest_ids is not None
    assert program.largest_ids.tolist() == logits[:, :60].argmax(axis=1).tolist()
    x[7, 33] = np.nan
    logits = program(step, [x])
    assert np.isnan(logits[0, program.largest_ids[0]])


def test_recording_is_refused_as_a_value_and_a_value_as_a_recording() -> None:
    ops = NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=8, threads=1)
    x = ops.input(16)
    ops.restart()
    with pytest.raises(ValueError, match="recording"):
        ops.add(x, x)
    with pytest.raises(TypeError, match="constant"):
        ops.norm(ops.input(16), x, eps=1e-5)
    with pytest.raises(ValueError, match="instruction set"):
        NativeOps(KVLayout(1, 1, 1, 1, 8), max_tokens=8, isa="mmx")

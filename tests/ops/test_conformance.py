"""The conformance suite: every op of every backend against the formulas, and what it refuses. The bits: part two."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from backends import Backend
from checks import assert_same_bits, check_attention, check_product, layout_for_products
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import Play, Scene
from stored import stored, values

from octavo.errors import InvalidRequest, KVError
from octavo.ops.alibi import alibi_slopes
from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot, Rope
from octavo.ops.tensor import StorageType

WEIGHT_TYPES = [StorageType[n] for n in ("F32", "BF16", "F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q6_K")]
ACTIVATIONS = [None, "silu", "gelu", "gelu_tanh", "relu"]
RNG_SEED = 11


# Products


@pytest.mark.parametrize("kind", WEIGHT_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "out", "depth"), [(1, 48, 256), (11, 33, 768), (3, 20, 4352)])
def test_linear_of_each_weight_type(backend: Backend, kind: StorageType, rows: int, out: int, depth: int) -> None:
    check_product(backend, kind, rows, out, depth)


def test_linear_of_parts_of_different_types(backend: Backend) -> None:
    """Case L07: one file mixes types, so one fused weight may."""
    rng = np.random.default_rng(RNG_SEED)
    parts = [stored(kind, (n, 256), rng) for kind, n in zip(WEIGHT_TYPES, (32, 5, 7, 16, 9, 1, 40, 3, 20), strict=True)]
    ops = backend.make(layout_for_products())
    x = rng.standard_normal((5, 256), np.float32)
    got = backend.to_numpy(ops.linear(backend.from_numpy(x), ops.prepare(parts)))
    weight = np.concatenate([values(part) for part in parts])
    start = 0
    for part in parts:
        end = start + part.shape[0]
        seen = backend.activations(part.type, x).astype(float)
        allowed = backend.product_error(part.type, 256) * (np.abs(seen) @ np.abs(weight[start:end]).T)
        assert (np.abs(got[:, start:end] - seen @ weight[start:end].T) <= allowed + 1e-30).all(), part.type
        start = end


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_linear_fuses(backend: Backend, activation: str | None, bias: bool, residual: bool) -> None:
    rng = np.random.default_rng(RNG_SEED)
    tensor = stored(StorageType.F32, (24, 40), rng)
    x, b, r = (rng.standard_normal(s, np.float32) for s in ((9, 40), 24, (9, 24)))
    ops = backend.make(layout_for_products())
    got = ops.linear(
        backend.from_numpy(x),
        ops.prepare([tensor]),
        bias=ops.constant(b) if bias else None,
        activation=activation,  # type: ignore[arg-type]
        residual=backend.from_numpy(r) if residual else None,
    )
    y = naive.activate(x.astype(float) @ values(tensor).T.astype(float) + b * bias, activation) + r * residual
    # 40 terms of size about 1: 40 * 2^-24 * 40 is 1e-4 at worst, and the activations are 1.2-Lipschitz.
    np.testing.assert_allclose(backend.to_numpy(got), y, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_gated(backend: Backend, activation: str) -> None:
    rng = np.random.default_rng(RNG_SEED)
    gate, up = stored(StorageType.Q4_1, (40, 64), rng), stored(StorageType.Q8_0, (40, 64), rng)
    x = rng.standard_normal((10, 64), np.float32) / 8
    ops = backend.make(layout_for_products())
    got = backend.to_numpy(ops.gated(backend.from_numpy(x), ops.prepare([gate, up]), activation))  # type: ignore[arg-type]
    seen = [backend.activations(part.type, x).astype(float) for part in (gate, up)]
    want = naive.activate(seen[0] @ values(gate).T, activation) * (seen[1] @ values(up).T)
    sizes = [np.abs(wide) @ np.abs(values(part)).T for wide, part in zip(seen, (gate, up), strict=True)]
    share = max(backend.product_error(part.type, 64) for part in (gate, up))
    assert (np.abs(got - want) <= 3 * share * (sizes[0] * sizes[1] + sizes[0] + sizes[1]) + 1e-6).all()


@pytest.mark.parametrize("kind", WEIGHT_TYPES, ids=lambda kind: kind.name)
def test_embed(backend: Backend, kind: StorageType) -> None:
    rng = np.random.default_rng(RNG_SEED)
    tensor = stored(kind, (70, 256), rng)
    ops = backend.make(layout_for_products())
    ids = np.array([69, 0, 5, 5, 68, 17], np.int32)
    got = backend.to_numpy(ops.embed(backend.from_numpy(ids), ops.prepare([tensor]), scale=3.0))
    np.testing.assert_allclose(got, values(tensor)[ids] * np.float32(3), rtol=2e-7)


@pytest.mark.parametrize("softcap", [None, 30.0])
def test_logits_of_chosen_rows(backend: Backend, softcap: float | None) -> None:
    rng = np.random.default_rng(RNG_SEED)
    tensor = stored(StorageType.Q8_0, (50, 64), rng)
    x = rng.standard_normal((9, 64), np.float32) * 3
    rows = np.array([8, 0, 3], np.int32)
    ops = backend.make(layout_for_products())
    got = backend.to_numpy(
        ops.logits(backend.from_numpy(x), ops.prepare([tensor]), backend.from_numpy(rows), softcap=softcap)
    )
    seen = backend.activations(StorageType.Q8_0, x)[rows].astype(float)
    want = seen @ values(tensor).T
    allowed = backend.product_error(StorageType.Q8_0, 64) * (np.abs(seen) @ np.abs(values(tensor)).T)
    want = want if softcap is None else softcap * np.tanh(want / softcap)
    assert got.dtype == np.float32
    assert (np.abs(got - want) <= allowed + 1e-5).all()


def test_no_rows_at_all(backend: Backend) -> None:
    """A step may want no logits."""
    rng = np.random.default_rng(RNG_SEED)
    ops = backend.make(layout_for_products())
    weight = ops.prepare([stored(StorageType.F32, (50, 64), rng)])
    x = backend.from_numpy(rng.standard_normal((9, 64), np.float32))
    assert backend.to_numpy(ops.logits(x, weight, backend.from_numpy(np.zeros(0, np.int32)))).shape == (0, 50)


# Rows


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("columns", "width"), [(576, 576), (40 * 5, 40), (64 * 9, 64), (7, 7)])
def test_norm(backend: Backend, kind: str, columns: int, width: int) -> None:
    rng = np.random.default_rng(RNG_SEED)
    x, r = (rng.standard_normal((6, columns), np.float32) for _ in range(2))
    weight, bias = (rng.standard_normal(width, np.float32) for _ in range(2))
    ops = backend.make(layout_for_products())
    got = ops.norm(backend.from_numpy(x), ops.constant(weight), eps=1e-5, kind=kind)  # type: ignore[arg-type]
    want = naive.norm(x, weight, 1e-5, kind)
    np.testing.assert_allclose(backend.to_numpy(got), want, atol=3e-6, rtol=3e-6)
    got = ops.norm(
        backend.from_numpy(x),
        ops.constant(weight),
        eps=1e-5,
        kind=kind,  # type: ignore[arg-type]
        bias=ops.constant(bias),
        residual=backend.from_numpy(r),
    )
    want = r + want + np.tile(bias, columns // width)
    np.testing.assert_allclose(backend.to_numpy(got), want, atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize(("head_size", "rotary"), [(64, 64), (40, 20), (80, 32), (256, 256), (96, 96)])
def test_rope(backend: Backend, style: str, head_size: int, rotary: int) -> None:
    """Case L09: also far positions, an attention factor, and heads of which only a part turns."""
    rng = np.random.default_rng(RNG_SEED)
    x = rng.standard_normal((4, 3 * head_size), np.float32)
    positions = np.array([0, 1, 511, 130_000], np.int32)
    inv_freq = (10_000.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    ops = backend.make(layout_for_products())
    rope = Rope(ops.constant(inv_freq), head_size, style, scale=1.25)  # type: ignore[arg-type]
    got = backend.to_numpy(ops.rope(backend.from_numpy(x), backend.from_numpy(positions), rope))
    want = naive.rope(x, positions, inv_freq, head_size, style, 1.25)
    np.testing.assert_allclose(got, want, atol=2e-6)
    left = got.reshape(4, 3, head_size)[..., rotary:]
    assert_same_bits(left, x.reshape(4, 3, head_size)[..., rotary:])


def test_split_and_add(backend: Backend) -> None:
    rng = np.random.default_rng(RNG_SEED)
    x = rng.standard_normal((3, 20), np.float32)
    ops = backend.make(layout_for_products())
    parts = ops.split(backend.from_numpy(x), (8, 8, 4))
    for part, columns in zip(parts, (slice(0, 8), slice(8, 16), slice(16, 20)), strict=True):
        assert_same_bits(backend.to_numpy(part), x[:, columns])
    assert_same_bits(backend.to_numpy(ops.add(parts[0], parts[1])), x[:, :8] + x[:, 8:16])


# Attention against the formulas

FEATURES = {
    "plain": {},
    "window": {"window": 8},
    "window of one": {"window": 1},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi": True},
    "sinks": {"sinks": True},
    "all": {"window": 70, "softcap": 5.0, "alibi": True, "sinks": True},
}


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_attention_features(backend: Backend, features: dict) -> None:
    """Cases L11 and L13: mixed rows, a chunk of one sequence beside single tokens of others."""
    check_attention(backend, Scene((90, 1, 17), **features), Play(chunks=(50, 1)))


@pytest.mark.parametrize("head_size", [40, 64, 80, 96, 128, 160, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (7, 1), (5, 5), (15, 5)])
def test_attention_shapes(backend: Backend, head_size: int, heads: int, kv_heads: int) -> None:
    """Case L12."""
    check_attention(backend, Scene((20, 3), heads, kv_heads, head_size), Play(chunks=(13, 1)))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_attention_anyhow(backend: Backend, data: st.DataObject) -> None:
    kv_heads = data.draw(st.integers(1, 3))
    scene = Scene(
        lengths=tuple(data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=4))),
        heads=kv_heads * data.draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_size=data.draw(st.sampled_from([8, 33, 40, 64])),
        window=data.draw(st.none() | st.integers(1, 80)),
        softcap=data.draw(st.none() | st.sampled_from([0.5, 20.0])),
        alibi=data.draw(st.booleans()),
        sinks=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 100)),
    )
    how = Play(
        block_size=data.draw(st.sampled_from([1, 3, 8, 16, 128])),
        chunks=tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))),
        placement=data.draw(st.integers(0, 100)),
        poison=data.draw(st.sampled_from([0.0, np.nan, np.inf])),
    )
    check_attention(backend, scene, how)


# Bad input


def _meta(backend: Backend, *, slot: int = 0, block: int = 0, length: int = 3) -> AttentionMeta:
    array = backend.from_numpy
    return AttentionMeta(
        array(np.array([0, 1], np.int32)),
        array(np.array([length], np.int32)),
        array(np.array([[[block]]], np.int32)),
        array(np.array([[slot]], np.int64)),
        1,
        length,
    )


@pytest.mark.parametrize("slot", [-1, 32, 1 << 40])
def test_a_slot_outside_the_pool_is_refused(backend: Backend, slot: int) -> None:
    ops = backend.make(KVLayout(2, 1, 1, 16, 8))
    row = backend.from_numpy(np.ones((1, 8), np.float32))
    with pytest.raises(KVError, match=str(slot)):
        ops.write_kv(row, row, KVSlot(0, 0), _meta(backend, slot=slot))


@pytest.mark.parametrize(("block", "length"), [(-1, 3), (2, 3), (1 << 30, 3), (0, 17)])
def test_a_table_that_leaves_the_pool_is_refused(backend: Backend, block: int, length: int) -> None:
    """A block that was given back, one that never was, and a table shorter than its sequence."""
    ops = backend.make(KVLayout(2, 1, 1, 16, 8))
    row = backend.from_numpy(np.ones((1, 8), np.float32))
    with pytest.raises(KVError):
        ops.attend(row, KVSlot(0, 0), Attention(1, 1, 8, 1.0), _meta(backend, block=block, length=length))


@pytest.mark.parametrize("token", [-1, 50, 2**31 - 1])
def test_an_id_outside_the_table_is_refused(backend: Backend, token: int) -> None:
    ops = backend.make(layout_for_products())
    table = ops.prepare([stored(StorageType.F32, (50, 8), np.random.default_rng(0))])
    with pytest.raises(InvalidRequest, match=str(token)):
        ops.embed(backend.from_numpy(np.array([3, token], np.int32)), table)


def test_shapes_that_do_not_fit_are_refused(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    ops = backend.make(KVLayout(2, 1, 2, 16, 8))
    weight = ops.prepare([stored(StorageType.F32, (50, 8), rng)])
    x, narrow = (backend.from_numpy(np.ones((2, n), np.float32)) for n in (16, 5))
    slot, meta = KVSlot(0, 0), _meta(backend)
    calls = {
        "product": lambda: ops.linear(x, weight),
        "bias": lambda: ops.linear(
            narrow, ops.prepare([stored(StorageType.F32, (4, 5), rng)]), bias=ops.constant(np.ones(3, np.float32))
        ),
        "stack": lambda: ops.prepare([stored(StorageType.F32, (50, n), rng) for n in (8, 9)]),
        "split": lambda: ops.split(x, (8, 9)),
        "add": lambda: ops.add(x, narrow),
        "norm": lambda: ops.norm(x, ops.constant(np.ones(5, np.float32)), eps=1e-5),
        "rope": lambda: ops.rope(
            x, backend.from_numpy(np.zeros(2, np.int32)), Rope(ops.constant(np.ones(9, np.float32)), 16)
        ),
        "logits": lambda: ops.logits(
            narrow, ops.prepare([stored(StorageType.F32, (4, 5), rng)]), backend.from_numpy(np.array([2], np.int32))
        ),
        "write": lambda: ops.write_kv(narrow, narrow, slot, meta),
        "layer": lambda: ops.attend(x, KVSlot(0, 1), Attention(2, 2, 8, 1.0), meta),
        "group": lambda: ops.attend(x, KVSlot(1, 0), Attention(2, 2, 8, 1.0), meta),
        "heads": lambda: ops.attend(x, slot, Attention(3, 2, 8, 1.0), meta),
        "head size": lambda: ops.attend(x, slot, Attention(2, 2, 16, 1.0), meta),
        "queries": lambda: ops.attend(x, slot, Attention(2, 2, 8, 1.0), meta),
        "window": lambda: ops.attend(x, slot, Attention(2, 2, 8, 1.0, window=0), meta),
        "slopes": lambda: ops.attend(
            x, slot, Attention(2, 2, 8, 1.0, alibi_slopes=ops.constant(alibi_slopes(3))), meta
        ),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r".") as refusal:
            call()
        assert "\n" not in str(refusal.value), name

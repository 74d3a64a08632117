"""The conformance suite, part two: results have the same bits, however and beside whatever they are computed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from backends import Backend
from checks import assert_same_bits, layout_for_products
from scenes import Play, Scene, play
from stored import stored

from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot, Rope
from octavo.ops.tensor import StorageType

ACTIVATIONS = ["silu", "gelu", "gelu_tanh", "relu"]
RNG_SEED = 13

IDENTITY = Scene((150, 5, 33, 64), heads=6, kv_heads=2, head_size=40)
WINDOWED = dataclasses.replace(IDENTITY, window=20, softcap=8.0, alibi=True, sinks=True)
PLAYS = {
    "blocks elsewhere": Play(placement=7),
    "blocks of 1": Play(block_size=1),
    "blocks of 8": Play(block_size=8),
    "blocks of 32": Play(block_size=32),
    "blocks of 128": Play(block_size=128),
    "alone": Play(together=False),
    "token by token": Play(chunks=(1,)),
    "odd chunks": Play(chunks=(7, 1, 64, 13)),
    "NaN in the pool": Play(poison=np.nan, chunks=(10, 1)),
    "infinity in the pool": Play(poison=np.inf, chunks=(33,), block_size=32),
}


@pytest.mark.parametrize("scene", [IDENTITY, WINDOWED], ids=["full", "windowed"])
def test_attention_does_not_depend_on_how_it_is_played(backend: Backend, scene: Scene) -> None:
    """Case A21 among them: what unwritten slots hold never shows."""
    usual = play(backend, scene)
    for name, how in PLAYS.items():
        for got, want in zip(play(backend, scene, how), usual, strict=True):
            assert_same_bits(got, want, name)


def test_attention_ignores_neighbours(backend: Backend) -> None:
    """A sequence among others gives what it gives with other companions, in another place of the batch."""
    first = play(backend, dataclasses.replace(IDENTITY, lengths=(40,)))[0]
    for lengths in [(40, 1), (40, 9, 130), (40, *[3] * 20)]:
        assert_same_bits(play(backend, dataclasses.replace(IDENTITY, lengths=lengths))[0], first)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_token_does_not_reach_earlier_ones(backend: Backend, bad: float) -> None:
    """Causality to the last bit: a query beside a later token whose keys and values are not finite never sees them."""
    rng = np.random.default_rng(RNG_SEED)
    k, v, q = (rng.standard_normal((12, 2 * 32), np.float32) for _ in range(3))

    def run(length: int) -> np.ndarray:
        ops = backend.make(KVLayout(1, 1, 2, 16, 32))
        meta = AttentionMeta(
            backend.from_numpy(np.array([0, length], np.int32)),
            backend.from_numpy(np.array([length], np.int32)),
            backend.from_numpy(np.zeros((1, 1, 1), np.int32)),
            backend.from_numpy(np.arange(length, dtype=np.int64)[None]),
            length,
            length,
        )
        ops.write_kv(backend.from_numpy(k[:length]), backend.from_numpy(v[:length]), KVSlot(0, 0), meta)
        attention = Attention(2, 2, 32, 0.2)
        return np.array(backend.to_numpy(ops.attend(backend.from_numpy(q[:length]), KVSlot(0, 0), attention, meta)))

    k[9:], v[9:] = bad, bad
    assert_same_bits(run(12)[:9], run(9))


@pytest.mark.parametrize("kind", [StorageType.F32, StorageType.Q4_1, StorageType.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("depth", [256, 1536, 4352])
def test_rows_of_a_product_do_not_depend_on_each_other(backend: Backend, kind: StorageType, depth: int) -> None:
    """Their number, their order, and what the others hold: NaN and infinity too."""
    rng = np.random.default_rng(RNG_SEED)
    ops = backend.make(layout_for_products())
    weight = ops.prepare([stored(kind, (100, depth), rng)])
    x = rng.standard_normal((40, depth), np.float32)

    def times(rows: np.ndarray) -> np.ndarray:
        return np.array(backend.to_numpy(ops.linear(backend.from_numpy(np.ascontiguousarray(rows)), weight)))

    whole = times(x)
    for count in (1, 2, 3, 7, 8, 9, 17):
        assert_same_bits(times(x[5 : 5 + count]), whole[5 : 5 + count], count)
    order = rng.permutation(40)
    assert_same_bits(times(x[order]), whole[order])
    for bad in (np.nan, np.inf, 1e38):
        spoiled = x.copy()
        spoiled[1::2] = bad
        assert_same_bits(times(spoiled)[::2], whole[::2], bad)


@pytest.mark.parametrize("count", [1, 2, 5, 8, 31])
def test_rows_of_every_other_op_do_not_depend_on_their_number(backend: Backend, count: int) -> None:
    rng = np.random.default_rng(RNG_SEED)
    ops = backend.make(layout_for_products())
    x = (rng.standard_normal((40, 120)) * 4).astype(np.float32)
    positions = rng.integers(0, 5000, 40).astype(np.int32)
    weight, head = ops.constant(rng.standard_normal(120, np.float32)), ops.constant(rng.standard_normal(40, np.float32))
    matrix = ops.prepare([stored(StorageType.F32, (64, 120), rng)])
    rope = Rope(ops.constant(rng.random(20, np.float32)), 40)
    array = backend.from_numpy
    steps = {
        "norm": lambda a, p: ops.norm(array(a), weight, eps=1e-6),
        "layer norm": lambda a, p: ops.norm(array(a), weight, eps=1e-6, kind="layer"),
        "head norm": lambda a, p: ops.norm(array(a), head, eps=1e-6),
        "rope": lambda a, p: ops.rope(array(a), array(p), rope),
        **{f"gated {f}": lambda a, p, f=f: ops.gated(array(a), matrix, f) for f in ACTIVATIONS},
        "logits": lambda a, p: ops.logits(array(a), matrix, array(np.arange(len(a), dtype=np.int32)), softcap=3.0),
    }
    for name, step in steps.items():
        whole = np.array(backend.to_numpy(step(x, positions)))
        part = np.array(backend.to_numpy(step(x[3 : 3 + count], positions[3 : 3 + count])))
        assert_same_bits(part, whole[3 : 3 + count], name)


def test_layers_and_groups_do_not_touch_each_other(backend: Backend) -> None:
    """The same tokens in another layer, or through another group's table, are kept apart."""
    scene = dataclasses.replace(IDENTITY, lengths=(20,))
    usual = play(backend, scene)[0]
    for slot in (KVSlot(0, 0), KVSlot(1, 0), KVSlot(1, 1)):
        got = play(backend, dataclasses.replace(scene, slot=slot), Play(groups=2, poison=np.nan))[0]
        assert_same_bits(got, usual, slot)

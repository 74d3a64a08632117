"""Native linear layers against float64 arithmetic on dequantised weights and an exact emulation of the activations.

Every test runs on every instruction set that this processor has. Tolerances are those of float32 sums, never of
quantisation: the oracle uses the very codes that the kernels use.
"""

from __future__ import annotations

from math import erf

import numpy as np
import numpy.typing as npt
import pytest

from octavo.ops.dequant import dequantize
from octavo.ops.native import _native
from octavo.ops.tensor import StorageType, Tensor

Floats = npt.NDArray[np.float32]
ALL = list(StorageType)
INTEGER = [t for t in ALL if t.block > 1]
GROUP_16 = (StorageType.Q2_K, StorageType.Q3_K, StorageType.Q6_K)
# Which bytes of a block are float16 scales; random bytes there could be infinite.
HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
}

ISAS = _native.instruction_sets()


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pool() -> _native.Pool:
    return _native.Pool(2)


def stored(kind: StorageType, n: int, k: int, seed: int = 0) -> Tensor:
    """A random tensor whose every code, scale and minimum pattern occurs."""
    rng = np.random.default_rng(seed)
    if kind is StorageType.F32:
        data = rng.standard_normal((n, k), np.float32).view(np.uint8)
    elif kind is StorageType.F16:
        data = rng.standard_normal((n, k)).astype(np.float16).view(np.uint8)
    elif kind is StorageType.BF16:
        data = (rng.standard_normal((n, k), np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        blocks = rng.integers(0, 256, (n * k // kind.block, kind.nbytes), np.uint8)
        for at in HALVES.get(kind.name, (0,)):
            scales = (rng.standard_normal(len(blocks)) * 0.01).astype(np.float16)
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
        data = blocks
    return Tensor("w", (n, k), kind, np.ascontiguousarray(data).reshape(-1))


def matrix(isa: str, pool: _native.Pool, *parts: Tensor) -> _native.Matrix:
    return _native.Matrix(
        isa, [(p.type.name, p.shape[0], p.data) for p in parts], parts[0].shape[1], pool, _native.Arena()
    )


def seen(x: Floats, kind: StorageType, isa: str) -> npt.NDArray[np.float64]:
    """x as the kernel of `kind` sees it: 8-bit codes times a float32 scale, bf16, or itself."""
    if kind is StorageType.BF16 and isa == "avx512":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    if kind.block == 1:
        return x.astype(np.float64)
    grouped = x.reshape(len(x), -1, 16 if kind in GROUP_16 else 32)
    largest = np.abs(grouped).max(2, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0)).astype(np.float32)
    codes = np.rint(grouped * inverse)
    return (codes.astype(np.float64) * (largest / np.float32(127))).reshape(x.shape)


def product(x: Floats, w: Tensor, isa: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """x @ w.T in float64 and how far float32 sums may be from it."""
    values = dequantize(w).astype(np.float64)
    given = seen(x, w.type, isa)
    room = 4e-7 * np.sqrt(w.shape[1]) * (np.abs(given) @ np.abs(values).T) + 1e-6
    if w.type in (StorageType.Q4_1, StorageType.Q5_1, StorageType.Q4_K, StorageType.Q5_K, StorageType.Q2_K):
        room *= 8  # scale * code and the minimum cancel: the sums are larger than their difference
    return given @ values.T, room


def inputs(rows: int, k: int, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k), np.float32)
    return x * np.exp(rng.standard_normal((rows, k), np.float32))


@pytest.mark.parametrize("kind", ALL, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(33, 256), (16, 768), (250, 512)])
def test_products_equal_the_oracle(isa: str, pool: _native.Pool, kind: StorageType, shape: tuple[int, int]) -> None:
    """All formats, outputs that fill no panel, one row to many."""
    w = stored(kind, *shape)
    packed = matrix(isa, pool, w)
    for rows in (1, 2, 3, 5, 8, 13, 70):
        x = inputs(rows, shape[1], rows)
        want, room = product(x, w, isa)
        got = _native.linear(pool, packed, x)
        assert (np.abs(got - want) <= room).all(), (rows, np.abs(got - want).max())


@pytest.mark.parametrize("kind", ALL, ids=lambda t: t.name)
def test_rows_of_any_number_of_neighbours_have_the_same_bits(isa: str, kind: StorageType) -> None:
    """A row alone, in any place among 1 to 130, with 1 to 5 threads."""
    w = stored(kind, 330, 512)
    x = inputs(130, 512)
    pools = [_native.Pool(t) for t in (1, 2, 5)]
    packed = matrix(isa, pools[0], w)
    alone = np.concatenate([_native.linear(pools[0], packed, x[r : r + 1]) for r in range(len(x))])
    for pool in pools:
        for first, rows in [(0, 130), (1, 2), (3, 3), (5, 4), (7, 7), (20, 8), (30, 63), (11, 64), (9, 65), (0, 1)]:
            got = _native.linear(pool, packed, x[first : first + rows])
            assert np.array_equal(got, alone[first : first + rows]), (pool.threads, first, rows)


@pytest.mark.parametrize("kind", [t for t in INTEGER if t.block == 32], ids=lambda t: t.name)
@pytest.mark.parametrize("k", [32, 96, 160, 8192])
def test_any_number_of_groups(isa: str, pool: _native.Pool, kind: StorageType, k: int) -> None:
    """One group, odd numbers of them, and more than one block of k."""
    w = stored(kind, 20, k)
    packed = matrix(isa, pool, w)
    x = inputs(9, k)
    want, room = product(x, w, isa)
    assert (np.abs(_native.linear(pool, packed, x) - want) <= room).all()
    one = _native.linear(pool, packed, x[4:5])
    assert np.array_equal(one[0], _native.linear(pool, packed, x)[4])


@pytest.mark.parametrize("kind", [StorageType.F32, StorageType.BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("k", [1, 7, 33])
def test_plain_formats_take_any_width(isa: str, pool: _native.Pool, kind: StorageType, k: int) -> None:
    w = stored(kind, 19, k)
    x = inputs(5, k)
    want, room = product(x, w, isa)
    assert (np.abs(_native.linear(pool, matrix(isa, pool, w), x) - want) <= room).all()


@pytest.mark.parametrize("kind", INTEGER, ids=lambda t: t.name)
def test_largest_codes_do_not_saturate(isa: str, pool: _native.Pool, kind: StorageType) -> None:
    """Every code at an end of its range, every activation at +-127: the sums that 16 bits must hold."""
    for byte in (0x00, 0xFF, 0x80, 0x7F):
        w = stored(kind, 16, 512)
        blocks = w.data.reshape(-1, kind.nbytes).copy()
        keep = [b for at in HALVES.get(kind.name, (0,)) for b in (at, at + 1)]
        rest = [b for b in range(kind.nbytes) if b not in keep]
        blocks[:, rest] = byte
        w = Tensor("w", w.shape, kind, blocks.reshape(-1))
        for sign in (1.0, -1.0):
            x = np.full((3, 512), sign, np.float32)
            x[1, ::2] = -sign
            want, room = product(x, w, isa)
            got = _native.linear(pool, matrix(isa, pool, w), x)
            assert (np.abs(got - want) <= room).all(), (hex(byte), sign)


@pytest.mark.parametrize("kind", ALL, ids=lambda t: t.name)
def test_rows_of_a_table_are_exact(isa: str, pool: _native.Pool, kind: StorageType) -> None:
    """Packing changes no code: a row read back has the file's bits."""
    w = stored(kind, 45, 512)
    ids = np.array([0, 44, 16, 15, 31, 7], np.int32)
    assert np.array_equal(_native.embed(matrix(isa, pool, w), ids), dequantize(w)[ids])
    assert np.array_equal(_native.embed(matrix(isa, pool, w), ids, 2.5), dequantize(w)[ids] * np.float32(2.5))


def test_stacked_parts_of_several_formats(isa: str, pool: _native.Pool) -> None:
    """Query, key and value of one layer often differ in storage; groups of 16 and 32 in one product."""
    parts = [
        stored(StorageType.Q4_K, 40, 256),
        stored(StorageType.Q6_K, 24, 256, 2),
        stored(StorageType.F16, 10, 256, 3),
    ]
    x = inputs(6, 256)
    got = _native.linear(pool, matrix(isa, pool, *parts), x)
    wants = [product(x, p, isa) for p in parts]
    want = np.concatenate([w for w, _ in wants], 1)
    room = np.concatenate([r for _, r in wants], 1)
    assert (np.abs(got - want) <= room).all()


def _activation(name: str | None, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    match name:
        case "silu":
            return x / (1 + np.exp(-np.maximum(x, -500)))
        case "gelu":
            return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        case "relu":
            return np.maximum(x, 0)
    return x


@pytest.mark.parametrize("name", [None, "silu", "gelu", "gelu_tanh", "relu"])
def test_what_follows_the_product(isa: str, pool: _native.Pool, name: str | None) -> None:
    """residual + activation(x . w + bias), on outputs that fill no panel."""
    w = stored(StorageType.F32, 37, 64)
    x = inputs(5, 64) * np.float32(0.5)
    rng = np.random.default_rng(3)
    bias = rng.standard_normal(37, np.float32)
    residual = rng.standard_normal((5, 37), np.float32)
    want, room = product(x, w, isa)
    got = _native.linear(pool, matrix(isa, pool, w), x, bias, name, residual)
    want = residual + _activation(name, want + bias)
    assert np.allclose(got, want, rtol=2e-6, atol=1.5 * room.max())


@pytest.mark.parametrize("split", [True, False], ids=["two parts", "one part"])
@pytest.mark.parametrize("half", [48, 37])
@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_gate_and_up(isa: str, pool: _native.Pool, name: str, half: int, split: bool) -> None:
    """activation(gate) * up, gate above up in one tensor or two (of two formats)."""
    x = inputs(7, 256)
    if split:
        gate, up = stored(StorageType.Q4_K, half, 256), stored(StorageType.Q6_K, half, 256, 2)
        packed = matrix(isa, pool, gate, up)
    else:
        both = stored(StorageType.Q4_1, 2 * half, 256)
        middle = len(both.data) // 2
        gate = Tensor("g", (half, 256), both.type, both.data[:middle])
        up = Tensor("u", (half, 256), both.type, both.data[middle:])
        packed = matrix(isa, pool, both)
    (g, g_room), (u, u_room) = product(x, gate, isa), product(x, up, isa)
    got = _native.linear(pool, packed, x, activation=name, gated=True)
    want = _activation(name, g) * u
    room = 2 * g_room * np.abs(u) + u_room * (np.abs(_activation(name, g)) + 1) + 1e-5 * np.abs(want)
    assert got.shape == (7, half)
    assert (np.abs(got - want) <= room).all()
    assert np.array_equal(_native.linear(pool, packed, x[3:4], activation=name, gated=True)[0], got[3])


def test_logits_of_chosen_rows(isa: str, pool: _native.Pool) -> None:
    """Only the rows that sample, softcapped; the same bits as among all rows."""
    w = stored(StorageType.Q8_0, 100, 96)
    x = inputs(9, 96)
    packed = matrix(isa, pool, w)
    rows = np.array([8, 2, 2], np.int32)
    full = _native.linear(pool, packed, x)
    assert np.array_equal(_native.linear(pool, packed, x, rows=rows), full[rows])
    capped = _native.linear(pool, packed, x, rows=rows, softcap=3.0)
    assert np.allclose(capped, 3 * np.tanh(full[rows] / 3), atol=2e-6)
    plain = stored(StorageType.F32, 20, 96)
    packed = matrix(isa, pool, plain)
    assert np.array_equal(_native.linear(pool, packed, x, rows=rows), _native.linear(pool, packed, x)[rows])


@pytest.mark.parametrize("kind", [StorageType.Q4_1, StorageType.Q8_0, StorageType.F32], ids=lambda t: t.name)
def test_one_bad_row_spoils_no_other(isa: str, pool: _native.Pool, kind: StorageType) -> None:
    """Not-a-number and infinity stay in their row, and show there."""
    w = stored(kind, 40, 64)
    x = inputs(6, 64)
    packed = matrix(isa, pool, w)
    clean = _native.linear(pool, packed, x)
    x[2, 5] = np.nan
    x[4, 9] = np.inf
    got = _native.linear(pool, packed, x)
    assert np.array_equal(got[[0, 1, 3, 5]], clean[[0, 1, 3, 5]])
    assert np.isnan(got[2]).all()
    assert not np.isfinite(got[4]).any()


def test_rows_of_zeros_and_of_tiny_values(isa: str, pool: _native.Pool) -> None:
    w = stored(StorageType.Q4_1, 40, 64)
    x = np.zeros((2, 64), np.float32)
    x[1] = 1e-42
    assert np.array_equal(_native.linear(pool, matrix(isa, pool, w), x), np.zeros((2, 40), np.float32))


def test_wrong_shapes_are_refused(pool: _native.Pool) -> None:
    w = stored(StorageType.Q4_0, 32, 64)
    packed = matrix("portable", pool, w)
    with pytest.raises(ValueError, match="columns"):
        _native.linear(pool, packed, inputs(2, 32))
    with pytest.raises(ValueError, match="bias"):
        _native.linear(pool, packed, inputs(2, 64), np.zeros(31, np.float32))
    with pytest.raises(ValueError, match="residual"):
        _native.linear(pool, packed, inputs(2, 64), residual=np.zeros((1, 32), np.float32))
    with pytest.raises(ValueError, match="row index"):
        _native.linear(pool, packed, inputs(2, 64), rows=np.array([2], np.int32))
    with pytest.raises(ValueError, match="id outside"):
        _native.embed(packed, np.array([32], np.int32))
    with pytest.raises(ValueError, match="bytes"):
        _native.Matrix("portable", [("Q4_0", 32, w.data[:-1])], 64, pool, _native.Arena())
    with pytest.raises(ValueError, match="cannot hold"):
        _native.Matrix("portable", [("Q4_K", 32, w.data)], 64, pool, _native.Arena())
    with pytest.raises(ValueError, match="unknown instruction set"):
        _native.Matrix("mmx", [("Q4_0", 32, w.data)], 64, pool, _native.Arena())

"""Dequantising against the gguf package, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same_bits
from stored import QUANTISED_BY_GGUF, SCALES, quantised, raw, values

from octavo.errors import ModelFormatError
from octavo.ops.dequant import dequantize, unpack
from octavo.ops.tensor import StorageType, Tensor

# 576 and 1536 are the rows of SmolLM2; 300 rows of 1536 are several batches and a rest.
SHAPES = [(256,), (1, 256), (3, 768), (7, 576), (5, 1536), (2, 3, 512), (300, 1536), (0, 256)]


def shapes_of(kind: StorageType) -> list[tuple[int, ...]]:
    return [shape for shape in SHAPES if shape[-1] % kind.block == 0]


@pytest.mark.parametrize("kind", list(SCALES), ids=lambda kind: kind.name)
def test_random_bytes(kind: StorageType) -> None:
    """Case L07: every code, scale and packing bit."""
    rng = np.random.default_rng(1)
    for shape in shapes_of(kind):
        tensor = raw(kind, shape, rng)
        want = values(tensor) if tensor.size else np.zeros(shape, np.float32)
        assert_same_bits(dequantize(tensor), want, shape)


@pytest.mark.parametrize("kind", QUANTISED_BY_GGUF, ids=lambda kind: kind.name)
def test_quantised_values(kind: StorageType) -> None:
    """Case L07: what the gguf package stores, rows of 576 and 1536 among them."""
    rng = np.random.default_rng(2)
    for shape in [s for s in shapes_of(kind) if 0 not in s] + ([(3, 5), (11,)] if kind.block == 1 else []):
        tensor = quantised(kind, shape, rng)
        assert_same_bits(dequantize(tensor), values(tensor), shape)


@pytest.mark.parametrize("kind", [StorageType.F32, StorageType.F16, StorageType.BF16], ids=lambda kind: kind.name)
def test_every_16_bit_pattern(kind: StorageType) -> None:
    """Infinities, NaN, subnormals and signed zeros pass as they are."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    stored = patterns if kind is not StorageType.F32 else patterns.astype(np.uint32) << 16
    got = dequantize(Tensor("patterns", (1 << 16,), kind, stored.view(np.uint8)))
    if kind is StorageType.F16:
        np.testing.assert_array_equal(got, patterns.view(np.float16).astype(np.float32))
    else:
        assert_same_bits(got, (patterns.astype(np.uint32) << 16).view(np.float32))


@pytest.mark.parametrize("kind", list(SCALES), ids=lambda kind: kind.name)
def test_codes_are_kept(kind: StorageType) -> None:
    """Each type is integer codes with one scale, and at most one minimum, for each group."""
    tensor = raw(kind, (4, 256), np.random.default_rng(3))
    codes, scale, minimum = unpack(tensor.data.reshape(-1, kind.nbytes), kind)
    assert codes.dtype in (np.uint8, np.int8)
    assert codes.shape == (1024 // kind.block, kind.block)
    assert scale.dtype == np.float32
    assert kind.block % scale.shape[1] == 0
    assert minimum is None or minimum.shape == scale.shape


def test_into_an_array_that_is_there() -> None:
    tensor = raw(StorageType.Q4_K, (6, 512), np.random.default_rng(4))
    room = np.full((8, 512), 7, np.float32)
    assert dequantize(tensor, room[1:7]).base is room
    assert_same_bits(room[1:7], values(tensor))
    assert (room[[0, 7]] == 7).all()


@pytest.mark.parametrize("kind", list(StorageType), ids=lambda kind: kind.name)
@pytest.mark.parametrize("change", [-1, 1])
def test_bytes_that_do_not_cover_the_shape(kind: StorageType, change: int) -> None:
    data = np.zeros(2 * 256 // kind.block * kind.nbytes + change, np.uint8)
    with pytest.raises(ModelFormatError, match=f"'short'.* not {data.size}"):
        dequantize(Tensor("short", (2, 256), kind, data))


def test_rows_that_are_no_whole_blocks() -> None:
    with pytest.raises(ModelFormatError, match=r"'ragged'.*rows of 576.*Q4_K blocks of 256"):
        dequantize(Tensor("ragged", (4, 576), StorageType.Q4_K, np.zeros(9 * 144, np.uint8)))

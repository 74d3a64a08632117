"""Stored blocks to float32, exactly as the GGUF format defines them. Never quantises, knows no file and no model.

Every type is one formula: value = scale * code + minimum, with one float32 scale (and minimum) for each group of codes.
So a type is only a rule that unpacks its codes, scales and minimums; the arithmetic is written once, below.
Layouts: the block structs of the GGUF specification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelFormatError
from octavo.ops.tensor import StorageType, Tensor

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8] | npt.NDArray[np.int8]

# Values unpacked at once: the temporaries of one batch stay in the second-level cache.
_BATCH = 1 << 16


class Groups(NamedTuple):
    """n blocks, unpacked. codes: [n, values], integers. scale, minimum: float32 [n, groups], each for an equal run of
    consecutive codes; minimum is None where the type has none."""

    codes: Codes
    scale: Floats
    minimum: Floats | None = None


def dequantize(tensor: Tensor, out: Floats | None = None) -> Floats:
    """float32 values of a tensor, in its shape; written into `out` (contiguous, that shape) when given.

    Raises ModelFormatError when the bytes do not cover the shape or a row is not a whole number of blocks.
    """
    _check_size(tensor)
    if out is None:
        out = np.empty(tensor.shape, np.float32)
    flat = out.reshape(-1)
    match tensor.type:
        case StorageType.F32:
            flat[:] = tensor.data.view("<f4")
        case StorageType.F16:
            flat[:] = tensor.data.view("<f2")
        case StorageType.BF16:
            np.left_shift(tensor.data.view("<u2"), np.uint32(16), out=flat.view(np.uint32), dtype=np.uint32)
        case kind:
            _dequantize_blocks(tensor.data.reshape(-1, kind.nbytes), kind, flat.reshape(-1, kind.block))
    return out


def unpack(blocks: Bytes, kind: StorageType) -> Groups:
    """Codes, scales and minimums of uint8 [n, bytes of a block]; for the block types only."""
    return _UNPACK[kind](blocks)


def _check_size(tensor: Tensor) -> None:
    kind = tensor.type
    row = tensor.shape[-1] if tensor.shape else 1
    if row % kind.block:
        raise ModelFormatError(
            f"tensor {tensor.name!r}: rows of {row} values are not whole {kind.name} blocks of {kind.block}"
        )
    expected = tensor.size // kind.block * kind.nbytes
    if tensor.data.size != expected:
        raise ModelFormatError(
            f"tensor {tensor.name!r}: {tensor.shape} of {kind.name} takes {expected} bytes, not {tensor.data.size}"
        )


def _dequantize_blocks(blocks: Bytes, kind: StorageType, out: Floats) -> None:
    """[n, bytes] -> out [n, values], a batch of blocks at a time."""
    batch = _BATCH // kind.block
    for start in range(0, len(blocks), batch):
        codes, scale, minimum = unpack(blocks[start : start + batch], kind)
        values = out[start : start + batch]
        values[:] = codes
        grouped = values.reshape(*scale.shape, -1)
        grouped *= scale[:, :, None]
        if minimum is not None:
            grouped += minimum[:, :, None]


# Pieces that several types share


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of every block: float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _fields(packed: Bytes, bits: int, run: int) -> Bytes:
    """Unsigned fields of `bits` bits. Each run of `run` bytes holds 8 / bits runs of values, lowest bits first:
    uint8 [n, bytes] -> [n, bytes * 8 / bits]."""
    n = len(packed)
    per_byte = 8 // bits
    runs = packed.reshape(n, -1, 1, run)
    out = np.empty((n, runs.shape[1], per_byte, run), np.uint8)
    for i in range(per_byte):
        np.right_shift(runs[:, :, 0], np.uint8(i * bits), out=out[:, :, i])
    if bits < 8:
        out &= np.uint8((1 << bits) - 1)
    return out.reshape(n, -1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """The 32 high bits at byte `at` of a Q5_0 or Q5_1 block, each worth 16: [n, 32]."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minimums from the 12 bytes of Q4_K and Q5_K: two of [n, 8].

    Bytes 0-3 and 4-7 hold the first four of each in their low six bits; bytes 8-11 hold the low nibbles of the last
    four (scale low, minimum high), whose top two bits are the spare bits of bytes 0-3 and 4-7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    six, four = np.uint8(0x3F), np.uint8(0x0F)
    spare = np.uint8(0x30)
    scale = np.concatenate([first & six, (third & four) | (first >> np.uint8(2) & spare)], axis=1)
    minimum = np.concatenate([second & six, (third >> np.uint8(4)) | (second >> np.uint8(2) & spare)], axis=1)
    return scale, minimum


# One rule a type


def _q4_0(blocks: Bytes) -> Groups:
    return Groups(_fields(blocks[:, 2:], 4, 16).view(np.int8) - np.int8(8), _half(blocks, 0))


def _q4_1(blocks: Bytes) -> Groups:
    return Groups(_fields(blocks[:, 4:], 4, 16), _half(blocks, 0), _half(blocks, 2))


def _q5_0(blocks: Bytes) -> Groups:
    codes = _fields(blocks[:, 6:], 4, 16) | _fifth_bits(blocks, 2)
    return Groups(codes.view(np.int8) - np.int8(16), _half(blocks, 0))


def _q5_1(blocks: Bytes) -> Groups:
    codes = _fields(blocks[:, 8:], 4, 16) | _fifth_bits(blocks, 4)
    return Groups(codes, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Bytes) -> Groups:
    return Groups(blocks[:, 2:].view(np.int8), _half(blocks, 0))


def _q2_k(blocks: Bytes) -> Groups:
    """16 bytes of (scale, minimum) nibbles, 64 of 2-bit codes, d, dmin; groups of 16."""
    scale, minimum = blocks[:, :16] & np.uint8(0x0F), blocks[:, :16] >> np.uint8(4)
    return Groups(_fields(blocks[:, 16:80], 2, 32), _half(blocks, 80) * scale, -(_half(blocks, 82) * minimum))


def _q3_k(blocks: Bytes) -> Groups:
    """32 bytes of high bits, 64 of low 2 bits, 12 of 6-bit scales, d; groups of 16, codes -4..3, scales -32..31."""
    high = _fields(blocks[:, :32], 1, 32) << np.uint8(2)
    codes = (_fields(blocks[:, 32:96], 2, 32) | high).view(np.int8) - np.int8(4)
    low = _fields(blocks[:, 96:104], 4, 8)
    top = _fields(blocks[:, 104:108], 2, 4) << np.uint8(4)
    return Groups(codes, _half(blocks, 108) * ((low | top).view(np.int8) - np.int8(32)))


def _q4_k(blocks: Bytes) -> Groups:
    """d, dmin, 12 bytes of 6-bit scales and minimums, 128 of 4-bit codes; groups of 32."""
    scale, minimum = _k_scales(blocks[:, 4:16])
    return Groups(_fields(blocks[:, 16:], 4, 32), _half(blocks, 0) * scale, -(_half(blocks, 2) * minimum))


def _q5_k(blocks: Bytes) -> Groups:
    """As Q4_K, with 32 bytes of fifth bits before the codes."""
    scale, minimum = _k_scales(blocks[:, 4:16])
    codes = _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << np.uint8(4)
    return Groups(codes, _half(blocks, 0) * scale, -(_half(blocks, 2) * minimum))


def _q6_k(blocks: Bytes) -> Groups:
    """128 bytes of low nibbles, 64 of high 2 bits, 16 int8 scales, d; groups of 16, codes -32..31."""
    codes = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << np.uint8(4)
    return Groups(codes.view(np.int8) - np.int8(32), _half(blocks, 208) * blocks[:, 192:208].view(np.int8))


_UNPACK: dict[StorageType, Callable[[Bytes], Groups]] = {
    StorageType.Q4_0: _q4_0,
    StorageType.Q4_1: _q4_1,
    StorageType.Q5_0: _q5_0,
    StorageType.Q5_1: _q5_1,
    StorageType.Q8_0: _q8_0,
    StorageType.Q2_K: _q2_k,
    StorageType.Q3_K: _q3_k,
    StorageType.Q4_K: _q4_k,
    StorageType.Q5_K: _q5_k,
    StorageType.Q6_K: _q6_k,
}

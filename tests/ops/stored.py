"""Random tensors in every storage type, with the values that the gguf package reads from them."""

from __future__ import annotations

import gguf
import numpy as np

from octavo.ops.tensor import StorageType, Tensor

# Where each block type keeps its float16 scales: random bytes there would be infinities and NaN.
SCALES = {
    StorageType.Q4_0: (0,),
    StorageType.Q4_1: (0, 2),
    StorageType.Q5_0: (0,),
    StorageType.Q5_1: (0, 2),
    StorageType.Q8_0: (0,),
    StorageType.Q2_K: (80, 82),
    StorageType.Q3_K: (108,),
    StorageType.Q4_K: (0, 2),
    StorageType.Q5_K: (0, 2),
    StorageType.Q6_K: (208,),
}
QUANTISED_BY_GGUF = [StorageType[n] for n in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")]


def quantised(kind: StorageType, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Normal values through the gguf package's quantiser."""
    data = gguf.quants.quantize(rng.standard_normal(shape, np.float32), gguf.GGMLQuantizationType[kind.name])
    return Tensor("quantised", shape, kind, np.ascontiguousarray(data).view(np.uint8).reshape(-1))


def raw(kind: StorageType, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Random bytes with finite scales: every code, packed scale and sign occurs."""
    blocks = int(np.prod(shape)) // kind.block
    data = rng.integers(0, 256, (blocks, kind.nbytes), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = rng.standard_normal((blocks, 1)).astype(np.float16) / np.float16(64)
        data[:, at : at + 2] = scale.view(np.uint8)
    return Tensor("raw", shape, kind, data.reshape(-1))


def stored(kind: StorageType, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """One of the above, whichever there is."""
    return quantised(kind, shape, rng) if kind in QUANTISED_BY_GGUF else raw(kind, shape, rng)


def values(tensor: Tensor) -> np.ndarray:
    """float32 values as the gguf package reads them."""
    kind = gguf.GGMLQuantizationType[tensor.type.name]
    data = tensor.data
    if tensor.type in (StorageType.F32, StorageType.F16):
        data = data.view(np.float32 if tensor.type is StorageType.F32 else np.float16)
    return gguf.quants.dequantize(data, kind).astype(np.float32).reshape(tensor.shape)

"""Writes a GGUF file of the Llama architecture with random weights, for measuring speed. Its answers mean nothing.

The same shape and format give the same file. Weights are drawn straight in their stored form, so that writing costs
little more than the disk: random codes under one scale, which keeps the values near the variance of a trained model.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from octavo.ops.tensor import StorageType
from octavo.weights.gguf import GGUFFile, Value

ALIGNMENT = 32
ROWS_AT_ONCE = 4096
FORMATS = MappingProxyType({"q4_1": StorageType.Q4_1, "q8_0": StorageType.Q8_0, "bf16": StorageType.BF16})
_TYPE_CODES = MappingProxyType(
    {StorageType.F32: 0, StorageType.Q4_1: 3, StorageType.Q8_0: 8, StorageType.BF16: 30},
)
_ELEMENT_CODES = MappingProxyType({"int8": 1, "int32": 5, "uint32": 4, "float32": 6, "int64": 11})


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The dimensions of a Llama model; its vocabulary is the donor's."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    context: int


SHAPES = MappingProxyType(
    {
        "1b": LlamaShape(16, 2048, 8192, 32, 8, 64, 8192),
        "135m": LlamaShape(30, 576, 1536, 9, 3, 64, 8192),
        "tiny": LlamaShape(2, 64, 128, 2, 1, 32, 512),
    }
)


def write_random_llama(path: Path, shape: LlamaShape, storage: StorageType, donor: GGUFFile) -> Path:
    """Write the file in one step: whole or not at all. donor: gives the tokenizer, and so the vocabulary's size."""
    tokenizer = {key: value for key, value in donor.metadata.items() if key.startswith("tokenizer.")}
    vocab_size = donor.tensors["token_embd.weight"].shape[0]
    metadata = _metadata(shape) | tokenizer
    tensors = list(_tensors(shape, vocab_size, storage))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.part-") as folder:
        part = Path(folder) / path.name
        with part.open("wb") as file:
            _write_header(file, metadata, tensors)
            draw = np.random.default_rng(1)
            for _, (rows, columns), kind in tensors:
                _pad(file)
                _write_rows(file, (rows, columns), kind, draw)
            _pad(file)
        return part.replace(path)


_Planned = tuple[str, tuple[int, int], StorageType]


def _metadata(shape: LlamaShape) -> dict[str, Value]:
    return {
        "general.architecture": "llama",
        "general.name": "random weights",
        "general.alignment": ALIGNMENT,
        "llama.block_count": shape.layers,
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.intermediate,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head_size,
        "llama.attention.value_length": shape.head_size,
        "llama.rope.dimension_count": shape.head_size,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }


def _tensors(shape: LlamaShape, vocab_size: int, storage: StorageType) -> Iterator[_Planned]:
    """Name, (rows, columns) and type of each; a norm is one row. The output layer is the embedding."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd.weight", (vocab_size, shape.hidden), storage
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", (1, shape.hidden), StorageType.F32
        yield f"{block}attn_q.weight", (query, shape.hidden), storage
        yield f"{block}attn_k.weight", (key, shape.hidden), storage
        yield f"{block}attn_v.weight", (key, shape.hidden), storage
        yield f"{block}attn_output.weight", (shape.hidden, query), storage
        yield f"{block}ffn_norm.weight", (1, shape.hidden), StorageType.F32
        yield f"{block}ffn_gate.weight", (shape.intermediate, shape.hidden), storage
        yield f"{block}ffn_up.weight", (shape.intermediate, shape.hidden), storage
        yield f"{block}ffn_down.weight", (shape.hidden, shape.intermediate), storage
    yield "output_norm.weight", (1, shape.hidden), StorageType.F32


def _write_header(file: BinaryIO, metadata: Mapping[str, Value], tensors: list[_Planned]) -> None:
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    file.writelines(_text(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for name, (rows, columns), kind in tensors:
        axes = (columns,) if kind is StorageType.F32 else (columns, rows)
        file.write(_text(name) + struct.pack(f"<I{len(axes)}Q", len(axes), *axes))
        file.write(struct.pack("<IQ", _TYPE_CODES[kind], offset))
        size = rows * columns // kind.block * kind.nbytes
        offset += -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    """A metadata value after the code of its type, as GGUF has them."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, _ELEMENT_CODES[value.dtype.name], len(value)) + value.tobytes()


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))


def _write_rows(file: BinaryIO, shape: tuple[int, int], kind: StorageType, draw: np.random.Generator) -> None:
    """One tensor of random values with the standard deviation 1 / sqrt(columns); of ones when it is a norm."""
    rows, columns = shape
    if kind is StorageType.F32:
        file.write(np.ones(rows * columns, np.float32).tobytes())
        return
    deviation = columns**-0.5
    for start in range(0, rows, ROWS_AT_ONCE):
        values = (min(ROWS_AT_ONCE, rows - start)) * columns
        file.write(_random_blocks(values, kind, deviation, draw).data)


def _random_blocks(
    values: int, kind: StorageType, deviation: float, draw: np.random.Generator
) -> npt.NDArray[np.uint8]:
    if kind is StorageType.BF16:
        bits = np.frombuffer(draw.bytes(2 * values), np.uint16)
        exponent = 127 + round(np.log2(deviation / 1.53))  # a mantissa drawn evenly has the root mean square 1.53
        return ((bits & 0x807F) | np.uint16(exponent << 7)).view(np.uint8)
    blocks = values // kind.block
    raw = np.frombuffer(draw.bytes(blocks * kind.nbytes), np.uint8).reshape(blocks, kind.nbytes).copy()
    if kind is StorageType.Q4_1:  # codes 0 to 15 have the deviation 4.61; the minimum centres them
        scale = deviation / 4.61
        raw[:, :4] = np.array([scale, -7.5 * scale], np.float16).view(np.uint8)
    else:  # Q8_0: codes -128 to 127 have the deviation 73.9
        raw[:, :2] = np.array([deviation / 73.9], np.float16).view(np.uint8)
    return raw

"""Reads safetensors files, mapped and bounds-checked. Knows no model and no directory.

Source of the layout: the safetensors format: 8 bytes of header length (little endian), a JSON header, the data. As the
format demands, the tensors cover the data exactly, without holes or overlaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from octavo.errors import ModelFormatError, UnsupportedModel
from octavo.ops.tensor import StorageType, Tensor
from octavo.weights.fields import MAX_JSON_BYTES, parse_json
from octavo.weights.mapping import map_file

_TYPES = MappingProxyType({"F32": StorageType.F32, "F16": StorageType.F16, "BF16": StorageType.BF16})
_OTHERS = frozenset("BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F4 F6_E2M3 F6_E3M2 I16 U16 I32 U32 F64 I64 U64 C64".split())
_MAX_AXES = 8


def read_safetensors(path: str | Path) -> Mapping[str, Tensor]:
    """Names to views of the map, in the order of the header.

    Raises ModelNotFound, ModelFormatError (with the offset where known) or UnsupportedModel (a number format).
    """
    path = Path(path)
    buffer = map_file(path)
    if len(buffer) < 8:
        raise ModelFormatError(f"{path.name}: {len(buffer)} bytes are no safetensors file", offset=0)
    length = int.from_bytes(buffer[:8], "little")
    if length > min(len(buffer) - 8, MAX_JSON_BYTES):
        limit = min(len(buffer) - 8, MAX_JSON_BYTES)
        raise ModelFormatError(f"{path.name}: a header of {length} bytes is claimed, at most {limit} can be", offset=0)
    header = parse_json(buffer[8 : 8 + length], f"{path.name}: header", offset=8)
    header.pop("__metadata__", None)
    data = np.frombuffer(buffer, dtype=np.uint8)[8 + length :]
    spans = {name: _span(f"{path.name}: tensor {name[:80]!r}", entry) for name, entry in header.items()}
    end = 0
    for name, (_, _, start, stop) in sorted(spans.items(), key=lambda item: item[1][2:]):
        if start != end:
            what = "overlaps the one before" if start < end else "leaves a hole before it"
            raise ModelFormatError(f"{path.name}: tensor {name[:80]!r} {what}", offset=8 + length + start)
        end = stop
    if end != len(data):
        raise ModelFormatError(f"{path.name}: the tensors end at {8 + length + end}, the file at {len(buffer)}")
    return MappingProxyType(
        {name: Tensor(name, shape, kind, data[start:stop]) for name, (shape, kind, start, stop) in spans.items()}
    )


def _span(label: str, entry: Any) -> tuple[tuple[int, ...], StorageType, int, int]:
    """(shape, type, start, stop) of one header entry; start and stop in bytes of the data section."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelFormatError(f"{label}: its entry is not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _OTHERS | set(_TYPES):
        raise ModelFormatError(f"{label}: unknown dtype {dtype!r:.80}")
    if dtype not in _TYPES:
        raise UnsupportedModel(f"{label} is stored as {dtype}, which is not supported; supported are BF16 F16 F32")
    if not (_naturals(shape) and len(shape) <= _MAX_AXES):
        raise ModelFormatError(f"{label}: shape is not a list of at most {_MAX_AXES} sizes above 0")
    if not (_naturals(offsets, low=0) and len(offsets) == 2):
        raise ModelFormatError(f"{label}: data_offsets are not two positions")
    kind, size = _TYPES[dtype], 1
    for axis in shape:
        size *= axis
    start, stop = offsets
    if stop - start != size * kind.nbytes:
        raise ModelFormatError(f"{label}: {shape} of {dtype} is {size * kind.nbytes} bytes, not {stop - start}")
    return tuple(shape), kind, start, stop


def _naturals(values: Any, low: int = 1) -> bool:
    """Whether `values` is a list of ints from `low` on (and below 2^63)."""
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and low <= value < 2**63 for value in values
    )

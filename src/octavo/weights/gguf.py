"""Reads GGUF files: metadata and where each tensor lies, mapped and bounds-checked. Knows no architecture.

Source of the layout: the GGUF specification, versions 2 and 3, little endian. Nothing that the file claims is believed
before it was compared with the file's size, in Python integers, so neither a wrapped product nor a huge count can lead
to a wild read or a large allocation. Tensors are views of the map; arrays of metadata are decoded when first asked for.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelFormatError, UnsupportedModel
from octavo.ops.tensor import StorageType, Tensor
from octavo.weights.mapping import Buffer, map_file

MAGIC = b"GGUF"
Scalar = bool | int | float | str
Value = Scalar | list[str] | npt.NDArray[np.generic]

_SCALARS: Mapping[int, struct.Struct] = MappingProxyType(
    {code: struct.Struct("<" + c) for code, c in {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f"}.items()}
    | {code: struct.Struct("<" + c) for code, c in {7: "B", 10: "Q", 11: "q", 12: "d"}.items()}
)
_DTYPES: Mapping[int, str] = MappingProxyType(
    {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
)
_BOOL, _STRING, _ARRAY = 7, 8, 9

_TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K"}
    | {12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"}
    | {20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
    | {29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}
)

_MAX_NAME = 65535
_MAX_STRING = 1 << 24
_MAX_STRINGS = 1 << 22
_MAX_DIMS = 4
_MIN_PAIR = 8 + 1 + 4 + 1
_MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20


class GGUFFile:
    """One open file. `metadata`: keys in file order to values. `tensors`: names in file order to views of the map."""

    def __init__(self, path: Path, metadata: Metadata, tensors: Mapping[str, Tensor]) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Map `path` and check its structure. Reads no tensor data.

        Raises ModelNotFound, ModelFormatError (with the offset) or UnsupportedModel (a storage type without support).
        """
        path = Path(path)
        cursor = _Cursor(map_file(path), path.name)
        n_tensors, n_pairs = _read_header(cursor)
        metadata = Metadata(cursor.buffer, _read_pairs(cursor, n_pairs))
        infos = _read_infos(cursor, n_tensors)
        return cls(path, metadata, MappingProxyType(_place(cursor, infos, _alignment(cursor, metadata))))


class Metadata(Mapping[str, Value]):
    """Keys to values; an array is decoded when it is first asked for and kept.

    Integers, floats, booleans and strings come as Python's; an array of strings as list[str]; an array of numbers or
    booleans as a read-only numpy array of the file's own element type.
    """

    def __init__(self, buffer: Buffer, entries: dict[str, Scalar | _Array]) -> None:
        self._buffer = buffer
        self._entries = entries
        self._decoded: dict[str, Value] = {}

    def __getitem__(self, key: str) -> Value:
        entry = self._entries[key]
        if not isinstance(entry, _Array):
            return entry
        if key not in self._decoded:
            self._decoded[key] = entry.decode(self._buffer)
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def length(self, key: str) -> int:
        """Elements of the array under `key`, without decoding it; 1 for anything that is no array. Raises KeyError."""
        entry = self._entries[key]
        return entry.count if isinstance(entry, _Array) else 1


@dataclass(frozen=True, slots=True)
class _Array:
    """Where an array's elements lie; checked to be inside the file when it was found."""

    kind: int
    count: int
    start: int

    def decode(self, buffer: Buffer) -> Value:
        if self.kind != _STRING:
            values = np.frombuffer(buffer, dtype=_DTYPES[self.kind], count=self.count, offset=self.start).copy()
            values.flags.writeable = False
            return values
        return _decode_strings(buffer, self.start, self.count)


def _decode_strings(buffer: Buffer, start: int, count: int) -> list[str]:
    """`count` strings, each after its length in 8 bytes, whose extent was checked before.

    One by one this costs 1 us a string. So all lengths are cut out at once, a NUL left between the strings, and the
    whole decoded and split; unless a string itself has a NUL or is not UTF-8.
    """
    size_at = _SCALARS[10].unpack_from
    starts, position = [], start
    for _ in range(count):
        starts.append(position)
        position += 8 + size_at(buffer, position)[0]
    region = np.frombuffer(buffer, np.uint8, position - start, start).copy()
    prefixes = np.asarray(starts, np.int64) - start
    keep = np.ones(len(region), bool)
    for byte in range(7):
        keep[prefixes + byte] = False
    region[prefixes + 7] = 0
    joined = region[keep]
    if np.count_nonzero(joined == 0) == count:
        with contextlib.suppress(UnicodeDecodeError):
            return joined.tobytes().decode().split("\0")[1:]
    return [_decode_string(buffer, at, at + 8 + size_at(buffer, at)[0]) for at in starts]


def _decode_string(buffer: Buffer, start: int, end: int) -> str:
    try:
        return str(buffer[start + 8 : end], "utf-8")
    except UnicodeDecodeError as error:
        raise ModelFormatError("GGUF: a string is not UTF-8", offset=start + 8) from error


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor as its entry claims it to be. shape: outermost axis first. at: where the entry's offset field is."""

    name: str
    shape: tuple[int, ...]
    type: StorageType
    nbytes: int
    offset: int
    at: int


class _Cursor:
    """A position in the map that refuses to leave it."""

    def __init__(self, buffer: Buffer, name: str) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0
        self.strings_left = _MAX_STRINGS
        self._name = name

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        raise ModelFormatError(f"{self._name}: {what}", offset=self.position if at is None else at)

    def need(self, count: int, unit: int, what: str) -> None:
        """`count` things of at least `unit` bytes must still fit."""
        if count * unit > self.size - self.position:
            left = self.size - self.position
            self.fail(f"{what} needs {count * unit} bytes and only {left} of the file's {self.size} are left")

    def scalar(self, kind: int, what: str) -> int | float:
        layout = _SCALARS[kind]
        self.need(1, layout.size, what)
        value: int | float = layout.unpack_from(self.buffer, self.position)[0]
        self.position += layout.size
        return value

    def u32(self, what: str) -> int:
        return int(self.scalar(4, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(10, what))

    def string(self, limit: int, what: str) -> str:
        start = self.position
        length = self.u64(f"length of {what}")
        if length > limit:
            self.fail(f"{what} claims {length} bytes, the limit is {limit}", start)
        self.need(length, 1, what)
        raw = self.buffer[self.position : self.position + length]
        try:
            text = str(raw, "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")
        self.position += length
        return text

    def name(self, what: str, taken: Mapping[str, object]) -> str:
        """A key or tensor name: not empty, not twice."""
        start = self.position
        text = self.string(_MAX_NAME, what)
        if not text:
            self.fail(f"{what} is empty", start)
        if text in taken:
            self.fail(f"{what} {text[:80]!r} appears twice", start)
        return text

    def skip_strings(self, count: int, what: str) -> None:
        """Walk `count` strings; this loop is what opening a large vocabulary costs (about 0.1 us a string)."""
        self.need(count, 8, what)
        if count > self.strings_left:
            self.fail(f"{what} brings the strings in arrays above {_MAX_STRINGS}")
        self.strings_left -= count
        size_at, buffer, position, last = _SCALARS[10].unpack_from, self.buffer, self.position, self.size - 8
        for _ in range(count):
            if position > last:
                self.fail(f"{what} runs past the end of the file, which has {self.size} bytes")
            position += 8 + size_at(buffer, position)[0]
        if position > self.size:
            self.fail(f"{what} runs past the end of the file, which has {self.size} bytes")
        self.position = position


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    """(tensors, metadata pairs), each small enough for the rest of the file to hold."""
    if cursor.buffer[:4] != MAGIC:
        cursor.fail(f"not a GGUF file: it begins with {bytes(cursor.buffer[:4])!r}")
    cursor.position = 4
    version = cursor.u32("the version")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
        raise UnsupportedModel("big-endian GGUF is not supported: convert the file to little endian")
    if version not in (2, 3):
        cursor.fail(f"GGUF version {version} is unknown; versions 2 and 3 are read", 4)
    n_tensors = cursor.u64("the number of tensors")
    n_pairs = cursor.u64("the number of metadata pairs")
    cursor.need(n_tensors, _MIN_TENSOR, f"a list of {n_tensors} tensors")
    cursor.need(n_pairs, _MIN_PAIR, f"a list of {n_pairs} metadata pairs")
    return n_tensors, n_pairs


def _read_pairs(cursor: _Cursor, count: int) -> dict[str, Scalar | _Array]:
    entries: dict[str, Scalar | _Array] = {}
    for _ in range(count):
        key = cursor.name("metadata key", entries)
        kind = cursor.u32(f"type of {key[:80]!r}")
        entries[key] = _read_value(cursor, kind, f"value of {key[:80]!r}")
    return entries


def _read_value(cursor: _Cursor, kind: int, what: str) -> Scalar | _Array:
    if kind == _STRING:
        return cursor.string(_MAX_STRING, what)
    if kind == _ARRAY:
        return _read_array(cursor, what)
    if kind not in _SCALARS:
        cursor.fail(f"{what} has the unknown type {kind}", cursor.position - 4)
    value = cursor.scalar(kind, what)
    if kind != _BOOL:
        return value
    if value not in (0, 1):
        cursor.fail(f"{what} is a boolean of {value}", cursor.position - 1)
    return bool(value)


def _read_array(cursor: _Cursor, what: str) -> _Array:
    kind = cursor.u32(f"element type of {what}")
    if kind == _ARRAY:
        cursor.fail(f"{what} is an array of arrays, which no known model has", cursor.position - 4)
    if kind != _STRING and kind not in _SCALARS:
        cursor.fail(f"{what} has elements of the unknown type {kind}", cursor.position - 4)
    count = cursor.u64(f"length of {what}")
    array = _Array(kind, count, cursor.position)
    if kind == _STRING:
        cursor.skip_strings(count, what)
    else:
        cursor.need(count, _SCALARS[kind].size, what)
        cursor.position += count * _SCALARS[kind].size
    return array


def _alignment(cursor: _Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        cursor.fail(f"general.alignment is not a power of two up to {_MAX_ALIGNMENT}")
    return value


def _read_infos(cursor: _Cursor, count: int) -> list[_Info]:
    infos: dict[str, _Info] = {}
    for _ in range(count):
        name = cursor.name("tensor name", infos)
        infos[name] = _read_info(cursor, name)
    return list(infos.values())


def _read_info(cursor: _Cursor, name: str) -> _Info:
    label = f"tensor {name[:80]!r}"
    n_dims = cursor.u32(f"axes of {label}")
    if not 1 <= n_dims <= _MAX_DIMS:
        cursor.fail(f"{label} claims {n_dims} axes, not 1 to {_MAX_DIMS}", cursor.position - 4)
    axes_at = cursor.position
    axes = [cursor.u64(f"axes of {label}") for _ in range(n_dims)]
    code = cursor.u32(f"type of {label}")
    type_name = _TYPE_NAMES.get(code)
    if type_name is None:
        cursor.fail(f"{label} has the unknown type {code}", cursor.position - 4)
    if type_name not in StorageType.__members__:
        has = ", ".join(StorageType.__members__)
        raise UnsupportedModel(f"{label} is stored as {type_name}, which is not supported; supported are {has}")
    storage = StorageType[type_name]
    size = 1
    for axis in axes:
        size *= axis
    if size == 0:
        cursor.fail(f"{label} has an axis of 0: {axes}", axes_at)
    if axes[0] % storage.block:
        cursor.fail(f"{label} has rows of {axes[0]} values, not whole blocks of {storage.block} ({type_name})", axes_at)
    nbytes = size // storage.block * storage.nbytes
    if nbytes > cursor.size:
        cursor.fail(f"{label} of axes {axes} needs {nbytes} bytes, the file has {cursor.size}", axes_at)
    at = cursor.position
    return _Info(name, tuple(reversed(axes)), storage, nbytes, cursor.u64(f"offset of {label}"), at)


def _place(cursor: _Cursor, infos: list[_Info], alignment: int) -> dict[str, Tensor]:
    """Views of the data section, after checking that each lies inside the file, aligned, and over no other."""
    base = -(-cursor.position // alignment) * alignment
    data = np.frombuffer(cursor.buffer, dtype=np.uint8)
    end, before = 0, ""
    for info in sorted(infos, key=lambda info: info.offset):
        if info.offset % alignment:
            cursor.fail(f"tensor {info.name[:80]!r} starts at {info.offset}, not a multiple of {alignment}", info.at)
        if base + info.offset + info.nbytes > cursor.size:
            last = base + info.offset + info.nbytes
            cursor.fail(f"tensor {info.name[:80]!r} ends at {last}, the file at {cursor.size}", info.at)
        if info.offset < end:
            cursor.fail(f"tensor {info.name[:80]!r} overlaps tensor {before[:80]!r}", info.at)
        end, before = info.offset + info.nbytes, info.name
    return {
        info.name: Tensor(info.name, info.shape, info.type, data[base + info.offset :][: info.nbytes]) for info in infos
    }

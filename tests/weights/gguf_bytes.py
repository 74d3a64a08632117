"""GGUF files made by hand, byte by byte, so that they can lie. Independent of the reader and of the gguf package."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: bytes, claimed: int | None = None) -> bytes:
    return u64(len(text) if claimed is None else claimed) + text


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + u32(kind) + value


def array(kind: int, count: int, elements: bytes) -> bytes:
    return u32(kind) + u64(count) + elements


def info(name: bytes, axes: Sequence[int], *, kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    """A tensor's entry; axes innermost first, as in the file. kind 0 is F32."""
    count = len(axes) if n_dims is None else n_dims
    return string(name) + u32(count) + b"".join(u64(axis) for axis in axes) + u32(kind) + u64(offset)


def header(*, magic: bytes = b"GGUF", version: int = 3, n_tensors: int = 0, n_pairs: int = 0) -> bytes:
    return magic + u32(version) + u64(n_tensors) + u64(n_pairs)


def build(pairs: Sequence[bytes] = (), infos: Sequence[bytes] = (), data: bytes = b"", *, alignment: int = 32) -> bytes:
    """A whole file with honest counts."""
    head = header(n_tensors=len(infos), n_pairs=len(pairs)) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data


HONEST = build(
    [
        pair(b"general.architecture", STRING, string(b"llama")),
        pair(b"answer", U32, u32(42)),
        pair(b"pi", F32, struct.pack("<f", 3.140625)),
        pair(b"yes", BOOL, b"\1"),
        pair(b"words", ARRAY, array(STRING, 3, string(b"one") + string(b"") + string("zwölf".encode()))),
        pair(b"numbers", ARRAY, array(F32, 2, struct.pack("<2f", 1.5, -2.0))),
    ],
    [info(b"a", [4, 2]), info(b"b", [32], kind=8, offset=32)],
    struct.pack("<8f", *range(8)) + bytes(34),
)

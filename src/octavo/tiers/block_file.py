"""Blocks in two files, one of headers and one of contents, that a crash at any moment leaves sound. Knows no index.

Slot i has HEADER_BYTES at i * HEADER_BYTES of the one file and `block_bytes` at i * block_bytes of the other. A block
is written in three steps: its old header is cleared, its content written, its new header written. So a process that
is killed between any two leaves an empty slot; a header lies within one page, which the system copies whole, and has
a checksum of its own. After a loss of power, which may keep later writes without earlier ones, a header can speak of
a content that is not there: the digest, checked on every read, says so. No journal is needed, since slots are
independent and each describes itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct

from octavo.tiers.files import Files
from octavo.tiers.slots import TAG_BYTES

MAGIC = b"OCTAVOKV"
FORMAT_VERSION = 1
HEADER_BYTES = 128
MAX_KEY_BYTES = 64
_FIELDS = Struct(f"<8sHHIQ{TAG_BYTES}s{MAX_KEY_BYTES}s16s")  # magic, version, key length, length, generation, tag, ...
_CRC = Struct("<I")
_EMPTY = bytes(HEADER_BYTES)
_SCAN = 4096  # headers read at once


@dataclass(frozen=True, slots=True)
class Header:
    """What a slot says about its content. generation: counts writes, so that the latest of a key is known."""

    key: bytes
    tag: bytes
    generation: int
    length: int
    digest: bytes


class BlockFile:
    """`num_slots` slots over two open files. fingerprint: of model and KV format; it joins every digest, so that a
    file brought here from elsewhere holds nothing. Reads and writes may run at once, if of different slots."""

    def __init__(
        self, files: Files, descriptors: tuple[int, int], *, num_slots: int, block_bytes: int, fingerprint: bytes
    ) -> None:
        self._files = files
        self._headers, self._contents = descriptors
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._fingerprint = fingerprint

    def scan(self) -> Iterator[tuple[int, Header]]:
        """Every slot whose header is sound. Reads the headers alone. OSError."""
        for first in range(0, self.num_slots, _SCAN):
            count = min(_SCAN, self.num_slots - first)
            table = self._files.read(self._headers, count * HEADER_BYTES, first * HEADER_BYTES)
            for number in range(len(table) // HEADER_BYTES):
                header = self._parse(table[number * HEADER_BYTES : (number + 1) * HEADER_BYTES])
                if header is not None:
                    yield first + number, header

    def write(self, slot: int, key: bytes, tag: bytes, generation: int, data: bytes) -> None:
        """Replace whatever `slot` holds. OSError: it may hold nothing then, or still the former block, but no other."""
        head = _FIELDS.pack(
            MAGIC, FORMAT_VERSION, len(key), len(data), generation, tag, key, self._digest(key, tag, generation, data)
        )
        sealed = (head + _CRC.pack(self._crc(head))).ljust(HEADER_BYTES, b"\0")
        self.clear(slot)
        self._files.write(self._contents, data, slot * self.block_bytes)
        self._files.write(self._headers, sealed, slot * HEADER_BYTES)

    def read(self, slot: int, key: bytes) -> bytes | None:
        """The content of `slot`, if it is what was written there for `key`, to the last bit; else None. OSError."""
        header = self._parse(self._files.read(self._headers, HEADER_BYTES, slot * HEADER_BYTES))
        if header is None or header.key != key:
            return None
        data = self._files.read(self._contents, self.block_bytes, slot * self.block_bytes)
        return data if self._is_sound(header, data) else None

    def clear(self, slot: int) -> None:
        """`slot` holds nothing. OSError."""
        self._files.write(self._headers, _EMPTY, slot * HEADER_BYTES)

    def wipe(self, slot: int) -> None:
        """`slot` holds nothing, and zeros where its content was. OSError."""
        self.clear(slot)
        self._files.write(self._contents, bytes(self.block_bytes), slot * self.block_bytes)

    def _is_sound(self, header: Header, data: bytes) -> bool:
        return header.digest == self._digest(header.key, header.tag, header.generation, data)

    def _digest(self, key: bytes, tag: bytes, generation: int, data: bytes) -> bytes:
        digest = sha256(self._fingerprint)
        digest.update(_FIELDS.pack(MAGIC, FORMAT_VERSION, len(key), len(data), generation, tag, key, b""))
        digest.update(data)
        return digest.digest()[:16]

    def _crc(self, head: bytes) -> int:
        return zlib.crc32(head, zlib.crc32(self._fingerprint))

    def _parse(self, raw: bytes) -> Header | None:
        head, end = raw[: _FIELDS.size], raw[_FIELDS.size : _FIELDS.size + _CRC.size]
        if len(raw) < HEADER_BYTES or head[: len(MAGIC)] != MAGIC or _CRC.unpack(end)[0] != self._crc(head):
            return None
        _, version, key_length, length, generation, tag, key, digest = _FIELDS.unpack(head)
        if version != FORMAT_VERSION or length != self.block_bytes or key_length > MAX_KEY_BYTES:
            return None
        return Header(key[:key_length], tag, generation, length, digest)

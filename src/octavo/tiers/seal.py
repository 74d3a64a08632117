"""How a slot's header and content go to the disk and are known again: with checksums. Knows no files and no slots.

`Seal` is the interface; `octavo.tiers.encryption` has the other implementation of it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from struct import Struct
from typing import Final, Protocol

from octavo.tiers.slots import TAG_BYTES

MAGIC = b"OCTAVOKV"
FORMAT_VERSION = 2
HEADER_BYTES = 256
MAX_KEY_BYTES = 64
START = Struct("<8sHH")  # of every header: magic, version, kind
PLAIN, ENCRYPTED = 0, 1
FACTS = Struct(f"<HIQ{TAG_BYTES}s{MAX_KEY_BYTES}s16s")  # key length, content length, generation, tag, key, digest
_CRC = Struct("<I")


@dataclass(frozen=True, slots=True)
class Header:
    """What a slot says about its content. tag: of the namespace. generation: counts writes, so that the latest of a key
    is known. length: bytes of the content."""

    key: bytes
    tag: bytes
    generation: int
    length: int


class Retired(Enum):
    """A header that was written with a key that is not in use any more."""

    RETIRED = 1


RETIRED: Final = Retired.RETIRED


class Seal(Protocol):
    """All may be called from several threads at once."""

    def seal(self, header: Header, data: bytes) -> tuple[bytes, bytes]:
        """The slot's header, at most HEADER_BYTES bytes, and content, as long as `data`, as they are to be written."""
        ...

    def parse(self, raw: bytes) -> Header | Retired | None:
        """What a header of HEADER_BYTES bytes says; None when it says nothing that can be trusted."""
        ...

    def open(self, raw: bytes, header: Header, stored: bytes) -> bytes | None:
        """The content that was sealed with this header, to the last bit; else None."""
        ...


def pack_facts(header: Header, digest: bytes) -> bytes:
    """FACTS of a header."""
    return FACTS.pack(len(header.key), header.length, header.generation, header.tag, header.key, digest)


def unpack_facts(facts: bytes) -> tuple[Header, bytes] | None:
    """Undo `pack_facts`; None when no header has such facts."""
    key_length, length, generation, tag, key, digest = FACTS.unpack(facts)
    if key_length > MAX_KEY_BYTES:
        return None
    return Header(key[:key_length], tag, generation, length), digest


class Checksums:
    """SHA-256, cut to 128 bits, of header and content; CRC-32 of the header alone. fingerprint: joins both, so that a
    file brought here from elsewhere holds nothing."""

    def __init__(self, fingerprint: bytes) -> None:
        self._fingerprint = fingerprint

    def seal(self, header: Header, data: bytes) -> tuple[bytes, bytes]:
        head = START.pack(MAGIC, FORMAT_VERSION, PLAIN) + pack_facts(header, self._digest(header, data))
        return head + _CRC.pack(self._crc(head)), data

    def parse(self, raw: bytes) -> Header | None:
        known = self._known(raw)
        return None if known is None else known[0]

    def open(self, raw: bytes, header: Header, stored: bytes) -> bytes | None:
        known = self._known(raw)
        return stored if known == (header, self._digest(header, stored)) else None

    def _known(self, raw: bytes) -> tuple[Header, bytes] | None:
        size = START.size + FACTS.size
        head, end = raw[:size], raw[size : size + _CRC.size]
        if len(end) < _CRC.size or _CRC.unpack(end)[0] != self._crc(head):
            return None
        if START.unpack_from(head) != (MAGIC, FORMAT_VERSION, PLAIN):
            return None
        return unpack_facts(head[START.size :])

    def _digest(self, header: Header, data: bytes) -> bytes:
        digest = sha256(self._fingerprint)
        digest.update(pack_facts(header, b""))
        digest.update(data)
        return digest.digest()[:16]

    def _crc(self, head: bytes) -> int:
        return zlib.crc32(head, zlib.crc32(self._fingerprint))

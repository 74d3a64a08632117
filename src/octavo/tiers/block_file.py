"""Blocks in two files, one of headers and one of contents, that a crash at any moment leaves sound. Knows no index.

Slot i has HEADER_BYTES at i * HEADER_BYTES of the one file and `block_bytes` at i * block_bytes of the other. A block
is written in three steps: its old header is cleared, its content written, its new header written. So a process that
is killed between any two leaves an empty slot; a header lies within one page, which the system copies whole, and is
checked by itself. After a loss of power, which may keep later writes without earlier ones, a header can speak of a
content that is not there: the seal, checked on every read, says so. No journal is needed, since slots are independent
and each describes itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from octavo.tiers.files import Files
from octavo.tiers.seal import HEADER_BYTES, MAGIC, Header, Retired, Seal

_EMPTY = bytes(HEADER_BYTES)
_SCAN = 4096  # headers read at once


class BlockFile:
    """`num_slots` slots over two open files. Reads and writes may run at once, if of different slots."""

    def __init__(
        self, files: Files, descriptors: tuple[int, int], *, num_slots: int, block_bytes: int, seal: Seal
    ) -> None:
        self._files = files
        self._headers, self._contents = descriptors
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._seal = seal

    def scan(self) -> Iterator[tuple[int, Header | Retired]]:
        """Every slot whose header can be trusted or was written with a key out of use. Reads the headers alone, and of
        them those that were ever written. OSError."""
        slot = 0
        while slot < self.num_slots:
            begin = self._files.next_data(self._headers, slot * HEADER_BYTES)
            if begin is None:
                return
            slot = max(slot, begin // HEADER_BYTES)
            count = min(_SCAN, self.num_slots - slot)
            if count > 0:
                table = self._files.read(self._headers, count * HEADER_BYTES, slot * HEADER_BYTES)
                yield from self._sound(table, slot)
            slot += _SCAN

    def write(self, slot: int, header: Header, data: bytes) -> None:
        """Replace whatever `slot` holds. OSError: it may hold nothing then, or still the former block, but no other."""
        sealed, stored = self._seal.seal(header, data)
        self.clear(slot)
        self._files.write(self._contents, stored, slot * self.block_bytes)
        self._files.write(self._headers, sealed.ljust(HEADER_BYTES, b"\0"), slot * HEADER_BYTES)

    def read(self, slot: int, key: bytes) -> bytes | None:
        """The content of `slot`, if it is what was written there for `key`, to the last bit; else None. OSError."""
        raw = self._files.read(self._headers, HEADER_BYTES, slot * HEADER_BYTES)
        header = self._parse(raw)
        if not isinstance(header, Header) or header.key != key:
            return None
        stored = self._files.read(self._contents, self.block_bytes, slot * self.block_bytes)
        return self._seal.open(raw, header, stored) if len(stored) == self.block_bytes else None

    def clear(self, slot: int) -> None:
        """`slot` holds nothing. OSError."""
        self._files.write(self._headers, _EMPTY, slot * HEADER_BYTES)

    def wipe(self, slot: int) -> None:
        """`slot` holds nothing, and zeros where its content was. OSError."""
        self.clear(slot)
        self._files.write(self._contents, bytes(self.block_bytes), slot * self.block_bytes)

    def _sound(self, table: bytes, first: int) -> Iterator[tuple[int, Header | Retired]]:
        place = table.find(MAGIC)
        while place >= 0:
            number, rest = divmod(place, HEADER_BYTES)
            if rest:
                place = table.find(MAGIC, place + 1)
                continue
            header = self._parse(table[place : place + HEADER_BYTES])
            if header is not None:
                yield first + number, header
            place = table.find(MAGIC, place + HEADER_BYTES)

    def _parse(self, raw: bytes) -> Header | Retired | None:
        header = self._seal.parse(raw) if len(raw) == HEADER_BYTES else None
        return None if isinstance(header, Header) and header.length != self.block_bytes else header

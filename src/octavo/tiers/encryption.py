"""Blocks encrypted at rest: AES-256-GCM, a key for each tenant and session, derived from master keys. Knows no files.

Every opening of a directory is a session with a random 128-bit salt. HKDF-SHA256 makes from a master key and that salt
one key for headers and one for the contents of each namespace, and a counter numbers what a session writes: no key ever
sees a number twice, however the process ends. A header tells in the clear only its master key's id, the session and the
number. Block keys are hashes of tokens, from which a guess could be confirmed, so they are encrypted like the rest.
"""

from __future__ import annotations

import itertools
import os
import stat
from functools import lru_cache
from pathlib import Path
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from octavo.errors import TierError
from octavo.tiers.seal import (
    ENCRYPTED,
    FACTS,
    FORMAT_VERSION,
    MAGIC,
    RETIRED,
    START,
    Header,
    Retired,
    pack_facts,
    unpack_facts,
)

KEY_BYTES = 32
_TAG = 16  # bytes that authenticate a message
_CLEAR = Struct("<8s16sQ")  # id of the master key, session, number
_SEALED = START.size + _CLEAR.size
_FILE_LIMIT = 1 << 16
_CIPHERS = 1024  # derived keys that are kept: tenants and sessions at a time


class MasterKeys:
    """Keys by id, each of KEY_BYTES bytes. The first encrypts, all decrypt."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = {_derive(key, b"", b"id", 8): key for key in keys}
        self.first = next(iter(self._keys))

    @classmethod
    def from_file(cls, path: str | Path) -> MasterKeys:
        """A key of 64 hexadecimal digits a line, the one to encrypt with first; # begins a comment.

        TierError for anything else, and for a file that others than its owner and group may read or write.
        """
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(_FILE_LIMIT + 1)
        except OSError as error:
            raise TierError(f"the keys in {path} cannot be read: {error.strerror or error}") from error
        if stat.S_IMODE(mode) & 0o027:
            raise TierError(f"{path} holds keys and others may use it: chmod 600 {path}")
        lines = [line.split(b"#")[0].strip() for line in text.splitlines()]
        try:
            keys = [bytes.fromhex(line.decode("ascii")) for line in lines if line]
        except ValueError:
            keys = []
        if not keys or len(text) > _FILE_LIMIT or any(len(key) != KEY_BYTES for key in keys):
            raise TierError(
                f"{path} must hold one key or more, each a line of 64 hexadecimal digits (openssl rand -hex 32)"
            )
        return cls(keys)

    def seal(self, fingerprint: bytes) -> Encryption:
        """A new session. fingerprint: is authenticated with every block."""
        return Encryption(self, fingerprint)

    def get(self, key_id: bytes) -> bytes | None:
        return self._keys.get(key_id)


class Encryption:
    """See `octavo.tiers.seal.Seal`. fingerprint: is authenticated with every header and content."""

    def __init__(self, keys: MasterKeys, fingerprint: bytes) -> None:
        self._keys = keys
        self._fingerprint = fingerprint
        self._session = os.urandom(16)
        self._numbers = itertools.count(1)
        self._cipher = lru_cache(_CIPHERS)(self._make_cipher)

    def seal(self, header: Header, data: bytes) -> tuple[bytes, bytes]:
        number = next(self._numbers)
        start = START.pack(MAGIC, FORMAT_VERSION, ENCRYPTED) + _CLEAR.pack(self._keys.first, self._session, number)
        nonce, named = number.to_bytes(12, "little"), start + self._fingerprint
        content = self._content_cipher(self._keys.first, self._session, header)
        stored = content.encrypt(nonce, data, named + pack_facts(header, b""))
        facts = pack_facts(header, stored[-_TAG:])
        return start + self._header_cipher(self._keys.first, self._session).encrypt(nonce, facts, named), stored[:-_TAG]

    def parse(self, raw: bytes) -> Header | Retired | None:
        known = self._known(raw)
        return known if known is None or isinstance(known, Retired) else known[0]

    def open(self, raw: bytes, header: Header, stored: bytes) -> bytes | None:
        known = self._known(raw)
        if known is None or isinstance(known, Retired) or known[0] != header:
            return None
        start = raw[:_SEALED]
        key_id, session, number = _CLEAR.unpack_from(start, START.size)
        named = start + self._fingerprint + pack_facts(header, b"")
        try:
            cipher = self._content_cipher(key_id, session, header)
            return cipher.decrypt(number.to_bytes(12, "little"), stored + known[1], named)
        except InvalidTag:
            return None

    def _known(self, raw: bytes) -> tuple[Header, bytes] | Retired | None:
        start = raw[:_SEALED]
        if len(raw) < _SEALED or START.unpack_from(start) != (MAGIC, FORMAT_VERSION, ENCRYPTED):
            return None
        key_id, session, number = _CLEAR.unpack_from(start, START.size)
        if self._keys.get(key_id) is None:
            return RETIRED
        try:
            facts = self._header_cipher(key_id, session).decrypt(
                number.to_bytes(12, "little"), raw[_SEALED : _SEALED + FACTS.size + _TAG], start + self._fingerprint
            )
        except InvalidTag:
            return None
        return unpack_facts(facts)

    def _header_cipher(self, key_id: bytes, session: bytes) -> AESGCM:
        return self._cipher(key_id, session, b"headers")

    def _content_cipher(self, key_id: bytes, session: bytes, header: Header) -> AESGCM:
        return self._cipher(key_id, session, b"content" + header.tag)

    def _make_cipher(self, key_id: bytes, session: bytes, purpose: bytes) -> AESGCM:
        master = self._keys.get(key_id)
        assert master is not None
        return AESGCM(_derive(master, session, purpose, KEY_BYTES))


def _derive(master: bytes, salt: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, b"octavo disk tier 2 " + purpose).derive(master)

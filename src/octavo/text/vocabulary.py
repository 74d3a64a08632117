"""Tokens as bytes: undoes the spelling of a vocabulary. Refuses to know how text is cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType

METASPACE = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[int, str]:
    """The byte-level alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and up.

    Source: the byte-level BPE of GPT-2 (Radford et al., 2019), section 2.2.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(0x100 + i) for i, byte in enumerate(moved)}


BYTE_TO_CHAR: Mapping[int, str] = MappingProxyType(_byte_alphabet())
CHAR_TO_BYTE: Mapping[str, int] = MappingProxyType({char: byte for byte, char in BYTE_TO_CHAR.items()})


class Spelling(Enum):
    """How a vocabulary writes bytes: one character a byte, or text with U+2581 for a space and <0xNN> for a byte."""

    BYTE_LEVEL = "byte-level"
    METASPACE = "metaspace"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, by id. An id that the file leaves out has the text None.

    special_ids: control tokens, which people never typed. literal_ids: tokens spelled as plain text whatever the
    spelling of the others (control and user-defined ones). strips_space: the very first space of a decoded text was
    put there by the tokenizer and is taken off again.
    """

    texts: Sequence[str | None]
    spelling: Spelling
    special_ids: frozenset[int]
    literal_ids: frozenset[int]
    strips_space: bool = False

    def __len__(self) -> int:
        return len(self.texts)

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of one token; of a control token the bytes of its name. IndexError outside [0, size)."""
        if not 0 <= token < len(self.texts):
            raise IndexError(f"token id {token} is outside the vocabulary of {len(self.texts)} tokens")
        text = self.texts[token]
        if text is None:
            return b""
        if token in self.literal_ids:
            return text.encode("utf-8", "replace")
        if self.spelling is Spelling.BYTE_LEVEL:
            try:
                return bytes([CHAR_TO_BYTE[char] for char in text])
            except KeyError:  # a token that was added in plain text and not declared as such
                return text.encode("utf-8", "replace")
        if (match := _BYTE_TOKEN.fullmatch(text)) is not None:
            return bytes([int(match[1], 16)])
        return text.replace(METASPACE, " ").encode("utf-8", "replace")

    @cached_property
    def byte_ids(self) -> Mapping[int, int]:
        """Byte value to the id of the token that is this byte and nothing else; some vocabularies lack a few."""
        wanted = (
            {char: byte for byte, char in BYTE_TO_CHAR.items()}
            if self.spelling is Spelling.BYTE_LEVEL
            else {f"<0x{byte:02X}>": byte for byte in range(256)}
        )
        found: dict[int, int] = {}
        for token, text in enumerate(self.texts):
            if text in wanted and token not in self.literal_ids:
                found.setdefault(wanted[text], token)
        return MappingProxyType(found)

"""What a tokenizer is made of, however the model file spelled it. Values only; knows no file format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import tokenizers

from octavo.errors import ModelFormatError
from octavo.text.markers import MarkerFinder
from octavo.text.vocabulary import Vocabulary

_NO_TOKEN = (-1, 0xFFFFFFFF)  # how files write "there is none", signed and unsigned


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The tokens with a part to play; None where the model has no such token, never -1 or 0.

    eos_ids: every token that ends an answer. add_bos, add_eos: whether encoding puts them around a text.
    """

    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    add_eos: bool = False


class TextEncoder(Protocol):
    """Plain text, that holds no control tokens, to ids."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added. No lone surrogates."""
        ...


@dataclass(frozen=True, slots=True)
class LibraryEncoder:
    """A tokenizer of the library `tokenizers`, set up to read the names of control tokens as text."""

    engine: tokenizers.Tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        ids: list[int] = self.engine.encode(text, add_special_tokens=False).ids
        return ids


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """first encodes the beginning of a text, rest what follows a control token (they differ where only the very first
    word gets a space before it); neither knows control tokens or adds any. markers finds control tokens.
    space_prefix: the first text gets a space before it, unless it begins with one of `user_defined`.
    """

    first: TextEncoder
    rest: TextEncoder
    vocabulary: Vocabulary
    markers: MarkerFinder
    special: SpecialTokens
    chat_template: str | None = None
    space_prefix: bool = False
    user_defined: tuple[str, ...] = ()


def token_id(value: object, name: str, size: int) -> int | None:
    """A token id that a file claims: None if absent or "none", ModelFormatError unless it is an int in [0, size)."""
    if value is None or value in _NO_TOKEN:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
        raise ModelFormatError(f"{name} is {value!r}, which is no token of a vocabulary of {size}")
    return value


def collect_eos_ids(*claims: int | Iterable[int] | None, size: int) -> frozenset[int]:
    """The union of all end tokens that the files of one model claim: None, one id, or several, each in [0, size)."""
    ids: set[int] = set()
    for claim in claims:
        several = claim if isinstance(claim, Iterable) else (claim,)
        ids.update(found for each in several if (found := token_id(each, "an end token", size)) is not None)
    return frozenset(ids)

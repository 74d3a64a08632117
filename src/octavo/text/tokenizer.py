"""Text to token ids and back, exactly. Knows neither files nor prompts nor what a model does with the ids."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.errors import InvalidRequest
from octavo.text.directory_vocabulary import read_directory_vocabulary
from octavo.text.gguf_vocabulary import read_gguf_vocabulary
from octavo.text.parts import SpecialTokens, TokenizerParts
from octavo.text.surrogates import replace_surrogates
from octavo.text.vocabulary import Spelling
from octavo.text.whole_texts import WholeTexts

_REPLACEMENT = "\ufffd"
Piece = str | int | bytes


class Tokenizer:
    """One model's tokenizer. Immutable, so that threads may share it.

    Where a vocabulary spells a space as U+2581, a U+2581 that a user typed comes back as a space: the model itself
    cannot tell them apart. A character that a vocabulary has no bytes for is encoded as U+FFFD, never as a control
    token and never as nothing.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self._parts = parts
        self._vocabulary = parts.vocabulary

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From a GGUF file's metadata. Raises ModelFormatError or UnsupportedModel."""
        return cls(read_gguf_vocabulary(metadata))

    @classmethod
    def from_directory(cls, path: str | Path) -> Tokenizer:
        """From a model directory's tokenizer.json. Raises ModelNotFound, ModelFormatError or UnsupportedModel."""
        return cls(read_directory_vocabulary(Path(path)))

    @property
    def special(self) -> SpecialTokens:
        """Ids of BOS, EOS and the like, and whether encoding adds them."""
        return self._parts.special

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, or None."""
        return self._parts.special.bos_id

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text, or None; `eos_ids` has all that do."""
        return self._parts.special.eos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every token that ends an answer as far as the tokenizer's own files say; a model's settings may add some."""
        return self._parts.special.eos_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: no part of a text, and nobody can type them."""
        return self._vocabulary.special_ids

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template that came with the vocabulary, or None."""
        return self._parts.chat_template

    @property
    def size(self) -> int:
        """Number of tokens; valid ids are 0 to size - 1."""
        return len(self._vocabulary)

    @property
    def strips_space(self) -> bool:
        """Whether decoding takes off a space at the very start of a text."""
        return self._vocabulary.strips_space

    def token_text(self, token: int) -> str:
        """A token as the file spells it, for people; "" for an id without a token."""
        return self._vocabulary.texts[token] or ""

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes that a token stands for. IndexError outside the vocabulary."""
        return self._vocabulary.token_bytes(token)

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        add_special: put BOS before and EOS after it where the model does so. parse_special: names of control tokens
        in the text become these tokens; otherwise they are text like any other. A BOS that the text then begins with
        is not doubled. Lone surrogates count as U+FFFD. Of bytes that are not UTF-8, each offending byte becomes the
        token of that byte.
        """
        pieces: list[Piece] = []
        for piece in _utf8_runs(text) if isinstance(text, bytes) else [text]:
            if isinstance(piece, str):
                piece = replace_surrogates(piece)
                pieces.extend(self.split_special(piece) if parse_special else [piece])
            else:
                pieces.append(piece)
        return self.encode_pieces(pieces, bos=add_special, eos=add_special)

    @property
    def special_names(self) -> tuple[str, ...]:
        """The names of control tokens as `split_special` looks for them."""
        return self._parts.markers.names

    def split_special(self, text: str, seen_as: str | None = None) -> list[str | int]:
        """`text` cut at the names of control tokens, which become ids. No lone surrogates in what is looked at.

        seen_as: a text of the same length in which to look for the names instead.
        """
        return self._parts.markers.split(text, seen_as)

    def encode_pieces(self, pieces: Sequence[Piece], *, bos: bool, eos: bool) -> list[int]:
        """Token ids of text (plain, without lone surrogates), ids that stand for themselves, and raw bytes.

        bos, eos: see to it that the ids begin with BOS and end with EOS, once, where the model wants them.
        """
        special = self._parts.special
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
            elif isinstance(piece, str):
                ids.extend(self._encode_text(piece, at_start=not ids))
            else:
                ids.extend(self._encode_bytes(piece, at_start=not ids))
        if bos and special.add_bos and special.bos_id is not None and ids[:1] != [special.bos_id]:
            ids.insert(0, special.bos_id)
        if eos and special.add_eos and special.eos_id is not None and ids[-1:] != [special.eos_id]:
            ids.append(special.eos_id)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`, of which the bytes of a character that is not finished at the end are left out.

        Other bytes that are not UTF-8 become U+FFFD. skip_special: leave out control tokens.
        """
        data = b"".join(self.visible_bytes(token, skip_special=skip_special) for token in ids)
        if self.strips_space:
            data = data.removeprefix(b" ")
        return codecs.utf_8_decode(data, "replace", False)[0]

    def visible_bytes(self, token: int, *, skip_special: bool) -> bytes:
        """`token_bytes`, or none for a control token that is to be skipped."""
        if skip_special and token in self._vocabulary.special_ids:
            return b""
        return self._vocabulary.token_bytes(token)

    def whole_texts(self, *, skip_special: bool) -> Mapping[int, str | None]:
        """By token, what its visible bytes say where they are whole characters, else None. Looked up, it is made."""
        return self._shown_texts if skip_special else self._all_texts

    @cached_property
    def _shown_texts(self) -> WholeTexts:
        return WholeTexts(lambda token: self.visible_bytes(token, skip_special=True))

    @cached_property
    def _all_texts(self) -> WholeTexts:
        return WholeTexts(lambda token: self.visible_bytes(token, skip_special=False))

    def fewest_tokens(self, text: str | bytes) -> int:
        """A lower bound of the tokens of `text` in constant time, to refuse a huge one before encoding it."""
        return -(-len(text) // self._longest_token)

    @cached_property
    def _longest_token(self) -> int:
        return max(1, max(len(text or "") for text in self._vocabulary.texts))

    @cached_property
    def _missing_bytes(self) -> bytes:
        """Bytes that no token spells. A vocabulary that falls back on <unk> instead has its own way with them."""
        if self._vocabulary.spelling is not Spelling.BYTE_LEVEL:
            return b""
        return bytes(byte for byte in range(256) if byte not in self._vocabulary.byte_ids)

    def _encode_text(self, text: str, *, at_start: bool) -> list[int]:
        parts = self._parts
        if self._missing_bytes:
            text = self._replace_missing(text)
        if at_start and parts.space_prefix and text and not text.startswith(parts.user_defined):
            text = " " + text
        return (parts.first if at_start else parts.rest).encode(text)

    def _encode_bytes(self, data: bytes, *, at_start: bool) -> list[int]:
        known = self._vocabulary.byte_ids
        ids: list[int] = []
        for byte in data:
            if byte in known:
                ids.append(known[byte])
            else:
                ids.extend(self._encode_text(_REPLACEMENT, at_start=at_start and not ids))
        return ids

    def _replace_missing(self, text: str) -> str:
        missing = self._missing_bytes
        data = text.encode()
        if len(data.translate(None, missing)) == len(data):
            return text
        if set(_REPLACEMENT.encode()).intersection(missing):
            raise InvalidRequest("the text has bytes that this model's vocabulary lacks, and it lacks U+FFFD too")
        return "".join(_REPLACEMENT if set(char.encode()).intersection(missing) else char for char in text)


def _utf8_runs(data: bytes) -> Iterator[str | bytes]:
    """`data` as stretches of valid UTF-8, decoded, and stretches of bytes that are part of no character."""
    start = 0
    while start < len(data):
        try:
            yield data[start:].decode()
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[start : start + error.start].decode()
            yield data[start + error.start : start + error.end]
            start += error.end

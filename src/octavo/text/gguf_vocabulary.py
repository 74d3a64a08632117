"""Builds tokenizers from the vocabularies inside GGUF files. Refuses to guess: what it does not know, it names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, models

from octavo.errors import ModelFormatError, UnsupportedModel
from octavo.text.markers import MarkerFinder
from octavo.text.parts import LibraryEncoder, SpecialTokens, TokenizerParts, collect_eos_ids, token_id
from octavo.text.pretokenizers import WordSplit, word_split
from octavo.text.ranked_merger import RankedMerger, SentencePieceEncoder
from octavo.text.vocabulary import BYTE_TO_CHAR, METASPACE, Spelling, Vocabulary

_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6


def read_gguf_vocabulary(metadata: Mapping[str, Any]) -> TokenizerParts:
    """The tokenizer that a GGUF file's metadata describe.

    Raises ModelFormatError for metadata that contradict themselves, UnsupportedModel for a kind of tokenizer or a
    pre-tokenizer that octavo does not have. Warns where the file leaves the pre-tokenizer open.
    """
    kind = metadata.get(_PREFIX + "model")
    if kind == "gpt2":
        return _byte_level(_Entries.read(metadata), metadata)
    if kind == "llama":
        return _sentencepiece(_Entries.read(metadata), metadata)
    if kind is None:
        raise ModelFormatError(f"the file has no {_PREFIX}model, so it holds no tokenizer")
    raise UnsupportedModel(f"tokenizer kind {kind!r} is not supported; supported are: gpt2, llama")


@dataclass(frozen=True, slots=True)
class _Entries:
    """The token list of a file: texts, types (all 1, ordinary, where the file has none)."""

    texts: list[str]
    types: npt.NDArray[np.generic]

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> _Entries:
        texts = metadata.get(_PREFIX + "tokens")
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ModelFormatError(f"{_PREFIX}tokens is not a list of texts")
        types = metadata.get(_PREFIX + "token_type")
        return cls(texts, np.ones(len(texts)) if types is None else _numbers(types, "token_type", len(texts)))

    def of_type(self, *types: int) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return found

    def vocabulary(self, spelling: Spelling, *, strips_space: bool = False) -> Vocabulary:
        special = frozenset(self.of_type(_UNKNOWN, _CONTROL))
        return Vocabulary(
            texts=self.texts,
            spelling=spelling,
            special_ids=special,
            literal_ids=special.union(self.of_type(_USER_DEFINED)),
            strips_space=strips_space,
        )

    def markers(self) -> MarkerFinder:
        names = {self.texts[token]: token for token in self.of_type(_CONTROL) if self.texts[token]}
        return MarkerFinder(names, [AddedToken(name, normalized=False, special=True) for name in names])


def _byte_level(entries: _Entries, metadata: Mapping[str, Any]) -> TokenizerParts:
    split = _split_of(metadata)
    ids = {text: token for token, text in enumerate(entries.texts)}
    alphabet = set(BYTE_TO_CHAR.values())
    if not alphabet.intersection(ids):
        raise ModelFormatError("the vocabulary has no single-byte tokens: it is not of the byte-level kind")
    engine = _engine(ids, _merges(metadata), whole_words=split.whole_words)
    engine.pre_tokenizer = split.build()
    user_defined = _add_user_defined(engine, entries, ids)
    return TokenizerParts(
        first=LibraryEncoder(engine),
        rest=LibraryEncoder(engine),
        vocabulary=entries.vocabulary(Spelling.BYTE_LEVEL),
        markers=entries.markers(),
        special=_special(metadata, entries, adds_bos=split.adds_bos),
        chat_template=_chat_template(metadata),
        user_defined=user_defined,
    )


def _sentencepiece(entries: _Entries, metadata: Mapping[str, Any]) -> TokenizerParts:
    # A run of spaces that the model's authors added by hand is stored with real spaces; text has U+2581 by then.
    spelled = [METASPACE * len(text) if text.isspace() and not text.strip(" ") else text for text in entries.texts]
    ids = {text: token for token, text in enumerate(spelled)}
    prefix = _flag(metadata, "add_space_prefix", default=True)
    vocabulary = entries.vocabulary(Spelling.METASPACE, strips_space=prefix)
    unk_id = token_id(metadata.get(_PREFIX + "unknown_token_id"), "the unknown token", len(spelled))
    if unk_id is None and len(vocabulary.byte_ids) < 256:
        raise ModelFormatError("the vocabulary has neither an unknown token nor one for each byte")
    unmergeable = {*entries.of_type(_UNKNOWN, _CONTROL, _BYTE)}
    order = [spelled[token] for token in _merge_order(entries, metadata) if token not in unmergeable]
    user_defined = {name: token for token in entries.of_type(_USER_DEFINED) if (name := entries.texts[token]) in ids}
    encoder = SentencePieceEncoder(RankedMerger(ids, order, vocabulary.byte_ids, unk_id), user_defined)
    return TokenizerParts(
        first=encoder,
        rest=encoder,
        vocabulary=vocabulary,
        markers=entries.markers(),
        special=_special(metadata, entries, adds_bos=True),
        chat_template=_chat_template(metadata),
        space_prefix=prefix,
        user_defined=tuple(user_defined),
    )


def _merge_order(entries: _Entries, metadata: Mapping[str, Any]) -> Iterable[int]:
    """Ids in the order in which merging prefers them."""
    if str(metadata.get("general.architecture", "")).startswith("gemma"):
        # The order of these vocabularies is that of the file; tokens added by hand come first, though scored as last.
        return range(len(entries.texts))
    scores = _numbers(metadata.get(_PREFIX + "scores"), "scores", len(entries.texts))
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _engine(ids: dict[str, int], merges: list[tuple[str, str]], *, whole_words: bool) -> tokenizers.Tokenizer:
    try:
        engine = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=whole_words))
    except Exception as error:  # the library raises bare Exception for a merge of tokens that do not exist
        raise ModelFormatError(f"the tokenizer's vocabulary and merges do not fit together: {error}") from error
    engine.encode_special_tokens = True
    return engine


def _add_user_defined(engine: tokenizers.Tokenizer, entries: _Entries, ids: Mapping[str, int]) -> tuple[str, ...]:
    """Tokens that are matched whole wherever they stand in a text, as SentencePiece does."""
    names = tuple(text for token in entries.of_type(_USER_DEFINED) if (text := entries.texts[token]) in ids and text)
    engine.add_tokens([AddedToken(name, normalized=False, special=False) for name in names])
    return names


def _split_of(metadata: Mapping[str, Any]) -> WordSplit:
    name = metadata.get(_PREFIX + "pre")
    if name is None or name == "default":
        warnings.warn(
            f"{_PREFIX}pre is {'missing' if name is None else 'only default'}: text is cut into words as for GPT-2, "
            "which may not be how the model was trained; a newer conversion of the model says which one it is",
            stacklevel=2,
        )
        return word_split("default")
    return word_split(str(name))


def _merges(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = metadata.get(_PREFIX + "merges")
    if not isinstance(lines, list):
        raise ModelFormatError(f"{_PREFIX}merges is not a list of texts")
    try:
        pairs = [tuple(line.split(" ", 1)) for line in lines]
    except AttributeError:
        _refuse_merge(lines)
    if not all(len(pair) == 2 for pair in pairs):
        _refuse_merge(lines)
    return pairs


def _refuse_merge(lines: Iterable[object]) -> NoReturn:
    odd = next(line for line in lines if not isinstance(line, str) or " " not in line)
    raise ModelFormatError(f"{_PREFIX}merges has {odd!r} where two tokens with a space between them belong")


def _special(metadata: Mapping[str, Any], entries: _Entries, *, adds_bos: bool) -> SpecialTokens:
    size = len(entries.texts)

    def named(name: str) -> int | None:
        return token_id(metadata.get(f"{_PREFIX}{name}_token_id"), f"{_PREFIX}{name}_token_id", size)

    bos_id, eos_id = named("bos"), named("eos")
    return SpecialTokens(
        bos_id=bos_id,
        eos_id=eos_id,
        unk_id=named("unknown"),
        pad_id=named("padding"),
        eos_ids=collect_eos_ids(eos_id, named("eot"), named("eom"), size=size),
        add_bos=bos_id is not None and _flag(metadata, "add_bos_token", default=adds_bos),
        add_eos=eos_id is not None and _flag(metadata, "add_eos_token", default=False),
    )


def _chat_template(metadata: Mapping[str, Any]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) and template else None


def _flag(metadata: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = metadata.get(_PREFIX + name, default)
    if not isinstance(value, bool):
        raise ModelFormatError(f"{_PREFIX}{name} is {value!r}, not true or false")
    return value


def _numbers(values: Any, name: str, size: int) -> npt.NDArray[Any]:
    """A file's array of `size` finite numbers."""
    try:
        numbers = np.asarray(values)
    except ValueError:
        numbers = np.asarray(None)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise ModelFormatError(f"{_PREFIX}{name} is missing or no array of numbers")
    if len(numbers) != size or not np.isfinite(numbers).all():
        raise ModelFormatError(
            f"{_PREFIX}{name} has {len(numbers)} numbers for {size} tokens, or some that are not finite"
        )
    return numbers

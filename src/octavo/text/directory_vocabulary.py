"""Reads the tokenizer of a Hugging Face model directory. Builds no tokenizer of its own; knows no weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from octavo.errors import ModelFormatError, ModelNotFound, UnsupportedModel
from octavo.text.markers import MarkerFinder
from octavo.text.parts import LibraryEncoder, SpecialTokens, TokenizerParts, collect_eos_ids
from octavo.text.vocabulary import METASPACE, Spelling, Vocabulary

_MAX_JSON = 1 << 28
_MAX_TOKENS = 1 << 22


def read_directory_vocabulary(directory: Path) -> TokenizerParts:
    """The tokenizer of `tokenizer.json`, with what the files beside it say of special tokens and chats.

    Files: tokenizer.json; if there, tokenizer_config.json, chat_template.jinja, generation_config.json, config.json.
    Raises ModelNotFound, ModelFormatError or UnsupportedModel.
    """
    path = directory / "tokenizer.json"
    try:
        engine = tokenizers.Tokenizer.from_str(_read_text(path))
    except (ModelNotFound, ModelFormatError):
        raise
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise ModelFormatError(f"{path} is no tokenizer: {error}") from error
    engine.no_truncation()
    engine.no_padding()
    config = _read_json(directory / "tokenizer_config.json")
    vocabulary = _vocabulary(engine, path)
    special = _special(engine, config, vocabulary, directory)
    engine.encode_special_tokens = True
    added = engine.get_added_tokens_decoder()
    control = {token.content: (number, token) for number, token in added.items() if token.special and token.content}
    return TokenizerParts(
        first=LibraryEncoder(engine),
        rest=LibraryEncoder(_without_first_space(engine, added)),
        vocabulary=vocabulary,
        markers=MarkerFinder(
            {name: number for name, (number, _) in control.items()}, [token for _, token in control.values()]
        ),
        special=special,
        chat_template=_chat_template(directory, config),
    )


def _vocabulary(engine: tokenizers.Tokenizer, path: Path) -> Vocabulary:
    ids = engine.get_vocab(with_added_tokens=True)
    size = max(ids.values(), default=-1) + 1
    if not 0 < size <= _MAX_TOKENS:
        raise ModelFormatError(f"{path} has token ids up to {size - 1}; 0 to {_MAX_TOKENS - 1} can be")
    texts: list[str | None] = [None] * size
    for text, number in ids.items():
        texts[number] = text
    added = engine.get_added_tokens_decoder()
    stages = list(_stages(_state(engine.decoder), "decoders"))
    kinds = {stage.get("type") for stage in stages}
    if "ByteLevel" in kinds:
        spelling = Spelling.BYTE_LEVEL
    elif "Metaspace" in kinds or any(stage.get("pattern") == {"String": METASPACE} for stage in stages):
        spelling = Spelling.METASPACE
    else:
        raise UnsupportedModel(f"{path} decodes with {sorted(map(str, kinds))}; ByteLevel and Metaspace are supported")
    return Vocabulary(
        texts=texts,
        spelling=spelling,
        special_ids=frozenset(number for number, token in added.items() if token.special),
        literal_ids=frozenset(added),
        strips_space=any(map(_strips_space, stages)),
    )


def _strips_space(stage: Mapping[str, Any]) -> bool:
    if stage.get("type") == "Metaspace":
        return bool(stage.get("prepend_scheme", "always") != "never")
    return bool(stage.get("type") == "Strip" and stage.get("content") == " " and stage.get("start", 0) > 0)


def _without_first_space(engine: tokenizers.Tokenizer, added: Mapping[int, AddedToken]) -> tokenizers.Tokenizer:
    """The same tokenizer for text inside a prompt, where "first" is over; it shares the model, which is the large part.

    A stage that puts a space before every stretch of text does so here too, as transformers has it.
    """
    stage = _state(engine.pre_tokenizer)
    if not any(each.get("prepend_scheme") == "first" for each in _stages(stage, "pretokenizers")):
        return engine
    for each in _stages(stage, "pretokenizers"):
        if each.get("prepend_scheme") == "first":
            each["prepend_scheme"] = "never"
    bare = json.loads(tokenizers.Tokenizer(models.BPE()).to_str())
    rest = tokenizers.Tokenizer(engine.model)
    rest.normalizer = engine.normalizer
    rest.pre_tokenizer = tokenizers.Tokenizer.from_str(json.dumps(bare | {"pre_tokenizer": stage})).pre_tokenizer
    rest.add_tokens([token for token in added.values() if not token.special])
    return rest


def _special(
    engine: tokenizers.Tokenizer, config: Mapping[str, Any], vocabulary: Vocabulary, directory: Path
) -> SpecialTokens:
    def named(key: str) -> int | None:
        value = config.get(key)
        name = value.get("content") if isinstance(value, Mapping) else value
        found: int | None = engine.token_to_id(name) if isinstance(name, str) else None
        return found

    bos_id, eos_id = named("bos_token"), named("eos_token")
    sample = engine.encode("a", add_special_tokens=True).ids
    bare = engine.encode("a", add_special_tokens=False).ids
    puts_bos = bos_id is not None and sample[:1] == [bos_id] and bare[:1] != [bos_id]
    puts_eos = eos_id is not None and sample[-1:] == [eos_id] and bare[-1:] != [eos_id]
    claims = [_read_json(directory / name).get("eos_token_id") for name in ("generation_config.json", "config.json")]
    return SpecialTokens(
        bos_id=bos_id,
        eos_id=eos_id,
        unk_id=named("unk_token"),
        pad_id=named("pad_token"),
        eos_ids=collect_eos_ids(eos_id, named("eot_token"), *claims, size=len(vocabulary)),
        add_bos=bos_id is not None and _flag(config, "add_bos_token", default=puts_bos),
        add_eos=eos_id is not None and _flag(config, "add_eos_token", default=puts_eos),
    )


def _flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name)
    return value if isinstance(value, bool) else default


def _chat_template(directory: Path, config: Mapping[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return _read_text(path)
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, Mapping)}
        template = named.get("default")
    return template if isinstance(template, str) and template else None


def _state(component: Any) -> dict[str, Any]:
    """The JSON form of one stage of a tokenizer; {} for none."""
    state: dict[str, Any] = {} if component is None else json.loads(component.__getstate__())
    return state


def _stages(state: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """The single stages of what may be a sequence of sequences."""
    if state.get("type") == "Sequence":
        for each in state[key]:
            yield from _stages(each, key)
    elif state:
        yield state


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ModelFormatError(f"{path} has {path.stat().st_size} bytes, more than {_MAX_JSON}")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelNotFound(f"{path} does not exist; a model directory needs it for its tokenizer") from None
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path} is not UTF-8", offset=error.start) from error


def _read_json(path: Path) -> dict[str, Any]:
    """An object from a file that may be missing: then {}."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFormatError(f"{path} holds no JSON object")
    return value

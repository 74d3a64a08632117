"""A path -> everything known about the model, from a GGUF file or a Hugging Face directory. Reads no tensor data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import ModelFormatError, ModelNotFound, UnsupportedModel
from octavo.models.registry import GGUF_READERS, HF_READERS, reader
from octavo.models.source import Source
from octavo.models.spec import ModelSpec
from octavo.ops.tensor import Tensor
from octavo.weights.fields import Fields
from octavo.weights.gguf import GGUFFile, Metadata
from octavo.weights.hf_directory import HFDirectory

_NO_TOKEN = 2**32 - 1  # how some converters write "none"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as its files describe it.

    tokenizer: GGUF metadata, or the directory that holds tokenizer.json. chat_template: Jinja source. eos_ids: tokens
    that end a text or a turn, as the file gives them; empty where it gives none. bos_id: likewise, None.
    """

    name: str
    spec: ModelSpec
    tensors: Mapping[str, Tensor]
    tokenizer: Metadata | Path
    chat_template: str | None
    eos_ids: frozenset[int]
    bos_id: int | None


def read_model(path: str | Path, *, length: int | None = None) -> ModelFiles:
    """Open a GGUF file or a directory with config.json and safetensors.

    length: the longest sequence that will be served; only a "dynamic" rope looks at it, whose frequencies depend on it.
    Raises ModelNotFound, ModelFormatError or UnsupportedModel. The tensors' names and shapes are checked when a
    `Decoder` is built.
    """
    path = Path(path)
    if path.is_dir():
        return _from_directory(path, length)
    if path.suffix == ".safetensors" and path.exists():
        raise ModelNotFound(f"{path}: give the directory that holds it, with config.json")
    return _from_gguf(path, length)


def _from_gguf(path: Path, length: int | None) -> ModelFiles:
    file = GGUFFile.open(path)
    fields = Fields(file.metadata, path.name)
    architecture = fields.text("general.architecture")
    read = reader(architecture, GGUF_READERS)
    if fields.integer("split.count", 1, low=0) > 1:
        raise UnsupportedModel(f"{path.name}: one part of a split model; merge the parts into one file")
    spec = read(Source(Fields(file.metadata, path.name, f"{architecture}."), file.tensors, length))
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [_gguf_token(fields, f"tokenizer.ggml.{key}", spec.vocab_size) for key in keys]
    return ModelFiles(
        name=fields.text("general.name", path.stem),
        spec=spec,
        tensors=file.tensors,
        tokenizer=file.metadata,
        chat_template=fields.text("tokenizer.chat_template") if "tokenizer.chat_template" in fields else None,
        eos_ids=frozenset(token for token in ids if token is not None),
        bos_id=_gguf_token(fields, "tokenizer.ggml.bos_token_id", spec.vocab_size),
    )


def _gguf_token(fields: Fields, key: str, vocab_size: int) -> int | None:
    """A token id, None where the key is missing or says so."""
    if key not in fields or fields.get(key) in (-1, _NO_TOKEN):
        return None
    return fields.integer(key, low=0, high=vocab_size - 1)


def _from_directory(path: Path, length: int | None) -> ModelFiles:
    directory = HFDirectory.open(path)
    fields = Fields(directory.config, "config.json")
    names = directory.config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ModelFormatError("config.json: architectures is not a list of one name")
    read = reader(names[0], HF_READERS)
    if "quantization_config" in fields:
        method = fields.child("quantization_config").text("quant_method", "unknown")
        raise UnsupportedModel(f"weights quantised by {method!r:.40} are not supported; use GGUF or unquantised ones")
    spec = read(Source(fields, directory.tensors, length))
    if directory.tokenizer is None:
        raise ModelNotFound(f"{path}: tokenizer.json is missing")
    generation = directory.generation_config
    eos, bos = (
        _hf_tokens(generation.get(key, directory.config.get(key)), key, spec.vocab_size)
        for key in ("eos_token_id", "bos_token_id")
    )
    return ModelFiles(
        name=path.resolve().name,
        spec=spec,
        tensors=directory.tensors,
        tokenizer=path,
        chat_template=directory.chat_template,
        eos_ids=frozenset(eos),
        bos_id=bos[0] if bos else None,
    )


def _hf_tokens(value: Any, key: str, vocab_size: int) -> list[int]:
    """Token ids given as one, a list or null."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids):
        raise ModelFormatError(f"{key} is not one or more token ids below {vocab_size}")
    return ids

"""Opens a Hugging Face model directory: its settings, tensors and tokenizer files. Knows no architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from octavo.errors import ModelFormatError, ModelNotFound, UnsupportedModel
from octavo.ops.tensor import Tensor
from octavo.weights.fields import MAX_JSON_BYTES, load_json
from octavo.weights.safetensors import read_safetensors

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class HFDirectory:
    """An opened directory.

    config: config.json. generation_config: generation_config.json, empty where there is none. tensors: of all shards.
    tokenizer: path of tokenizer.json, or None. chat_template: Jinja source, or None.
    """

    path: Path
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: Path | None
    chat_template: str | None

    @classmethod
    def open(cls, path: str | Path) -> HFDirectory:
        """Read the settings and map the shards; no tensor data is read.

        Raises ModelNotFound (no config.json or weights), ModelFormatError, UnsupportedModel (a number format).
        """
        path = Path(path)
        generation, tokenizer = path / "generation_config.json", path / "tokenizer.json"
        return cls(
            path=path,
            config=load_json(path / "config.json"),
            generation_config=load_json(generation) if generation.exists() else {},
            tensors=MappingProxyType(_read_tensors(path)),
            tokenizer=tokenizer if tokenizer.exists() else None,
            chat_template=_read_template(path),
        )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if (path / _INDEX).exists():
        return _read_shards(path)
    if (path / _SINGLE).exists():
        return dict(read_safetensors(path / _SINGLE))
    if any(path.glob("*.bin")) or any(path.glob("*.pt")) or any(path.glob("*.pth")):
        raise UnsupportedModel(f"{path}: the weights are pickled; save them as safetensors")
    raise ModelNotFound(f"{path}: neither {_SINGLE} nor {_INDEX} is there")


def _read_shards(path: Path) -> dict[str, Tensor]:
    """Tensors of every shard that the index names; index and shards must agree on what is where."""
    places = load_json(path / _INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise ModelFormatError(f"{_INDEX}: weight_map is not an object of file names")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        if Path(shard).name != shard or "\\" in shard or not shard.endswith(".safetensors"):
            raise ModelFormatError(f"{_INDEX}: {shard[:80]!r} is not the plain name of a .safetensors file")
        for name, tensor in read_safetensors(path / shard).items():
            if places.get(name) != shard:
                raise ModelFormatError(f"{shard}: tensor {name[:80]!r} is here and not so in {_INDEX}")
            tensors[name] = tensor
    for name, shard in places.items():
        if name not in tensors:
            raise ModelFormatError(f"{shard}: tensor {name[:80]!r} of {_INDEX} is missing")
    return tensors


def _read_template(path: Path) -> str | None:
    """chat_template.jinja, else the one (or the one named default) in tokenizer_config.json."""
    jinja, config = path / "chat_template.jinja", path / "tokenizer_config.json"
    if jinja.exists():
        if jinja.stat().st_size > MAX_JSON_BYTES:
            raise ModelFormatError(f"{jinja.name}: larger than {MAX_JSON_BYTES} bytes")
        try:
            return jinja.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{jinja.name}: not UTF-8", offset=error.start) from None
    template = load_json(config).get("chat_template") if config.exists() else None
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelFormatError(f"{config.name}: chat_template is a {type(template).__name__}, not a string")
    return template

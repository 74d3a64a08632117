"""Hugging Face directories: what is found in them, and shards that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.errors import ModelFormatError, ModelNotFound, OctavoError, UnsupportedModel
from octavo.weights.hf_directory import HFDirectory

INDEX = "model.safetensors.index.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """config.json and two shards with one tensor each."""
    (tmp_path / "config.json").write_text('{"a": 1}')
    for number in (1, 2):
        save_file({f"t{number}": np.full(2, number, np.float32)}, tmp_path / f"s{number}.safetensors")
    write_map(tmp_path, {"t1": "s1.safetensors", "t2": "s2.safetensors"})
    return tmp_path


def write_map(path: Path, places: Any) -> None:
    (path / INDEX).write_text(json.dumps({"weight_map": places}))


def test_shards_are_joined(directory: Path) -> None:
    opened = HFDirectory.open(directory)
    assert [opened.tensors[name].data.view("<f4").tolist() for name in ("t1", "t2")] == [[1, 1], [2, 2]]
    assert (opened.config, opened.generation_config) == ({"a": 1}, {})
    assert opened.tokenizer is None
    assert opened.chat_template is None


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"t1": "../s1.safetensors"}, "not the plain name"),
        ({"t1": "/etc/passwd"}, "not the plain name"),
        ({"t1": "sub/s1.safetensors"}, "not the plain name"),
        ({"t1": "..\\s1.safetensors"}, "not the plain name"),
        ({"t1": ".."}, "not the plain name"),
        ({"t1": ""}, "not the plain name"),
        ({"t1": "s1.bin"}, "not the plain name"),
        ({"t1": "s1.safetensors\n"}, "not the plain name"),
        ({"t1": "absent.safetensors"}, "no such file"),
        ({"t1": 3}, "not an object of file names"),
        (["t1"], "not an object of file names"),
        (None, "not an object of file names"),
        ({"t1": "s1.safetensors", "t9": "s1.safetensors"}, "'t9' of .* is missing"),
        ({"t1": "s2.safetensors", "t2": "s2.safetensors"}, "'t1' of .* is missing"),
        ({"t9": "s1.safetensors"}, "'t1' is here and not so in"),
    ],
)
def test_an_index_that_lies_is_refused(directory: Path, places: Any, words: str) -> None:
    """Shard names cannot leave the directory, and index and shards must agree."""
    write_map(directory, places)
    with pytest.raises(OctavoError, match=words):
        HFDirectory.open(directory)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json: there is no such file"):
        HFDirectory.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"neither model\.safetensors nor"):
        HFDirectory.open(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UnsupportedModel, match="pickled"):
        HFDirectory.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[]", "JSON list"), (b"{", "not valid JSON"), (b"\xff", "not valid JSON"), (b" " * (5 << 20), "the limit is")],
)
def test_a_config_that_is_none(directory: Path, content: bytes, words: str) -> None:
    (directory / "config.json").write_bytes(content)
    with pytest.raises(ModelFormatError, match=words):
        HFDirectory.open(directory)


def test_chat_templates(directory: Path) -> None:
    """chat_template.jinja comes before tokenizer_config.json, which has one or several."""
    config = directory / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "one"}))
    assert HFDirectory.open(directory).chat_template == "one"
    named = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert HFDirectory.open(directory).chat_template == "three"
    config.write_text(json.dumps({"chat_template": 4}))
    with pytest.raises(ModelFormatError, match="chat_template is a int"):
        HFDirectory.open(directory)
    (directory / "chat_template.jinja").write_text("fünf\n")
    assert HFDirectory.open(directory).chat_template == "fünf\n"

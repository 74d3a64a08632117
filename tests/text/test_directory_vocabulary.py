"""Tokenizers of Hugging Face directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from octavo.errors import ModelFormatError, ModelNotFound, UnsupportedModel
from octavo.text.tokenizer import Tokenizer

Write = Callable[..., Path]


def test_smollm2_from_its_tokenizer_json(
    smollm2: Tokenizer, smollm2_oracle: Any, corpus: list[str], byte_strings: list[bytes], tmp_path: Path
) -> None:
    """The same tokenizer by way of tokenizer.json as by way of GGUF."""
    smollm2_oracle.save_pretrained(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.size == smollm2.size
    assert tokenizer.special_ids == smollm2.special_ids
    assert tokenizer.special.add_bos is smollm2.special.add_bos is False
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (smollm2.bos_id, smollm2.eos_ids)
    assert tokenizer.chat_template == smollm2.chat_template
    for text in [*corpus, *byte_strings[:500], *byte_strings[-500:]]:
        for parse in (True, False):
            ids = smollm2.encode(text, parse_special=parse)
            assert tokenizer.encode(text, parse_special=parse) == ids
        assert tokenizer.decode(ids) == smollm2.decode(ids)
    assert all(tokenizer.token_bytes(token) == smollm2.token_bytes(token) for token in range(smollm2.size))


def test_sentencepiece_kind(write_spm: Write, corpus: list[str]) -> None:
    for legacy in (False, True):
        directory = write_spm(legacy=legacy)
        oracle = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        tokenizer = Tokenizer.from_directory(directory)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.special.unk_id) == (1, 2, 0)
        assert tokenizer.special.add_bos is True
        assert tokenizer.special.add_eos is False
        for text in corpus:
            if any("\ud800" <= char <= "\udfff" for char in text):
                continue
            assert tokenizer.encode(text, parse_special=True) == oracle.encode(text).ids, text
            if "\u2581" not in text and (legacy or not text.startswith(" ")):
                assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.encode(b"\xffa\xfe", add_special=False)[0] == oracle.token_to_id("<0xFF>")


def test_end_tokens_of_every_file(write_spm: Write) -> None:
    """Case F09."""
    directory = write_spm()
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 2]}))
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 0}))
    assert Tokenizer.from_directory(directory).eos_ids == {0, 2, 3}
    (directory / "config.json").write_text(json.dumps({"eos_token_id": None}))
    assert Tokenizer.from_directory(directory).eos_ids == {2, 3}
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 10**9}))
    with pytest.raises(ModelFormatError, match="1000000000"):
        Tokenizer.from_directory(directory)


def test_settings_beside_the_tokenizer(write_spm: Write) -> None:
    assert Tokenizer.from_directory(write_spm(add_bos_token=False)).encode("x")[:1] != [1]
    assert Tokenizer.from_directory(write_spm(add_eos_token=True)).encode("x")[-1] == 2
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    directory = write_spm(chat_template=several)
    assert Tokenizer.from_directory(directory).chat_template == "d"
    (directory / "chat_template.jinja").write_text("file")
    assert Tokenizer.from_directory(directory).chat_template == "file"
    assert Tokenizer.from_directory(write_spm(bos_token=None)).bos_id is None


def test_files_that_lie(write_spm: Write, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json does not exist"):
        Tokenizer.from_directory(tmp_path / "nowhere")
    directory = write_spm()
    path = directory / "tokenizer.json"
    good = path.read_text()
    for bad in ("", "{", "[]", "{}", good[: len(good) // 2]):
        path.write_text(bad)
        with pytest.raises(ModelFormatError, match="is no tokenizer"):
            Tokenizer.from_directory(directory)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ModelFormatError, match="not UTF-8"):
        Tokenizer.from_directory(directory)
    path.write_text(json.dumps(json.loads(good) | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}))
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        Tokenizer.from_directory(directory)
    path.write_text(good)
    for bad in ("[", "[]", "[" * 100_000):
        (directory / "config.json").write_text(bad)
        with pytest.raises(ModelFormatError, match=r"config\.json"):
            Tokenizer.from_directory(directory)

"""Equality with transformers' tokenizers, exact bytes, and what cannot be encoded."""

from __future__ import annotations

import codecs
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.surrogates import replace_surrogates
from octavo.text.tokenizer import Tokenizer

EXPECTED = Path(__file__).parent / "data" / "gemma3_expected.json"


def joined(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(map(tokenizer.token_bytes, ids))


def spellable(tokenizer: Tokenizer, text: str) -> str:
    """`text` as the tokenizer can say it: SmolLM2's vocabulary lacks 21 bytes, U+2581 is a space to Gemma."""
    missing = set(tokenizer._missing_bytes)
    text = "".join("\ufffd" if missing.intersection(char.encode()) else char for char in replace_surrogates(text))
    return text.replace("\u2581", " ") if tokenizer._vocabulary.spelling.value == "metaspace" else text


def once_bos(text: str, ids: list[int]) -> list[int]:
    """Ids of transformers without the second BOS that it puts before a text that begins with one (case K01)."""
    return ids[1:] if text.startswith("<bos>") else ids


def test_smollm2_equals_transformers(smollm2: Tokenizer, smollm2_oracle: Any, corpus: list[str]) -> None:
    for text in map(replace_surrogates, corpus):
        text = spellable(smollm2, text)
        assert smollm2.encode(text, parse_special=True) == smollm2_oracle.encode(text), text
        plain = smollm2_oracle.encode(text, split_special_tokens=True)
        assert smollm2.encode(text) == plain, text
        assert smollm2.decode(plain) == smollm2_oracle.decode(plain, clean_up_tokenization_spaces=False) == text


def test_smollm2_digits_split_as_in_training(smollm2: Tokenizer, smollm2_oracle: Any) -> None:
    """Case L06: digits stand alone, also behind spaces, which GPT-2's pattern would tie to them."""
    texts = ["year 2024 + 3.14, don't"]
    texts += [f"{'  ' * (i % 4)}{i * 7919}{' ' * (i % 3)}{i}kg,{i / 7:.3f} don't" for i in range(200)]
    for text in texts:
        assert smollm2.encode(text) == smollm2_oracle.encode(text), text
    assert [smollm2.token_bytes(token) for token in smollm2.encode("   12")] == [b"   ", b"1", b"2"]


def test_gemma3_equals_transformers(gemma3: Tokenizer, corpus: list[str]) -> None:
    """Against what transformers said once: data/make_gemma3_expected.py."""
    expected = json.loads(EXPECTED.read_text())
    assert len(expected["special"]) == len(expected["plain"]) == len(corpus)
    for text, special, plain in zip(corpus, expected["special"], expected["plain"], strict=True):
        assert gemma3.encode(text, parse_special=True) == once_bos(text, special), text
        assert gemma3.encode(text, add_special=False) == plain, text


@pytest.mark.slow
def test_gemma3_equals_transformers_now(
    gemma3: Tokenizer, gemma3_oracle: Any, corpus: list[str], byte_strings: list[bytes]
) -> None:
    for text in [*map(replace_surrogates, corpus), *(data.decode("utf-8", "replace") for data in byte_strings)]:
        assert gemma3.encode(text, parse_special=True) == once_bos(text, gemma3_oracle.encode(text)), text


@pytest.mark.parametrize("name", ["smollm2", "gemma3", "toy"])
def test_corpus_comes_back(name: str, request: pytest.FixtureRequest, corpus: list[str]) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    for text in corpus:
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.decode(ids) == spellable(tokenizer, text)
        assert not tokenizer.special_ids.intersection(ids), "a control token out of plain text"


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_any_bytes_come_back(name: str, request: pytest.FixtureRequest, byte_strings: list[bytes]) -> None:
    """10,000 random byte strings, exactly; for SmolLM2 those of the bytes that its vocabulary has."""
    tokenizer: Tokenizer = request.getfixturevalue(name)
    assert len(byte_strings) == 10_000
    for data in byte_strings:
        data = data.translate(None, tokenizer._missing_bytes)
        ids = tokenizer.encode(data, add_special=False)
        assert joined(tokenizer, ids) == data
        assert tokenizer.decode(ids) == codecs.utf_8_decode(data, "replace", False)[0], "all but an unfinished end"


def test_byte_strings_as_text_equal_transformers(
    smollm2: Tokenizer, smollm2_oracle: Any, byte_strings: list[bytes]
) -> None:
    texts = [spellable(smollm2, data.decode("utf-8", "replace")) for data in byte_strings]
    expected = smollm2_oracle(texts, split_special_tokens=True).input_ids
    assert [smollm2.encode(text) for text in texts] == expected


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back(toy: Tokenizer, text: str) -> None:
    assert toy.decode(toy.encode(text)) == text
    assert joined(toy, toy.encode(text)) == text.encode()


def test_surrogates(toy: Tokenizer, smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    """Case G09: lone surrogates count as U+FFFD, a pair as its character; nothing raises."""
    for tokenizer in (toy, smollm2, gemma3):
        for text, meant in (("a\ud83d", "a\ufffd"), ("\udc00b", "\ufffdb"), ("\ud83d\ude00", "😀"), ("\0", "\0")):
            ids = tokenizer.encode(text, parse_special=True)
            assert ids == tokenizer.encode(meant)
            assert tokenizer.decode(ids) == meant


def test_bytes_without_a_token(smollm2: Tokenizer) -> None:
    """SmolLM2 has no token for 21 bytes: they become U+FFFD, never a control token, never nothing."""
    assert len(smollm2._missing_bytes) == 21
    for text in ("a\x04b", "\x06", "\U00040000x", b"\xffx", b"\xf1\x80"):
        ids = smollm2.encode(text)
        assert "\ufffd" in smollm2.decode(ids)
        assert not smollm2.special_ids.intersection(ids)
    assert smollm2.decode(smollm2.encode("a\x04b")) == "a\ufffdb"


def test_special_tokens_only_when_asked(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert smollm2.encode("<|im_start|>x", parse_special=True)[0] == 1
    assert 1 not in smollm2.encode("<|im_start|>x")
    assert gemma3.encode("<bos>a", parse_special=True) == gemma3.encode("a"), "a BOS in the text is not doubled"
    assert gemma3.encode("a", add_special=False) == gemma3.encode("a")[1:]
    assert gemma3.encode("<bos>a").count(2) == 1
    assert smollm2.encode("") == []
    assert gemma3.encode("") == [2]


def test_decode_drops_an_unfinished_character_and_marks_a_broken_one(gemma3: Tokenizer, toy: Tokenizer) -> None:
    """Choice 21."""
    for tokenizer in (gemma3, toy):
        ids = tokenizer.encode(b"ab\xe4\xbd\xa0\xf0\x9f\x98", add_special=False)
        assert tokenizer.decode(ids) == "ab你"
        assert tokenizer.decode([*ids, *tokenizer.encode("c", add_special=False)]) == "ab你\ufffdc"
        assert joined(tokenizer, ids) == b"ab\xe4\xbd\xa0\xf0\x9f\x98"


def test_token_bytes_of_every_token(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    """Case J02: every token has its exact bytes, also the halves of characters."""
    for tokenizer in (smollm2, gemma3):
        alone = [tokenizer.token_bytes(token) for token in range(tokenizer.size)]
        assert all(alone)
        partial = sum(b"\xef\xbf\xbd" in data for data in alone)
        assert partial <= 8, "U+FFFD instead of a token's own bytes"
        with pytest.raises(IndexError):
            tokenizer.token_bytes(tokenizer.size)
        with pytest.raises(IndexError):
            tokenizer.token_bytes(-1)
    assert gemma3.token_bytes(gemma3.encode(b"\xe6", add_special=False)[0]) == b"\xe6"


@pytest.mark.parametrize("char", ["a", "\n", " ", "<", "你"])
def test_time_grows_with_the_text(toy: Tokenizer, char: str) -> None:
    """100,000 times the same character takes no longer per character than prose: nothing is quadratic."""
    start = time.process_time()
    ids = toy.encode(char * 100_000, parse_special=True)
    assert time.process_time() - start < 3
    assert toy.decode(ids) == char * 100_000


def test_fewest_tokens_is_a_lower_bound(smollm2: Tokenizer, corpus: list[str]) -> None:
    for text in corpus:
        assert smollm2.fewest_tokens(text) <= len(smollm2.encode(text))
    assert smollm2.fewest_tokens("x" * 5_000_000) > 50_000

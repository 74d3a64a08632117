"""What GGUF metadata say, leave out, or get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from octavo.errors import ModelFormatError, OctavoError, UnsupportedModel
from octavo.text.parts import collect_eos_ids
from octavo.text.tokenizer import Tokenizer

P = "tokenizer.ggml."


@pytest.fixture
def sentencepiece_metadata() -> dict[str, Any]:
    """A SentencePiece vocabulary of the Llama 2 kind: scores, byte tokens, a space before the first word."""
    words = ["\u2581a", "ab", "\u2581ab", "ba", "aba", "\u2581aba", "\u2581\u2581", "bab"]
    chars = ["\u2581", "a", "b", "c"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *chars, "<h1>"]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(words) + len(chars)), 4]
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))] + [-100.0] * len(chars) + [-1000.0]
    return {
        P + "model": "llama",
        P + "tokens": texts,
        P + "scores": np.array(scores, np.float32),
        P + "token_type": np.array(types, np.int32),
        P + "bos_token_id": 1,
        P + "eos_token_id": 2,
        P + "unknown_token_id": 0,
    }


def test_sentencepiece_equals_the_library(sentencepiece_metadata: dict[str, Any]) -> None:
    """Merges by score, against the same vocabulary given to `tokenizers` with its merges written out."""
    texts = sentencepiece_metadata[P + "tokens"]
    words = texts[259:267]
    ids = {text: number for number, text in enumerate(texts)}
    merges = [
        (word[:cut], word[cut:])
        for word in words
        for cut in reversed(range(1, len(word)))
        if word[:cut] in ids and word[cut:] in ids
    ]
    oracle = tokenizers.Tokenizer(models.BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    oracle.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    oracle.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    oracle.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<s>", "</s>")])
    oracle.add_tokens([AddedToken("<h1>", normalized=False)])
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata)
    samples = ["aba", "ab ab", "a  b", "abababab bab", "cé你", "<h1>ab<h1> a", "a</s>ab", "a<s> ba", "</s>ab"]
    for text in samples:
        ids_out = tokenizer.encode(text, parse_special=True)
        assert ids_out == [1, *oracle.encode(text).ids], text
        assert tokenizer.decode(ids_out) == oracle.decode(ids_out), text
    for text in [*samples, " ab", "  ab ", ""]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("ab")[1:] == [ids["\u2581ab"]]
    sentencepiece_metadata[P + "add_space_prefix"] = False
    assert Tokenizer.from_gguf(sentencepiece_metadata).encode("ab")[1:] == [ids["ab"]]


def test_end_tokens_are_those_of_the_file(byte_level_metadata: dict[str, Any]) -> None:
    """Cases L04, F09."""
    tokenizer = Tokenizer.from_gguf(byte_level_metadata | {P + "eos_token_id": 2, P + "eot_token_id": 7})
    assert tokenizer.eos_ids == {2, 7}
    assert tokenizer.eos_id == 2
    without = {key: value for key, value in byte_level_metadata.items() if not key.endswith("token_id")}
    for missing in ({}, {P + "eos_token_id": 0xFFFFFFFF, P + "bos_token_id": 0xFFFFFFFF}, {P + "eot_token_id": -1}):
        tokenizer = Tokenizer.from_gguf(without | missing)
        assert tokenizer.eos_ids == frozenset()
        assert tokenizer.eos_id is None
        assert tokenizer.bos_id is None
        assert tokenizer.encode("a") == tokenizer.encode("a", add_special=False)


def test_end_tokens_of_all_files_join() -> None:
    """Case F09: config eos 0, generation_config [2], tokenizer eos 2."""
    assert collect_eos_ids(0, [2], 2, None, -1, size=10) == {0, 2}
    for wrong in (10, True, "2", [1, 11]):
        with pytest.raises(ModelFormatError, match="end token"):
            collect_eos_ids(wrong, size=10)  # type: ignore[arg-type]


def test_pre_tokenizer_is_never_guessed_silently(byte_level_metadata: dict[str, Any]) -> None:
    """Case L06."""
    missing = {key: value for key, value in byte_level_metadata.items() if key != P + "pre"}
    with pytest.warns(UserWarning, match="pre is missing"):
        assert Tokenizer.from_gguf(missing).decode(Tokenizer.from_gguf(missing).encode("a 1")) == "a 1"
    with pytest.warns(UserWarning, match="only default"):
        Tokenizer.from_gguf(missing | {P + "pre": "default"})
    with pytest.raises(UnsupportedModel, match=r"'nonsense' is unknown.*llama-bpe.*qwen2.*smollm"):
        Tokenizer.from_gguf(missing | {P + "pre": "nonsense"})


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["I", "'ll", " pay", " 2024", "!!", "\n\n", " x"]),
        ("smollm", ["I", "'ll", " pay", " ", "2", "0", "2", "4", "!!", "\n\n", " x"]),
        ("llama-bpe", ["I", "'ll", " pay", " ", "202", "4", "!!\n\n", " x"]),
        ("qwen2", ["I", "'ll", " pay", " ", "2", "0", "2", "4", "!!\n\n", " x"]),
        ("tekken", ["I", "'ll", " pay", " ", "2", "0", "2", "4", "!!\n\n", " x"]),
        ("gpt-4o", ["I'll", " pay", " ", "202", "4", "!!\n\n", " x"]),
    ],
)
def test_known_pre_tokenizers(byte_level_metadata: dict[str, Any], pre: str, words: list[str]) -> None:
    text = "I'll pay 2024!!\n\n x"
    engine = Tokenizer.from_gguf(byte_level_metadata | {P + "pre": pre})._parts.first.engine
    cut = [text[start:end] for _, (start, end) in engine.pre_tokenizer.pre_tokenize_str(text)]
    assert "".join(cut) == text
    assert cut == words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "no tokenizer.ggml.model"),
        ({"model": "bert"}, "'bert' is not supported; supported are: gpt2, llama"),
        ({"tokens": None}, "tokens is not a list"),
        ({"tokens": []}, "tokens is not a list"),
        ({"tokens": ["a", 3]}, "tokens is not a list"),
        ({"tokens": ["ä b", "!!"], "token_type": None}, "no single-byte tokens"),
        ({"token_type": [1, 2]}, "token_type has 2 numbers for 281 tokens"),
        ({"token_type": "3"}, "token_type is missing or no array of numbers"),
        ({"merges": None}, "merges is not a list"),
        ({"merges": ["ab"]}, "has 'ab' where two tokens"),
        ({"merges": ["a b", 7]}, "has 7 where two tokens"),
        ({"merges": ["qq zz"]}, "do not fit together"),
        ({"bos_token_id": 10**6}, "bos_token_id is 1000000, which is no token"),
        ({"eos_token_id": "2"}, "eos_token_id is '2'"),
        ({"eot_token_id": True}, "eot_token_id is True"),
        ({"add_bos_token": 1}, "add_bos_token is 1, not true or false"),
    ],
)
def test_metadata_that_lie(byte_level_metadata: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OctavoError, match=message):
        Tokenizer.from_gguf(byte_level_metadata | {P + key: value for key, value in changes.items()})


@pytest.mark.parametrize("scores", [None, [1.0], np.full(273, np.nan), ["x"] * 273])
def test_scores_that_lie(sentencepiece_metadata: dict[str, Any], scores: Any) -> None:
    with pytest.raises(ModelFormatError, match="scores"):
        Tokenizer.from_gguf(sentencepiece_metadata | {P + "scores": scores})

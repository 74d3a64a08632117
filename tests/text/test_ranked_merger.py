"""Merging by rank, against the library with the merges of the same vocabulary written out."""

from __future__ import annotations

import random
import time

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models

from octavo.text import ranked_merger
from octavo.text.ranked_merger import RankedMerger

BYTES = {byte: 1000 + byte for byte in range(256)}


def vocabulary(seed: int) -> list[str]:
    """A random ranked vocabulary over four characters, in which many tokens can be made in several ways."""
    rng = random.Random(seed)
    tokens = ["a", "b", "c", "\u2581"]
    while len(tokens) < 40:
        token = "".join(rng.choice(tokens) for _ in range(rng.randint(2, 3)))
        if len(token) <= 12 and token not in tokens:
            tokens.append(token)
    head, tail = tokens[:4], tokens[4:]
    rng.shuffle(tail)
    return head + tail


def oracle_of(tokens: list[str]) -> tokenizers.Tokenizer:
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [
        (token[:cut], token[cut:])
        for token in tokens
        for cut in reversed(range(1, len(token)))
        if token[:cut] in ids and token[cut:] in ids
    ]
    ids |= {f"<0x{byte:02X}>": number for byte, number in BYTES.items()}
    return tokenizers.Tokenizer(models.BPE(ids, merges, byte_fallback=True))


@pytest.mark.parametrize("long", [1, 192])
@given(seed=st.integers(0, 50), text=st.text("aaabbc\u2581é", max_size=60))
@settings(max_examples=300, deadline=None)
def test_equals_the_library(long: int, seed: int, text: str) -> None:
    """With the list for short words and with the heap for long ones; ties, overlaps and unknown characters included."""
    tokens = vocabulary(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranked_merger, "_LONG", long)
        merger = RankedMerger({token: i for i, token in enumerate(tokens)}, tokens, BYTES, None)
        ids = merger.encode(text)
    assert ids == (oracle_of(tokens).encode(text).ids if text else [])


def test_unknown_characters() -> None:
    ids = {"a": 0, "b": 1, "ab": 2, "éa": 3}
    assert RankedMerger(ids, ids, BYTES, 9).encode("éab") == [1195, 1169, 2], "no token is made of an unknown character"
    assert RankedMerger(ids, ids, {}, 9).encode("ééabé") == [9, 2, 9], "several unknown ones are one <unk>"


def test_long_words_take_time_in_proportion() -> None:
    tokens = ["a", "aa", "aaaa", "aaaaaaaa"]
    merger = RankedMerger({token: i for i, token in enumerate(tokens)}, tokens, BYTES, None)
    start = time.process_time()
    assert merger.encode("a" * 160_000) == [3] * 20_000
    assert time.process_time() - start < 4

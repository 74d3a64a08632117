"""Text as it streams equals text as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer


def stream(tokenizer: Tokenizer, ids: list[int], prompt: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special, prompt_tail=prompt)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


@given(data=st.data(), skip_special=st.booleans())
@settings(max_examples=200, deadline=None)
def test_streamed_is_whole(toy: Tokenizer, data: st.DataObject, skip_special: bool) -> None:
    """Case I09, for random tokens: characters broken, unfinished, across the end of the prompt."""
    token = st.integers(0, toy.size - 1) | st.sampled_from(toy.encode("😀你é"))
    prompt, ids = data.draw(st.lists(token, max_size=6)), data.draw(st.lists(token, max_size=30))
    whole = toy.decode(prompt + ids, skip_special=skip_special)
    before = toy.decode(prompt, skip_special=skip_special)
    assert whole.startswith(before)
    assert "".join(stream(toy, ids, prompt, skip_special=skip_special)) == whole.removeprefix(before)


def test_no_broken_character_is_ever_shown(smollm2: Tokenizer, gemma3: Tokenizer, corpus: list[str]) -> None:
    for tokenizer in (smollm2, gemma3):
        for text in corpus:
            ids = tokenizer.encode(text, add_special=False)
            pieces = stream(tokenizer, ids, [])
            assert "".join(pieces) == tokenizer.decode(ids)
            if "\ufffd" not in tokenizer.decode(ids):
                assert not any("\ufffd" in piece for piece in pieces)


def test_end_inside_a_character(toy: Tokenizer) -> None:
    """Case I02 and choice 21: the unfinished bytes go, everything before them stays."""
    ids = toy.encode("ok 😀".encode()[:-1])
    assert "".join(stream(toy, ids, [])) == "ok " == toy.decode(ids)
    ids = [*toy.encode("ok 😀".encode()[:-1]), *toy.encode("!")]
    assert "".join(stream(toy, ids, [])) == "ok \ufffd!" == toy.decode(ids)


def test_text_comes_as_soon_as_it_is_whole(toy: Tokenizer) -> None:
    ids = toy.encode("a😀b")
    assert stream(toy, ids, []) == ["a", "", "", "", "😀", "b", ""]


def test_sentencepiece_spaces(write_spm: Callable[..., Path]) -> None:
    """Case I03: inner spaces stay, none is doubled, the first is dropped at the very beginning alone."""
    directory = write_spm()
    tokenizer = Tokenizer.from_directory(directory)
    oracle = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    ids = [oracle.token_to_id(name) for name in ("\u2581", "\u2581leading", "\u2581x", "lead", "ing")]
    ids += [oracle.token_to_id(name) for name in ("<0xE6>", "<0x97>", "<0xA5>", "\u2581\u2581", "<s>", "\u2581text")]
    for cut in range(len(ids) + 1):
        for start in range(cut + 1):
            prompt, output = ids[start:cut], ids[cut:]
            whole = tokenizer.decode(prompt + output)
            before = tokenizer.decode(prompt)
            assert "".join(stream(tokenizer, output, prompt)) == whole.removeprefix(before)
    assert tokenizer.decode(ids) == oracle.decode(ids) == " leading xleading日   text"
    assert "".join(stream(tokenizer, ids[1:], ids[:1])) == " leading xleading日   text"


def test_spaces_next_to_special_tokens(write_spm: Callable[..., Path]) -> None:
    """Case I04: as tokenizers has it for both flags, and text round a control token gets no space put in."""
    for legacy in (False, True):
        directory = write_spm(legacy=legacy)
        tokenizer = Tokenizer.from_directory(directory)
        oracle = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        special, text = oracle.token_to_id("[INST]"), oracle.token_to_id("\u2581text")
        for ids in ([special, text, special], [text, special, text], [special, special], [special]):
            for skip in (True, False):
                expected = oracle.decode(ids, skip_special_tokens=skip)
                assert tokenizer.decode(ids, skip_special=skip) == expected
                assert "".join(stream(tokenizer, ids, [], skip_special=skip)) == expected
        for text_in in ("[INST]text[INST]", "text[INST] text", "[INST]  x", "x text"):
            ids = tokenizer.encode(text_in, parse_special=True)
            assert ids == oracle.encode(text_in).ids
            if not legacy:
                assert tokenizer.decode(ids[1:], skip_special=False) == text_in

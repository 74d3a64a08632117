"""Thinking told from answers: however the text is cut, tags split, missing or out of place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.reasoning import ReasoningReader, Thinking, thinking_of

PLAIN, BEGUN = Thinking("<think>", "</think>"), Thinking("<think>", "</think>", begun=True)


def read(thinking: Thinking, *pieces: str) -> tuple[str, str]:
    """(reasoning, content)"""
    reader, said = ReasoningReader(thinking), {"reasoning": "", "content": ""}
    for piece in pieces:
        for part, text in reader.push(piece):
            assert text
            said[part] += text
    for part, text in reader.finish():
        assert text
        said[part] += text
    return said["reasoning"], said["content"]


@pytest.mark.parametrize(
    ("thinking", "text", "reasoning", "content"),
    [
        (PLAIN, "<think>\nWhy?\n\nSo.\n</think>\n\nYes.\n", "Why?\n\nSo.", "Yes.\n"),
        (PLAIN, "\n <think>a</think>b", "a", "b"),
        (PLAIN, "Yes. <think>no</think>", "", "Yes. <think>no</think>"),
        (PLAIN, "  a</think>b", "", "  a</think>b"),
        (PLAIN, "<think>a</think>b</think>c<think>d", "a", "b</think>c<think>d"),
        (PLAIN, "<think>never closed  ", "never closed", ""),
        (PLAIN, "<think>cut in its tag</thi", "cut in its tag</thi", ""),
        (PLAIN, "<think></think>", "", ""),
        (PLAIN, "<thi", "", "<thi"),
        (PLAIN, "<thing>", "", "<thing>"),
        (PLAIN, " ", "", " "),
        (PLAIN, "", "", ""),
        (BEGUN, "Why?\n</think>\n\nYes.", "Why?", "Yes."),
        (BEGUN, "\n", "", ""),
        (BEGUN, "never closed", "never closed", ""),
        (BEGUN, "</think>Yes.", "", "Yes."),
        (BEGUN, "<think>said again</think>Yes.", "said again", "Yes."),
        (BEGUN, "a < b</ think></think>", "a < b</ think>", ""),
    ],
)
def test_told_apart_however_it_is_cut(thinking: Thinking, text: str, reasoning: str, content: str) -> None:
    assert read(thinking, text) == (reasoning, content)
    assert read(thinking, *text) == (reasoning, content)
    for cut in range(len(text)):
        assert read(thinking, text[:cut], text[cut:]) == (reasoning, content)


fragments = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think>", " ", "\n", "a", "bc", ""]), max_size=12
)


@given(fragments, st.data(), st.sampled_from([PLAIN, BEGUN]))
def test_no_cutting_changes_what_is_said(parts: list[str], data: st.DataObject, thinking: Thinking) -> None:
    """Case I09, of this part: and but for a tag of each kind and white space, nothing is lost."""
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    reasoning, content = read(thinking, *pieces)
    assert (reasoning, content) == read(thinking, text)
    lost = len("".join(text.split())) - len("".join((reasoning + content).split()))
    assert lost in (0, len("<think>"), len("</think>"), len("<think></think>"))


def test_what_is_settled_is_not_held() -> None:
    """Only white space and what may be the beginning of a tag waits for more."""
    reader = ReasoningReader(PLAIN)
    assert list(reader.push("<think>ab")) == [("reasoning", "ab")]
    assert list(reader.push(" c<")) == [("reasoning", " c")]
    assert list(reader.push("/d")) == [("reasoning", "</d")]
    assert list(reader.push("</think>\n")) == []
    assert list(reader.push("x ")) == [("content", "x ")]
    assert list(reader.push("</think>")) == [("content", "</think>")]


def test_templates_that_mark_thinking() -> None:
    assert thinking_of("{{ '<think>' }}{% if '</think>' in content %}{% endif %}") == PLAIN
    assert thinking_of("[THINK]{{ thoughts }}[/THINK]") == Thinking("[THINK]", "[/THINK]")
    assert thinking_of("<|im_start|>assistant") is None

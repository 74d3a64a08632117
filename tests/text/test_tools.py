"""Calls of functions: what answers may be, how calls are read from them in pieces, and how messages tell of them."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequest
from octavo.text.token_grammar import GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.text.tools import MAX_CALLS, Calling, CallReader, Piece, Tool, with_tools

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}}, "required": ["city"]}
TOOLS = (Tool("weather", "Tells the weather.", CITY), Tool("add", "", {"properties": {"a": {"type": "integer"}}}))


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(smollm2, smollm2.size, smollm2.eos_ids)


def is_answer(text: str, calling: Calling, compiler: GrammarCompiler, tokenizer: Tokenizer) -> bool:
    """Whether the whole text may be the answer."""
    walk = compiler.compile(calling.grammar()).walk()
    tokens = [*tokenizer.encode(text, add_special=False), min(tokenizer.eos_ids)]
    return all(walk.mask(tokens[:place], 0)[token] == 0 for place, token in enumerate(tokens))


FREE, MUST, ONE = Calling(TOOLS), Calling(TOOLS, must=True), Calling(TOOLS[:1], must=True, several=False)
TWO = call("weather", city="Rome") + "\n" + call("add", a=5)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("Hello there", [FREE]),
        ("Let me see. " + call("weather", city="Rome"), [FREE]),
        (call("weather", city="Rome"), [FREE, MUST, ONE]),
        (call("add", a=5), [FREE, MUST]),
        (TWO, [FREE, MUST]),
        (TWO + " Done.", [FREE]),
        (call("weather"), []),
        (call("weather", city="a name that is too long"), []),
        (call("weather", city="Rome", made_up=1), []),
        (call("subtract", a=1), []),
        ('<tool_call>\n{"name": "add"', []),
    ],
)
def test_what_answers_may_be(text: str, allowed: list[Calling], compiler: GrammarCompiler, smollm2: Tokenizer) -> None:
    assert [each for each in (FREE, MUST, ONE) if is_answer(text, each, compiler, smollm2)] == allowed


def test_any_answer_that_must_call_does(compiler: GrammarCompiler, smollm2: Tokenizer) -> None:
    """Tokens drawn evenly of those allowed; the end as soon as it may come."""
    walk = compiler.compile(MUST.grammar()).walk()
    draw = random.Random(1)
    output: list[int] = []
    while True:
        allowed = set(np.flatnonzero(walk.mask(output, 0) == 0).tolist())
        if allowed & smollm2.eos_ids:
            break
        output.append(draw.choice(sorted(allowed)))
    reader = CallReader()
    pieces = [*reader.push(smollm2.decode(output)), *reader.finish()]
    assert reader.calls == 1
    assert pieces[0].text in ("weather", "add")
    assert isinstance(json.loads("".join(piece.text for piece in pieces if piece.kind == "arguments")), dict)


def test_calls_are_not_without_end(compiler: GrammarCompiler, smollm2: Tokenizer) -> None:
    most = "\n".join([call("add", a=1)] * MAX_CALLS)
    assert is_answer(most, MUST, compiler, smollm2)
    assert not is_answer(most + "\n" + call("add", a=1), MUST, compiler, smollm2)


def test_schemas_that_cannot_be_enforced(compiler: GrammarCompiler) -> None:
    """Left to the model, as many schemas of tools have such keywords; refused where the caller asked for strictness."""
    odd = {"type": "object", "properties": {"a": {"not": {"const": 1}}}}
    compiler.compile(Calling((Tool("f", "", odd),)).grammar())
    with pytest.raises(InvalidRequest):
        compiler.compile(Calling((Tool("f", "", odd, strict=True),)).grammar())
    with pytest.raises(InvalidRequest, match="parameters of f"):
        Calling((Tool("f", "", {"maximum": float("inf")}),)).grammar()


def read(text: str, cuts: list[int]) -> list[Piece]:
    """The text's pieces, neighbours of one kind joined."""
    reader = CallReader()
    pieces: list[Piece] = []
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(places):
        pieces += reader.push(text[begin:end])
    pieces += reader.finish()
    joined: list[Piece] = []
    for piece in pieces:
        if joined and (joined[-1].kind, joined[-1].call) == (piece.kind, piece.call):
            joined[-1] = Piece(piece.kind, joined[-1].text + piece.text, piece.call)
        else:
            joined.append(piece)
    return joined


ANSWERS: list[tuple[str, list[Piece]]] = [
    ("Hello <tool", [Piece("text", "Hello <tool")]),
    (" spaces kept \n", [Piece("text", " spaces kept \n")]),
    ("", []),
    (
        "So:\n\n" + TWO + "\n",
        [
            Piece("text", "So:"),
            Piece("name", "weather", 0),
            Piece("arguments", '{"city": "Rome"}', 0),
            Piece("end", call=0),
            Piece("name", "add", 1),
            Piece("arguments", '{"a": 5}', 1),
            Piece("end", call=1),
        ],
    ),
    (
        call("add", a=1) + " and <b> ",
        [Piece("name", "add", 0), Piece("arguments", '{"a": 1}', 0), Piece("end", call=0), Piece("text", "and <b>")],
    ),
    ('<tool_call>\n{"name": "add", "arguments": {"a', [Piece("name", "add", 0), Piece("arguments", '{"a', 0)]),
    ('<tool_call>\n{"name": "ad', []),
    *(
        (f'<tool_call>\n{{"name": "add", "arguments": {begun}', [Piece("name", "add", 0), Piece("arguments", told, 0)])
        for begun, told in (
            ('{"a": 1}}', '{"a": 1}'),
            ('{"a": 1}}\n</tool', '{"a": 1}'),
            ('{"a": {"b": 1}', '{"a": {"b": 1}'),
        )
    ),
    (
        call("weather", city="}\n</tool_call>"),
        [
            Piece("name", "weather", 0),
            Piece("arguments", json.dumps({"city": "}\n</tool_call>"}), 0),
            Piece("end", call=0),
        ],
    ),
]


@pytest.mark.parametrize(("text", "pieces"), ANSWERS)
@given(cuts=st.lists(st.integers(0, 500), max_size=12))
def test_an_answer_reads_the_same_however_it_comes(text: str, pieces: list[Piece], cuts: list[int]) -> None:
    assert read(text, cuts) == pieces
    assert read(text, list(range(len(text)))) == pieces


def test_messages_for_a_template_without_tools() -> None:
    asked = {"role": "user", "content": "hi"}
    calls = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 5}'}}]
    history = [
        asked,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "6"},
        {"role": "tool", "tool_call_id": "2", "content": "7"},
    ]
    told = with_tools(history, TOOLS)
    assert [each["role"] for each in told] == ["system", "user", "assistant", "user"]
    assert '"name": "weather"' in told[0]["content"]
    assert told[2]["content"] == call("add", a=5)
    assert told[3]["content"].count("<tool_response>") == 2
    assert set(told[3]) == {"role", "content"}
    assert history[1]["content"] is None  # the caller's own are left alone
    (system, *_) = with_tools([{"role": "system", "content": "Be kind."}, asked], TOOLS)
    assert system["content"].startswith("Be kind.\n\nYou can call functions.")
    assert with_tools([asked], ()) == [asked]


@pytest.mark.parametrize(
    "odd",
    [
        5,
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
        {"role": "tool", "content": 5},
    ],
)
def test_what_is_no_proper_message_stays(odd: Any) -> None:
    assert with_tools([odd], ()) == [odd]

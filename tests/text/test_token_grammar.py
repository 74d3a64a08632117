"""Which tokens a grammar lets follow, against what can be worked out by hand, and what it refuses."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequest
from octavo.grammar import MAX_SOURCE, Grammar
from octavo.text.token_grammar import MAX_GBNF, GrammarCompiler, GrammarWalk
from octavo.text.tokenizer import Tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(smollm2, smollm2.size, smollm2.eos_ids)


def ids(walk: GrammarWalk, output: list[int]) -> set[int]:
    """What may follow."""
    return set(np.flatnonzero(walk.mask([1, 2, *output], 2) == 0).tolist())


def sentence(walk: GrammarWalk, tokenizer: Tokenizer, draw: random.Random, most: int = 400) -> str:
    """Any sentence of the grammar: tokens drawn evenly of those allowed, up to the end token."""
    output: list[int] = []
    while len(output) < most:
        token = draw.choice(sorted(ids(walk, output)))
        if token in tokenizer.eos_ids:
            return tokenizer.decode(output)
        output.append(token)
    raise AssertionError(f"no end after {most} tokens: {tokenizer.decode(output)[:200]!r}")


TEXTS = st.lists(st.text("abc é{\n", min_size=1, max_size=8), min_size=1, max_size=6, unique=True)


@pytest.fixture(scope="module")
def tokens_of(smollm2: Tokenizer) -> dict[bytes, list[int]]:
    """The tokens that are text, by their bytes."""
    found: dict[bytes, list[int]] = {}
    for token in range(smollm2.size):
        if token not in smollm2.special_ids:
            found.setdefault(smollm2.token_bytes(token), []).append(token)
    return found


@given(texts=TEXTS, seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_a_choice_allows_what_begins_one_of_its_texts(
    texts: list[str],
    seed: int,
    smollm2: Tokenizer,
    compiler: GrammarCompiler,
    tokens_of: dict[bytes, list[int]],
) -> None:
    """The oracle: a token may follow where the bytes so far and its own begin one of the texts. Where only one byte can
    follow, the tokenizer's own way to write the text is enough."""
    wanted = [text.encode() for text in texts]
    walk = compiler.compile(Grammar.choice(texts)).walk()
    draw = random.Random(seed)
    output: list[int] = []
    said = b""
    while True:
        left = [text[len(said) :] for text in wanted if text.startswith(said)]
        expected = {
            token for rest in left for length in range(1, len(rest) + 1) for token in tokens_of.get(rest[:length], ())
        }
        expected |= smollm2.eos_ids if b"" in left else set()
        allowed = ids(walk, output)
        assert allowed
        assert allowed <= expected
        assert all(walk.allows([1, 2, *output], 2, token) for token in expected)
        others = draw.sample(range(smollm2.size), 50)
        assert [walk.allows([1, 2, *output], 2, token) for token in others] == [token in expected for token in others]
        if len({rest[:1] for rest in left}) > 1:
            assert allowed == expected
        token = draw.choice(sorted(allowed))
        if token in smollm2.eos_ids:
            return
        output.append(token)
        said += smollm2.token_bytes(token)


@pytest.mark.parametrize("seed", range(20))
def test_sentences_of_a_schema_are_json_of_it(seed: int, smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    """Case H14: one space after , and : and none elsewhere, so that no answer can be blanks for ever."""
    text = sentence(compiler.compile(Grammar.json_schema(PERSON)).walk(), smollm2, random.Random(seed))
    value: dict[str, Any] = json.loads(text)
    assert set(value) in ({"name", "age"}, {"name", "age", "tags"})
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 150
    assert set(value.get("tags", [])) <= {"a", "b"}
    assert len(value.get("tags", [])) <= 3
    assert text.startswith('{"name": "')
    assert ', "age": ' in text


def test_grammars_of_every_syntax(smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    draw = random.Random(0)
    lark = Grammar.lark('start: "(" start ")" | "x"')
    gbnf = Grammar.lark('root ::= "(" root ")" | "x"')
    for grammar in (lark, gbnf):
        text = sentence(compiler.compile(grammar).walk(), smollm2, draw)
        assert text.strip("()") == "x"
        assert text.count("(") == text.count(")")
    assert sentence(compiler.compile(Grammar.regex("[0-9]{4}-[0-9]{2}")).walk(), smollm2, draw)[4] == "-"
    assert sentence(compiler.compile(Grammar.json_schema(True)).walk(), smollm2, draw, 10_000)
    assert json.loads(sentence(compiler.compile(Grammar.json_schema("true")).walk(), smollm2, draw, 10_000)) is not ...


def test_walks_are_apart_and_catch_up(smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    """A walk may be asked for every token, for some, or twice: the answer depends on the tokens alone."""
    grammar = compiler.compile(Grammar.json_schema(PERSON))
    output = smollm2.encode('{"name": "Jo", "age": 4', add_special=False)
    step_by_step = grammar.walk()
    seen = [ids(step_by_step, output[:count]) for count in range(len(output) + 1)]
    assert ids(step_by_step, output) == seen[-1]
    assert ids(grammar.walk(), output) == seen[-1]
    assert ids(grammar.walk(), []) == seen[0]
    assert seen[0] != seen[-1]


def test_control_tokens_are_never_allowed(smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    """ "<|im_start|>" may be written out, but not be that token."""
    walk = compiler.compile(Grammar.json_schema({"type": "string"})).walk()
    open_text = smollm2.encode('"', add_special=False)
    assert not ids(walk, open_text) & smollm2.special_ids


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.json_schema({"type": "array", "items": {"type": "number"}, "minItems": 10, "maxItems": 1000}),
        Grammar.json_schema(
            {"type": "object", "properties": {"a": {"properties": {"b": {"type": "string", "maxLength": 65536}}}}}
        ),
        Grammar.json_schema({"type": "object", "properties": {}}),
        Grammar.json_schema({"type": "object", "properties": {"next": {"$ref": "#"}}}),
        Grammar.regex("(a+)+$"),
        Grammar.json_schema({"enum": [f"value {number}" for number in range(1000)]}),
    ],
)
def test_valid_ones_that_others_refuse(grammar: Grammar, compiler: GrammarCompiler) -> None:
    """Case G06, its valid half."""
    assert ids(compiler.compile(grammar).walk(), [])


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        (Grammar.json_schema('{"properties": {"a": ' * 10_000 + "{}" + "}}" * 10_000), "recursion limit"),
        (Grammar.json_schema('{"anyOf": [' * 10_000 + "{}" + "]}" * 10_000), "recursion limit"),
        (Grammar.json_schema('{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}'), "no text is a sentence"),
        (Grammar.json_schema({"$ref": "#/$defs/absent"}), "absent"),
        (Grammar.json_schema(False), "no text is a sentence"),
        (Grammar.json_schema("{"), "cannot be read"),
        (Grammar.json_schema({"type": "boolian"}), "boolian"),
        (Grammar.json_schema({"not": {"const": 1}}), "not"),
        (Grammar.json_schema({"enum": [str(number) for number in range(100_000)]}), "too big|too many"),
        (Grammar.json_schema({"type": "string", "pattern": "(" * 60_000 + ")" * 60_000}), "cannot be used"),
        (Grammar.regex("(" * 60_000 + ")" * 60_000), "cannot be used"),
        (Grammar.regex("("), "cannot be used"),
        (Grammar.regex("(a{1000}){1000}"), "too many"),
        (Grammar.lark("start: absent"), "absent"),
        (Grammar.lark("start: " + "(" * 50_000 + '"a"' + ")" * 50_000), "nested"),
        (Grammar.lark("root ::= " + "(" * 20_000), "cannot be read"),
        (Grammar.lark("x" * (MAX_GBNF + 1)), f"{MAX_GBNF} characters"),
    ],
)
def test_hostile_and_broken_ones_are_refused(grammar: Grammar, told: str, compiler: GrammarCompiler) -> None:
    """Case G06: within limits, in one short line."""
    with pytest.raises(InvalidRequest, match=told) as refused:
        compiler.compile(grammar)
    assert refused.value.param == "grammar"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_sources_that_are_none() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for make in (
        lambda: Grammar.regex(""),
        lambda: Grammar.regex("x" * (MAX_SOURCE + 1)),
        lambda: Grammar.choice([]),
        lambda: Grammar.choice("yes"),
        lambda: Grammar.choice(["yes", ""]),
        lambda: Grammar.json_schema({"x": deep}),
        lambda: Grammar.json_schema({"maximum": float("nan")}),
        lambda: Grammar("xml", "x"),  # type: ignore[arg-type]
        lambda: Grammar.lark(5),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidRequest):
            make()


def test_a_model_without_an_end_has_no_grammars(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="end token"):
        GrammarCompiler(smollm2, smollm2.size, ()).compile(Grammar.json_object())

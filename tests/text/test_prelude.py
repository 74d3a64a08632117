"""Free text before what a grammar holds: any tokenisation of its end, and nothing smuggled past it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.grammar import Grammar
from octavo.text.token_grammar import GrammarCompiler
from octavo.text.tokenizer import Tokenizer

END = "</think>"
GRAMMAR = Grammar.choice(["yes", "no"])


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(smollm2, smollm2.size, smollm2.eos_ids)


@pytest.mark.parametrize(
    "thought", ["</think>", "So.</think>", "<</think>\n\n", "a </think </thin </think>", " é</think> "]
)
def test_the_grammar_begins_after_the_end(smollm2: Tokenizer, compiler: GrammarCompiler, thought: str) -> None:
    """However that is written; a walk may be asked at every token or at the last alone."""
    start = compiler.compile(GRAMMAR).walk().mask([], 0).copy()
    compiled = compiler.compile(GRAMMAR.following(END))
    for output in (smollm2.encode(thought), [token for letter in thought for token in smollm2.encode(letter)]):
        walk, said, done = compiled.walk(), b"", [5]
        for token in output:
            free = walk.mask(done, 1) == 0
            assert free[token]
            assert not free[sorted(smollm2.eos_ids)].any()
            said, done = said + smollm2.token_bytes(token), [*done, token]
            if END.encode() in said:
                break
        assert np.array_equal(compiled.walk().mask(done, 1), start)
        assert np.array_equal(walk.mask(done, 1), start)


def test_what_may_follow_in_the_middle(smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    """Everything but the ends, and tokens that write the end and more than white space after it."""
    vocabulary = [smollm2.token_bytes(token) for token in range(smollm2.size)]
    for thought in ("", "So", "x</think", "</"):
        output = smollm2.encode(thought)
        walk = compiler.compile(GRAMMAR.following(END)).walk()
        allowed = walk.mask(output, 0) == 0
        expected = np.ones(smollm2.size, np.bool_)
        for token, spelled in enumerate(vocabulary):
            _, end, more = (thought.encode() + spelled).partition(END.encode())
            expected[token] = token not in smollm2.eos_ids and not (end and more.strip())
        assert np.array_equal(allowed, expected)
        draw = [*random.Random(1).sample(range(smollm2.size), 300), *np.flatnonzero(~expected)]
        assert [walk.allows(output, 0, token) for token in draw] == [bool(expected[token]) for token in draw]
    smuggled = [spelled for spelled in vocabulary if spelled.startswith(b">") and spelled[1:].strip()]
    assert smuggled  # or the third thought shows nothing


def test_the_end_is_part_of_what_a_grammar_is(smollm2: Tokenizer, compiler: GrammarCompiler) -> None:
    assert GRAMMAR.following(END) != GRAMMAR
    assert GRAMMAR.following(END) == Grammar.choice(["yes", "no"]).following(END)
    walks = [compiler.compile(GRAMMAR.following(end)).walk() for end in (END, "[/THINK]", END)]
    output = smollm2.encode(END)
    sizes = [int((walk.mask(output, 0) == 0).sum()) for walk in walks]
    assert sizes[0] == sizes[2] < 100 < sizes[1]

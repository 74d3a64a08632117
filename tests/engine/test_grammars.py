"""Answers under a grammar, on a random model that would say anything: they are sentences of it, in any company."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from toy import make_random

from octavo import LLM, Grammar, SamplingParams
from octavo.engine.outputs import RequestOutput
from octavo.errors import InvalidRequest

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 999}, "word": {"type": "string", "maxLength": 5}},
    "required": ["id", "word"],
    "additionalProperties": False,
}
PERSON = Grammar.json_schema(SCHEMA)
PARAMS = [
    SamplingParams(max_tokens=48, grammar=PERSON),
    SamplingParams(max_tokens=48, grammar=PERSON, temperature=1.0, seed=3, n=2, logprobs=1),
    SamplingParams(max_tokens=12, temperature=1.0, seed=4, ignore_eos=True),
    SamplingParams(max_tokens=48, grammar=Grammar.regex("(ab|ba){3,6}"), temperature=1.0, seed=5),
    SamplingParams(max_tokens=48, grammar=Grammar.choice(["yes", "no"]), min_tokens=30, ignore_eos=True),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"))


def prompts(llm: LLM) -> list[list[int]]:
    """No two begin alike: those would share blocks, and the small pool would do for all."""
    return [llm.tokenizer.encode(f"{count} what comes next"[: 4 * count] * 4) for count in range(1, len(PARAMS) + 1)]


def said(outputs: list[RequestOutput]) -> list[object]:
    return [(choice.tokens, choice.logprobs, choice.finish_reason) for each in outputs for choice in each.choices]


def test_answers_are_sentences_and_end_where_these_do(folder: Path) -> None:
    """Case H12 as well: min_tokens 30 and ignore_eos do not make "yes" go on."""
    with LLM(folder, num_blocks=128) as llm:
        one, two, free, regex, choice = llm.generate(prompts(llm), PARAMS, progress=False)
    for each in (*one.choices, *two.choices):
        value = json.loads(each.text)
        assert set(value) == {"id", "word"}
        assert 1 <= value["id"] <= 999
        assert len(value["word"]) <= 5
        assert each.finish_reason == "stop"
    assert re.fullmatch("(ab|ba){3,6}", regex.text)
    assert choice.text in ("yes", "no")
    assert choice.choices[0].finish_reason == "stop"
    assert len(free.choices[0].tokens) == 12


def test_they_are_the_same_alone_and_preempted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar's place follows from the tokens: leaving the pool loses nothing of it."""
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    with LLM(folder, num_blocks=128) as llm:
        together = llm.generate(prompts(llm), PARAMS, progress=False)
        alone = [
            llm.generate([prompt], params, progress=False)[0]
            for prompt, params in zip(prompts(llm), PARAMS, strict=True)
        ]
    with LLM(folder, block_size=4, num_blocks=31, max_batched_tokens=64) as llm:
        squeezed = llm.generate(prompts(llm), PARAMS, progress=False)
        assert llm.stats().preemptions > 0
    assert said(together) == said(alone) == said(squeezed)


def test_an_answer_that_is_cut_is_the_beginning_of_a_sentence(folder: Path) -> None:
    params = SamplingParams(max_tokens=5, grammar=Grammar.regex("[0-9]{40}"), temperature=1.0, seed=1)
    with LLM(folder, num_blocks=64) as llm:
        (output,) = llm.generate("x", params)
    assert output.choices[0].finish_reason == "length"
    assert re.fullmatch("[0-9]+", output.text)


def test_a_grammar_that_nothing_can_follow_fails_alone(folder: Path) -> None:
    """Case H13: "b" is all that the grammar lets follow, and it is a bad word."""
    stuck = SamplingParams(max_tokens=8, grammar=Grammar.regex("ab"), bad_words=("b",))
    with LLM(folder, num_blocks=64) as llm:
        failed, fine = llm.generate(["x", "x"], [stuck, SamplingParams(max_tokens=8, grammar=PERSON)])
    assert isinstance(failed.error, InvalidRequest)
    assert "mask all" in str(failed.error)
    assert fine.error is None


def test_a_grammar_that_becomes_too_complex_is_its_requests_fault(folder: Path) -> None:
    """Case G06: small at first, and larger with every token. A client that repeats what is told to be the server's
    fault would have it all over again."""
    growing = SamplingParams(max_tokens=200, grammar=Grammar.regex("(a|b){1,100000}{1,100000}"))
    with LLM(folder, num_blocks=64) as llm:
        failed, fine = llm.generate(["x", "x"], [growing, SamplingParams(max_tokens=8, grammar=PERSON)])
    assert isinstance(failed.error, InvalidRequest)
    assert "too complex" in str(failed.error)
    assert 0 < len(failed.choices[0].tokens) < 200
    assert fine.error is None


def test_a_broken_grammar_is_refused_before_anything_runs(folder: Path) -> None:
    with LLM(folder, num_blocks=64) as llm:
        with pytest.raises(InvalidRequest, match="cannot be used"):
            llm.generate("x", SamplingParams(grammar=Grammar.regex("(")))
        assert not llm.engine.has_work
    with pytest.raises(InvalidRequest, match=r"octavo\.Grammar"):
        SamplingParams(grammar="[a-z]")  # type: ignore[arg-type]

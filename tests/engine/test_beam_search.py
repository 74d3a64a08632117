"""Beam search against transformers' `generate(num_beams=...)`, and against itself in any company and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import make_random
from transformers import LlamaForCausalLM

from octavo import LLM, SamplingParams
from octavo.engine.outputs import Choice
from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.expander import BeamExpander, Expansion

NEW = 12
ENDS = list(range(40, 60))  # of 259 tokens: so many that answers end at every length
PROMPTS = [np.random.default_rng(index).integers(60, 250, 2 + (index * 5) % 23).tolist() for index in range(20)]
VARIANTS: dict[str, dict[str, Any]] = {
    "long": {"length_penalty": 2.0},
    "short": {"length_penalty": -1.0},
    "first": {"early_stopping": True},
    "never": {"early_stopping": "never"},
    "sum": {"early_stopping": "never", "length_penalty": 0.0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(folder, num_blocks=512, backend="numpy", prefix_cache=False) as llm:
        yield llm


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return LlamaForCausalLM.from_pretrained(folder).eval()


def search(width: int, **settings: Any) -> SamplingParams:
    return SamplingParams(
        **{"max_tokens": NEW, "stop_token_ids": ENDS, "ignore_eos": True, "n": width, "beam_width": width} | settings
    )


def reference(model: Any, prompt: Sequence[int], width: int, **settings: Any) -> list[tuple[list[int], float]]:
    """Tokens and score of each answer, by transformers."""
    with torch.inference_mode():
        made = model.generate(
            torch.tensor([prompt]),
            num_beams=width,
            num_return_sequences=width,
            do_sample=False,
            max_new_tokens=NEW,
            eos_token_id=ENDS,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **settings,
        )
    answers = [sequence[len(prompt) :].tolist() for sequence in made.sequences]
    lengths = [next((at for at, token in enumerate(answer, 1) if token in ENDS), NEW) for answer in answers]
    return [
        (answer[:length], float(score))
        for answer, length, score in zip(answers, lengths, made.sequences_scores, strict=True)
    ]


def check(choices: Sequence[Choice], expected: list[tuple[list[int], float]], length_penalty: float = 1.0) -> None:
    assert [list(choice.tokens) for choice in choices] == [tokens for tokens, _ in expected]
    for choice, (tokens, score) in zip(choices, expected, strict=True):
        assert choice.cumulative_logprob is not None
        assert choice.cumulative_logprob / len(tokens) ** length_penalty == pytest.approx(score, abs=1e-4)
        assert choice.finish_reason == ("stop" if tokens[-1] in ENDS else "length")


@pytest.mark.parametrize("width", [2, 4, 8])
def test_all_answers_are_those_of_transformers(llm: LLM, theirs: Any, width: int) -> None:
    """Case B04: 20 prompts at once, every answer that is kept, in order, with its score."""
    outputs = llm.generate(PROMPTS, search(width), progress=False)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        check(output.choices, reference(theirs, prompt, width))
    lengths = {len(choice.tokens) for output in outputs for choice in output.choices}
    assert len(lengths) > 4, "too few answers end early to test how they are kept"
    assert llm.stats().blocks_used == 0


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=list(VARIANTS))
def test_length_penalties_and_stopping_rules(llm: LLM, theirs: Any, settings: dict[str, Any]) -> None:
    outputs = llm.generate(PROMPTS[:6], search(4, **settings), progress=False)
    for prompt, output in zip(PROMPTS, outputs, strict=False):
        check(output.choices, reference(theirs, prompt, 4, **settings), settings.get("length_penalty", 1.0))


LONG = [(index * 37) % 200 for index in range(45)]
COMPANY = SamplingParams(max_tokens=60, temperature=1.0, seed=4, ignore_eos=True)


@pytest.mark.parametrize(
    "pool",
    [
        {"num_blocks": 300, "block_size": 1, "max_batched_tokens": 64},
        {"num_blocks": 64, "block_size": 16, "max_batched_tokens": 9, "max_seqs": 6},
        {"num_blocks": 64, "block_size": 8, "host_kv_memory": "1MiB"},
        {"num_blocks": 43, "block_size": 4, "max_batched_tokens": 32, "max_seqs": 7},
        {"num_blocks": 43, "block_size": 4, "max_batched_tokens": 32, "max_seqs": 7, "prefix_cache": False},
    ],
    ids=["one-token-blocks", "chunked", "tier", "tiny", "tiny-uncached"],
)
def test_bits_are_the_same_in_company_and_in_any_pool(
    folder: Path, pool: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elders beside it grow and preempt its beams; afterwards it runs again from a warm cache."""
    params = search(4, max_tokens=24, logprobs=2)
    with LLM(folder, num_blocks=256, prefix_cache=False) as llm:
        alone = llm.generate(LONG, params)[0].choices
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    with LLM(folder, **pool) as llm:
        crowd = llm.generate([LONG[:20], LONG[5:30], LONG[9:30], LONG], [*[COMPANY] * 3, params], progress=False)
        assert crowd[3].choices == alone
        again = llm.generate(LONG, params)[0]
        assert again.choices == alone
        assert (again.metrics.cached_tokens > 0) == pool.get("prefix_cache", True)
        if pool["num_blocks"] == 43:
            assert crowd[3].metrics.preemptions > 0
        assert llm.stats().blocks_used == 0


def test_log_probabilities_of_each_token_and_of_the_prompt(llm: LLM) -> None:
    output = llm.generate(LONG, search(3, n=2, logprobs=2, prompt_logprobs=1))[0]
    assert len(output.choices) == 2
    for choice in output.choices:
        assert choice.logprobs is not None
        assert [each.token for each in choice.logprobs] == list(choice.tokens)
        assert sum(each.logprob for each in choice.logprobs) == choice.cumulative_logprob
        assert all(len(each.top) == 2 for each in choice.logprobs)
        # The same tokens as a prompt are found as likely, up to the order of sums in other rows.
        tokens = [*LONG, *choice.tokens]
        scored = llm.generate(tokens, SamplingParams(max_tokens=1, prompt_logprobs=0))[0].prompt_logprobs
        assert scored is not None
        assert [each.logprob for each in scored[len(LONG) :] if each] == [each.logprob for each in choice.logprobs]
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == len(LONG)


def test_a_stop_string_finishes_a_beam_and_min_tokens_keep_it_going(llm: LLM) -> None:
    plain = llm.generate(LONG, search(2, stop_token_ids=[]))[0]
    letter = plain.choices[0].text[4]
    stopped = llm.generate(LONG, search(2, stop_token_ids=[], stop=[letter], early_stopping=True))[0]
    assert any(choice.stop_reason == letter for choice in stopped.choices)
    for choice in stopped.choices:
        assert letter not in choice.text
        assert (choice.finish_reason == "stop") == (choice.stop_reason == letter)
    kept = llm.generate(LONG, search(4, min_tokens=9))[0]
    assert all(not set(choice.tokens[:9]) & set(ENDS) for choice in kept.choices)


def test_nothing_is_shown_before_the_search_is_done(llm: LLM) -> None:
    deltas = list(llm.stream(LONG, search(4, n=3)))
    assert [delta.index for delta in deltas] == [0, 1, 2]
    assert [delta.output is None for delta in deltas] == [True, True, False]
    output = deltas[-1].output
    assert output is not None
    for delta, choice in zip(deltas, output.choices, strict=True):
        shown = (delta.text, delta.token_ids, delta.finish_reason, delta.stop_reason)
        assert shown == (choice.text, choice.tokens, choice.finish_reason, choice.stop_reason)
    assert output.metrics.output_tokens == sum(len(choice.tokens) for choice in output.choices)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_an_abort_gives_back_every_block_and_the_best_so_far(llm: LLM, steps: int) -> None:
    request = llm.engine.add(LONG, search(4, n=2, stop_token_ids=[]), seed=0)
    for _ in range(steps):
        assert llm.engine.step() == []
    assert llm.engine.abort(request)
    assert llm.stats().blocks_used == 0
    deltas = llm.engine.step() if llm.engine.has_work else []
    assert deltas[-1].output is not None
    assert all(choice.finish_reason == "abort" for choice in deltas[-1].output.choices)
    assert {len(choice.tokens) for choice in deltas[-1].output.choices} == {steps}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": 0.7}, "temperature"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"logit_bias": {3: 1.0}}, "logit_bias"),
        ({"n": 5}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"length_penalty": 11}, "length_penalty"),
        ({"beam_width": 1, "n": 1, "length_penalty": 2.0}, "length_penalty"),
        ({"beam_width": 1, "n": 1, "early_stopping": True}, "early_stopping"),
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": True}, "beam_width"),
    ],
)
def test_what_does_not_go_with_beams_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        SamplingParams(**{"beam_width": 4} | settings)
    assert refused.value.param == named


def test_a_fault_in_one_beam_ends_the_whole_search(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expand = BeamExpander.expand

    def fail(self: BeamExpander, raw: Any, tokens: list[int], prompt_len: int, rows: Any) -> Expansion:
        if len(tokens) == len(LONG) + 2 and fail.calls.pop():
            raise RequestFailed("the logits are damaged")
        return expand(self, raw, tokens, prompt_len, rows)

    fail.calls = [False, True, True, False]  # type: ignore[attr-defined]  # two of the four beams
    monkeypatch.setattr(BeamExpander, "expand", fail)
    output = llm.generate(LONG, search(4, n=2, stop_token_ids=[]))[0]
    assert [choice.finish_reason for choice in output.choices] == ["error", "error"]
    assert [len(choice.tokens) for choice in output.choices] == [2, 2]
    assert str(output.error) == "the logits are damaged"
    assert llm.stats().blocks_used == 0

"""Beams of SmolLM2 against transformers' `generate(num_beams=...)` in float32 on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import reference
import torch

from octavo import LLM, SamplingParams

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a",
    "Water boils at",
    "def fibonacci(n):\n",
    "The best way to learn a language",
)
WIDTH, NEW = 4, 24


@pytest.mark.slow
def test_all_answers_of_a_real_model_are_those_of_transformers(smollm2_path: Path) -> None:
    """Case B04: every answer that is kept, in order, with its score; a full stop ends one, so that lengths differ."""
    theirs = reference.smollm2(smollm2_path)
    with LLM(smollm2_path, backend="numpy", num_blocks=256, max_model_len=256) as llm:
        ends = llm.tokenizer.encode(".", add_special=False)
        params = SamplingParams(max_tokens=NEW, beam_width=WIDTH, n=WIDTH, stop_token_ids=tuple(ends), ignore_eos=True)
        outputs = llm.generate(list(PROMPTS), params, progress=False)
    lengths = set()
    for output in outputs:
        prompt = len(output.prompt_tokens)
        with torch.inference_mode():
            made = theirs.generate(
                torch.tensor([output.prompt_tokens]),
                num_beams=WIDTH,
                num_return_sequences=WIDTH,
                do_sample=False,
                max_new_tokens=NEW,
                eos_token_id=ends,
                pad_token_id=1,
                return_dict_in_generate=True,
                output_scores=True,
            )
        for choice, sequence, score in zip(output.choices, made.sequences, made.sequences_scores, strict=True):
            length = len(choice.tokens)
            lengths.add(length)
            assert list(choice.tokens) == sequence[prompt : prompt + length].tolist()
            assert set(sequence[prompt + length :].tolist()) <= {1}, "theirs is longer"
            assert choice.cumulative_logprob is not None
            assert choice.cumulative_logprob / length == pytest.approx(float(score), abs=2e-3)
    assert len(lengths) > 2, "too few answers end early to test how they are kept"

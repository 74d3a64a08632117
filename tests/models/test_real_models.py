"""SmolLM2 and Gemma 3 against transformers in float32: logits on text, greedy tokens, and what a window lets go of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from harness import Runner, relative_difference
from transformers import AutoModelForCausalLM

from octavo.text.tokenizer import Tokenizer

DATA = Path(__file__).parent.parent / "data"
TEXTS = sorted((DATA / "texts").glob("*.txt"))
PROMPTS = (DATA / "prompts.txt").read_text("utf-8").splitlines()
LIMIT = 1e-3
TIE = 0.02  # nats: closer than this, two implementations may differ about the best token


@dataclass(frozen=True)
class Pair:
    """The same model twice."""

    runner: Runner
    theirs: Any
    encode: Callable[[str], list[int]]


def pair(path: Path, build: Callable[[Path], Any]) -> Pair:
    runner = Runner(path, capacity=1024, sequences=len(PROMPTS))
    assert not isinstance(runner.files.tokenizer, Path)
    return Pair(runner, build(path), Tokenizer.from_gguf(runner.files.tokenizer).encode)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Pair:
    return pair(smollm2_path, reference.smollm2)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Pair:
    return pair(gemma3_path, reference.gemma3)


def check_greedy(models: Pair, prompts: Sequence[list[int]], count: int) -> None:
    """Our greedy tokens are the reference's: with our tokens as its input, each is its best one at every position."""
    for prompt, tokens in zip(prompts, models.runner.greedy(prompts, count), strict=True):
        logits = reference.forward(models.theirs, prompt + tokens, keep=count + 1)[:-1]
        chosen = logits[np.arange(count), tokens]
        behind = logits.max(axis=1) - chosen
        differing = np.flatnonzero(behind > 0)
        assert behind.max() < TIE, f"position {differing[0]}: {behind[differing[0]]} nats below the reference's best"
        assert len(differing) == 0, f"{len(differing)} ties were broken in another way, at positions {differing}"


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_smollm2_logits(smollm2: Pair, text: Path) -> None:
    tokens = smollm2.encode(text.read_text("utf-8"))[:128]
    ours = smollm2.runner.logits(tokens, chunks=(50, 1, 30))
    assert relative_difference(ours, reference.forward(smollm2.theirs, tokens)) < LIMIT


def test_smollm2_last_states(smollm2: Pair) -> None:
    """What its embeddings are made of: the last token's state and the mean."""
    tokens = smollm2.encode(TEXTS[0].read_text("utf-8"))[:64]
    smollm2.runner.restart()
    smollm2.runner.step([tokens], last_only=True)
    with torch.inference_mode():
        theirs = smollm2.theirs.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].numpy()
    assert relative_difference(smollm2.runner.hidden, theirs) < LIMIT


def test_smollm2_greedy_tokens(smollm2: Pair) -> None:
    """20 prompts x 64 tokens, all prompts in one batch."""
    check_greedy(smollm2, [smollm2.encode(prompt) for prompt in PROMPTS], 64)


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_gemma3_logits(gemma3: Pair, text: Path) -> None:
    tokens = gemma3.encode(text.read_text("utf-8"))[:64]
    ours = gemma3.runner.logits(tokens, chunks=(20, 1))
    assert relative_difference(ours, reference.forward(gemma3.theirs, tokens)) < LIMIT


def long_prompt(models: Pair) -> list[int]:
    """More tokens than the window of 512 has."""
    tokens = models.encode("\n".join([*(text.read_text("utf-8") for text in TEXTS), *PROMPTS]))
    assert len(tokens) >= 700
    return tokens[:700]


def test_gemma3_greedy_tokens(gemma3: Pair) -> None:
    """2 prompts, and one of 700 tokens, which is past the window; 16 tokens each, as all of it takes a minute."""
    check_greedy(gemma3, [long_prompt(gemma3), *(gemma3.encode(prompt) for prompt in PROMPTS[:2])], 16)


def test_gemma3_gives_back_what_no_windowed_layer_needs(gemma3: Pair) -> None:
    """Blocks behind the window leave the windowed groups' tables (the harness poisons them), and only theirs."""
    prompt = long_prompt(gemma3)
    gemma3.runner.restart()
    logits = gemma3.runner.step([prompt], last_only=True)[0][0]
    for token in (int(logits.argmax()), 5, 7):
        logits = gemma3.runner.step([[token]])[0][0]
    held = (gemma3.runner.table[:, 0] >= 0).sum(axis=1)
    dead = (len(prompt) + 3 - 512) // 16
    assert gemma3.runner.files.spec.groups == (None, *[512] * 5)
    assert held.tolist() == [64, *[64 - dead] * 5]
    assert np.isfinite(logits).all()


@pytest.mark.slow
def test_gemma3_greedy_tokens_of_all_prompts(gemma3: Pair) -> None:
    """20 prompts x 64 tokens, the longest past the window."""
    check_greedy(gemma3, [long_prompt(gemma3), *(gemma3.encode(prompt) for prompt in PROMPTS[1:])], 64)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_the_reference_is_what_transformers_reads_from_the_file(name: str, request: pytest.FixtureRequest) -> None:
    """The reference models are built by hand, because transformers' own reader takes minutes: here it is used."""
    models, path = request.getfixturevalue(name), request.getfixturevalue(f"{name}_path")
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    tokens = models.encode(TEXTS[0].read_text("utf-8"))[:64]
    expected = reference.forward(theirs, tokens)
    assert relative_difference(reference.forward(models.theirs, tokens), expected) < 1e-5
    assert relative_difference(models.runner.logits(tokens), expected) < LIMIT

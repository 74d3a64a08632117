"""Flags come from the dataclasses: none is missing, and each arrives as the value that was typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.flags import NOT_TYPED, SAMPLING_FLAGS, SAMPLING_SWITCHES
from octavo.config import EngineConfig
from octavo.grammar import Grammar
from octavo.params import SamplingParams

Run = Callable[..., int]


def test_every_sampling_setting_has_a_flag() -> None:
    assert set(SAMPLING_FLAGS) | set(SAMPLING_SWITCHES) | NOT_TYPED == {
        setting.name for setting in fields(SamplingParams)
    }


def test_every_engine_setting_is_in_the_help(octavo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        octavo("generate", "--help")
    said = capsys.readouterr().out
    for setting in fields(EngineConfig):
        flag = setting.name.replace("_", "-")
        assert f"--{flag}" in said or f"--no-{flag}" in said


def test_engine_flags_reach_the_engine(octavo: Run, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--block-size 8 --kv-memory 1GiB --max-seqs 4 --threads 2 --no-prefix-cache".split()
    assert octavo("generate", "m", "hi", *flags) == 0
    assert fake.model == "m"
    assert fake.settings == {
        "block_size": 8,
        "kv_memory": "1GiB",
        "max_seqs": 4,
        "threads": 2,
        "prefix_cache": False,
    }
    assert octavo("generate", "m", "hi") == 0
    assert fake.settings == {}


def test_a_flag_goes_over_the_environment(octavo: Run, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_BLOCK_SIZE", "32")
    monkeypatch.setenv("OCTAVO_MAX_SEQS", "3")
    monkeypatch.setenv("OCTAVO_PREFIX_CACHE", "0")
    monkeypatch.setenv("OCTAVO_SEED", "11")
    assert octavo("generate", "m", "hi", "--max-seqs", "5", "--prefix-cache") == 0
    assert fake.settings == {"block_size": 32, "max_seqs": 5, "prefix_cache": True, "seed": 11}


def test_a_wrong_environment_names_the_variable(
    octavo: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_THREADS", "lots")
    assert octavo("generate", "m", "hi") == 2
    assert "OCTAVO_THREADS" in capsys.readouterr().err


def test_beam_flags_arrive_as_typed(octavo: Run, fake: Any) -> None:
    for text, value in (("true", True), ("false", False), ("never", "never")):
        argv = f"--beam-width 4 --n 2 --length-penalty 0.5 --early-stopping {text}".split()
        assert octavo("generate", "m", "hi", *argv) == 0
        _, params = fake.asked.pop()
        assert params == SamplingParams(beam_width=4, n=2, length_penalty=0.5, early_stopping=value)
    assert octavo("generate", "m", "hi", "--beam-width", "4", "--early-stopping", "maybe") == 2


def test_best_of_arrives_as_typed(octavo: Run, fake: Any) -> None:
    assert octavo("generate", "m", "hi", "--best-of", "5", "--n", "2") == 0
    assert fake.asked.pop()[1] == SamplingParams(best_of=5, n=2)
    assert octavo("generate", "m", "hi", "--best-of", "1", "--n", "2") == 2


def test_sampling_flags_arrive_as_typed(octavo: Run, fake: Any) -> None:
    argv = """--max-tokens all --min-tokens 2 --temperature 0.5 --top-k 40 --top-p 0.9 --min-p 0.1
    --repetition-penalty 1.1 --presence-penalty 0.5 --frequency-penalty -0.5 --logit-bias 5=-100 --logit-bias 6=1.5
    --bad-words bad --stop END --stop STOP --stop-token-ids 7 --stop-token-ids 8 --include-stop --ignore-eos
    --seed 3 --logprobs 0 --prompt-logprobs 2 --no-skip-special-tokens --grammar regex:[a-z]+""".split()
    assert octavo("generate", "m", "hi", *argv) == 0
    ((prompt, params),) = fake.asked
    assert prompt == "hi"
    assert params == SamplingParams(
        max_tokens=None,
        min_tokens=2,
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={5: -100.0, 6: 1.5},
        bad_words=("bad",),
        stop=("END", "STOP"),
        stop_token_ids=(7, 8),
        include_stop=True,
        ignore_eos=True,
        seed=3,
        logprobs=0,
        prompt_logprobs=2,
        skip_special_tokens=False,
        grammar=Grammar.regex("[a-z]+"),
    )


def test_grammars_as_they_are_typed(octavo: Run, fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, lark = tmp_path / "schema.json", tmp_path / "words.lark"
    schema.write_text('{"type": "boolean"}')
    lark.write_text('start: "a"')
    for text in ("json", f"schema:{schema}", f"lark:{lark}"):
        assert octavo("generate", "m", "hi", "--grammar", text) == 0
    kinds = [params.grammar for _, params in fake.asked]
    assert kinds == [Grammar.json_object(), Grammar.json_schema({"type": "boolean"}), Grammar.lark('start: "a"')]
    for text, told in (("xml", "grammar must be json"), (f"schema:{tmp_path / 'absent'}", "cannot be read")):
        assert octavo("generate", "m", "hi", "--grammar", text) == 2
        assert told in capsys.readouterr().err


def test_a_line_of_a_file_may_have_a_grammar(octavo: Run, fake: Any, tmp_path: Path) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "a", "grammar": {"type": "boolean"}}\n{"prompt": "b", "grammar": "regex:x+"}\n')
    assert octavo("generate", "m", "--file", str(lines)) == 0
    assert [params.grammar for _, params in fake.asked] == [
        Grammar.json_schema({"type": "boolean"}),
        Grammar.regex("x+"),
    ]

"""The command line on the real engine and model: what a user sees first."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from octavo.cli.main import main

Captured = pytest.CaptureFixture[str]
SMALL = ("--num-blocks", "64", "--max-seqs", "4")


@pytest.mark.usefixtures("smollm2_path")
def test_a_prompt_is_answered_with_a_bill(capsys: Captured) -> None:
    assert main(["generate", "smollm2-135m", "The capital of France is", "--max-tokens", "3", *SMALL]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(" Paris.")
    assert re.fullmatch(
        r"3 tokens in [\d.]+ s, first after [\d.]+ s: [\d.]+ tokens/s; 1 blocks used of 64, "
        r"0 of 5 prompt tokens cached, \d+ MiB resident\n",
        captured.err,
    )


def test_json_lines_from_a_file_of_prompts(smollm2_path: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "The capital of France is"}\n{"prompt": [504, 2988, 314], "max_tokens": 1}\n')
    assert main(["generate", str(smollm2_path), "--file", str(file), "--json", "--max-tokens", "2", *SMALL]) == 0
    captured = capsys.readouterr()
    first, second = (json.loads(line) for line in captured.out.splitlines())
    assert first["text"] == " Paris."
    assert len(second["tokens"]) == 1
    assert first["metrics"]["output_tokens"] == 2
    assert captured.err.count("\n") == 1  # no bar where there is no terminal


@pytest.mark.usefixtures("smollm2_path")
def test_a_second_turn_finds_the_first_in_the_cache(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("What is two and two?\nAnd three?\n/stats\n"))
    assert main(["chat", "smollm2-135m", "--max-tokens", "4", *SMALL]) == 0
    told = re.search(r"(\d+) of (\d+) prompt tokens cached", capsys.readouterr().err)
    assert told is not None
    cached, prompt = int(told[1]), int(told[2])
    assert 0 < cached == (cached // 16) * 16 < prompt


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["generate", "smollm2-135m", ""], "the prompt is empty"),
        (["generate", "smollm2-135m", "hi", "--max-tokens", "9000"], "9001, more than the context of 8192"),
        (["generate", "smollm2-135m", "hi", "--num-blocks", "1"], "the whole pool has 1"),
        (["generate", "smollm2-135m", "hi", "--stop-token-ids", "99999"], "99999 is no token id"),
        (["generate", "smollm2-135m", "hi", "--kv-memory", "900TiB"], "the plan needs"),
    ],
)
@pytest.mark.usefixtures("smollm2_path")
def test_what_cannot_be_served_is_one_line_and_exit_2(argv: list[str], said: str, capsys: Captured) -> None:
    limits = () if "--num-blocks" in argv or "--kv-memory" in argv else SMALL
    assert main([*argv, *limits]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("octavo: error: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.parametrize("content", [b"", b"GG", b"GGUF\x03\0\0\0", b"not a model at all", b"GGUF" + b"\xff" * 64])
def test_a_corrupt_file_is_one_line_and_exit_2(content: bytes, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "broken.gguf").write_bytes(content)
    assert main(["generate", str(tmp_path / "broken.gguf"), "hi"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("octavo: error: broken.gguf")
    assert error.count("\n") == 1

"""`octavo generate`: prompts from everywhere, text and JSON out, failures."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import InvalidRequest, RequestFailed

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_one_prompt_streams(octavo: Run, fake: Any, capsys: Captured) -> None:
    assert octavo("generate", "m", "hi") == 0
    captured = capsys.readouterr()
    assert captured.out == "one two three\n"
    assert captured.err.count("\n") == 1
    assert "3 tokens in" in captured.err
    assert "tokens/s; 1 blocks used of 64, 0 of 5 prompt tokens cached, 300 MiB resident" in captured.err
    assert fake.closed


def test_pieces_are_shown_as_they_come(octavo: Run, fake: Any, capsys: Captured) -> None:
    seen: list[str] = []
    fake.between = lambda place: seen.append(capsys.readouterr().out)
    assert octavo("generate", "m", "hi") == 0
    assert seen == ["", "one", " two"]


def test_several_prompts_come_out_in_order(octavo: Run, fake: Any, capsys: Captured) -> None:
    assert octavo("generate", "m", "a", "--max-tokens", "3", "b") == 0
    assert [prompt for prompt, _ in fake.asked] == ["a", "b"]
    captured = capsys.readouterr()
    assert captured.out == "[0] one two three\n[1] one two three\n"
    assert "6 tokens in" in captured.err


def test_several_answers(octavo: Run, capsys: Captured) -> None:
    assert octavo("generate", "m", "a", "--n", "2", "--temperature", "1", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.out == "[0.0] one two three\n[0.1] one two three\n"
    assert captured.err == ""


def test_json_lines(octavo: Run, capsys: Captured) -> None:
    assert octavo("generate", "m", "a", "b", "--json", "--quiet") == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["index"], second["index"]) == (0, 1)
    assert first["text"] == "one two three"
    assert first["tokens"] == [0, 1, 2]
    assert first["finish_reason"] == "length"
    assert first["metrics"]["prompt_tokens"] == 5


def test_standard_input_is_a_prompt(octavo: Run, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("größer\nals".encode()), encoding="ascii"))
    assert octavo("generate", "m", "-") == 0
    assert fake.asked[0][0] == "größer\nals"


def test_standard_input_that_is_no_text(octavo: Run, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    assert octavo("generate", "m", "-") == 2
    assert "standard input is not UTF-8 text (at byte 2)" in capsys.readouterr().err


def test_a_prompt_may_begin_with_a_dash(octavo: Run, fake: Any) -> None:
    assert octavo("generate", "m", "--", "-5 degrees") == 0
    assert fake.asked[0][0] == "-5 degrees"


def test_chat_goes_through_the_template(octavo: Run, fake: Any) -> None:
    assert octavo("generate", "m", "--chat", "--system", "be brief", "hi") == 0
    assert fake.conversations == [[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]]
    assert fake.asked[0][0] == [8, 2]


def test_a_file_of_prompts(octavo: Run, fake: Any, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "a\u2028b"}\n\n'
        '{"prompt": [1, 2], "max_tokens": 5, "stop": ["x"], "logit_bias": {"3": 1}}\r\n'
        '{"prompt": "c", "stop": "y", "temperature": 1}',
        encoding="utf-8",
    )
    assert octavo("generate", "m", "first", "--file", file, "--max-tokens", "9", "--json") == 0
    prompts = [prompt for prompt, _ in fake.asked]
    params = [params for _, params in fake.asked]
    assert prompts == ["first", "a\u2028b", [1, 2], "c"]
    assert [param.max_tokens for param in params] == [9, 9, 5, 9]
    assert params[2].stop == ("x",)
    assert params[2].logit_bias == {3: 1.0}
    assert params[3].stop == ("y",)
    assert params[3].temperature == 1.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", 'must be an object with "prompt"'),
        ('{"text": "a"}', 'must be an object with "prompt"'),
        ('{"prompt": 1}', '"prompt" must be a text or a list of token ids'),
        ('{"prompt": ["a"]}', '"prompt" must be a text or a list of token ids'),
        ('{"prompt": [true]}', '"prompt" must be a text or a list of token ids'),
        ('{"prompt": "a", "max_token": 1}', "there is no setting 'max_token'; did you mean 'max_tokens'?"),
        ('{"prompt": "a", "pooling": "mean"}', "there is no setting 'pooling'"),
        ('{"prompt": "a", "zzz": 1}', "there is no setting 'zzz'; the settings are max_tokens,"),
        ('{"prompt": "a", "temperature": NaN}', "temperature"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens"),
        ('{"prompt": "a", "logit_bias": {"x": 1}}', "the keys of logit_bias must be token ids"),
        ('{"prompt": "a", "stop": [""]}', "stop"),
        ('{"prompt": "a", "stop": {"a": 1}}', "stop"),
    ],
)
def test_a_wrong_line_is_named(octavo: Run, fake: Any, tmp_path: Path, capsys: Captured, line: str, said: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    assert octavo("generate", "m", "--file", file) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"octavo: error: {file}:2: ")
    assert said in error
    assert error.count("\n") == 1
    assert fake.model == ""  # nothing was loaded


def test_a_file_that_cannot_be_read(octavo: Run, tmp_path: Path, capsys: Captured) -> None:
    assert octavo("generate", "m", "--file", tmp_path / "none") == 2
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert octavo("generate", "m", "--file", tmp_path / "binary") == 2
    assert "is not UTF-8 text (at byte 0)" in capsys.readouterr().err


def test_token_ids_and_chat_do_not_mix(octavo: Run, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": [1]}')
    assert octavo("generate", "m", "--chat", "--file", file) == 2
    assert f"{file}:1: --chat needs prompts that are text" in capsys.readouterr().err


def test_a_refused_prompt_is_exit_2(octavo: Run, fake: Any, capsys: Captured) -> None:
    fake.refuses = InvalidRequest("the prompt is empty", param="prompt")
    assert octavo("generate", "m", "") == 2
    assert capsys.readouterr().err == "octavo: error: the prompt is empty\n"
    assert fake.closed


def test_a_request_that_failed_is_told_after_the_others(octavo: Run, fake: Any, capsys: Captured) -> None:
    fake.fails = RequestFailed("the logits are damaged")
    assert octavo("generate", "m", "a", "b", "--json") == 2
    captured = capsys.readouterr()
    assert [json.loads(line)["error"] for line in captured.out.splitlines()] == ["the logits are damaged"] * 2
    assert "octavo: error: prompt 1: the logits are damaged" in captured.err

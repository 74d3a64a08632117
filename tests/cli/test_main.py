"""The command itself: help, mistakes, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from octavo.cli.main import COMMANDS

Run = Callable[..., int]


def test_help_names_every_command(octavo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert octavo() == 0
    said = capsys.readouterr().out
    assert all(f"\n  {command} " in said for command in COMMANDS)
    assert octavo("--version") == 0
    assert capsys.readouterr().out.startswith("octavo 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(octavo: Run, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        octavo(command, "--help")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: octavo {command}")
    assert "unnamed" not in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nonsense"], "there is no command 'nonsense'; the commands are generate, chat, serve, pull, models"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["generate"], "the following arguments are required: MODEL"),
        (["generate", "m"], "there is no prompt"),
        (["generate", "m", "hi", "--max-tokens", "many"], "--max-tokens: invalid number of tokens value: 'many'"),
        (["generate", "m", "hi", "--temperature", "-1"], "temperature"),
        (["generate", "m", "hi", "--top-p", "nan"], "top_p"),
        (["generate", "m", "hi", "--logit-bias", "5"], "--logit-bias: invalid ID=BIAS value: '5'"),
        (["generate", "m", "hi", "--max-seqs", "0"], "max_seqs must be from 1 to 65536, not 0"),
        (["generate", "m", "hi", "--max-seqs", "two"], "max_seqs must be a whole number, not 'two'"),
        (["generate", "m", "hi", "--kv-memory", "2Q"], "kv_memory must be bytes"),
        (["generate", "m", "hi", "--backend", "abacus"], "backend must be one of"),
        (["generate", "m", "hi", "--system", "x"], "--system needs --chat"),
        (["generate", "m", "hi", "--max-tok", "4"], "unrecognized arguments: --max-tok"),
        (["chat", "m", "--n", "2"], "a chat has one answer"),
        (["pull", "smollm"], "did you mean smollm2-135m?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    octavo: Run, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert octavo(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("octavo: error: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_ctrl_c_is_130(octavo: Run, fake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(place: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "between", interrupt)
    assert octavo("generate", "m", "hi") == 130


def cli(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    program = "import sys; from octavo.cli.main import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", program, *argv], text=True, capture_output=True, **options)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_left_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    program = "import sys; from octavo.cli.main import main; sys.exit(main())"
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run([sys.executable, "-c", program, "models"], stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 141
    assert done.stderr == ""


def test_starts_quickly_and_alone() -> None:
    started = time.perf_counter()
    done = cli("--version")
    assert time.perf_counter() - started < 2  # a busy machine; about 0.06 s on an idle one
    assert done.returncode == 0
    program = (
        "import sys; from octavo.cli.main import main; main(['models']); "
        "print(*{'numpy', 'tokenizers', 'prompt_toolkit'} & set(sys.modules), file=sys.stderr)"
    )
    listed = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert listed.stderr.strip() == ""


def test_models_lists_the_aliases(octavo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert octavo("models") == 0
    assert "smollm2-135m" in capsys.readouterr().out
    assert octavo("models", "--json") == 0
    rows = {row["alias"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["gemma3-270m"]["bytes"] == 253_113_024
    assert rows["smollm2-135m"]["licence"] == "Apache-2.0"


@pytest.mark.usefixtures("smollm2_path")
def test_pull_tells_where_the_model_lies(octavo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert octavo("pull", "smollm2-135m") == 0
    assert "(98.4 MB)" in capsys.readouterr().out
    assert octavo("pull", "smollm2-135m", "--verify", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == 98_362_432
    assert told["verified"] is True

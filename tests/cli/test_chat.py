"""`octavo chat`: a conversation over a pipe and at a terminal, interruptions, commands."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from octavo.cli.interrupt import InterruptFlag
from octavo.cli.reader import Reader, line_reader, terminal_reader
from octavo.errors import InvalidRequest, RequestFailed

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def say(octavo: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a chat over these lines."""

    def run(text: str, *flags: str) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return octavo("chat", "m", *flags)

    return run


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


REPLY = {"role": "assistant", "content": "one two three"}


def test_a_conversation_is_remembered(say: Run, fake: Any, capsys: Captured) -> None:
    assert say("hello\n\nagain\n") == 0
    assert capsys.readouterr().out == "one two three\none two three\n"
    assert fake.conversations == [[user("hello")], [user("hello"), REPLY, user("again")]]
    assert fake.asked[0][1].max_tokens is None
    assert fake.closed


def test_reset_forgets_and_system_stays(say: Run, fake: Any) -> None:
    assert say("a\n/reset\nb\n/system speak French\nc\n/system\n/reset\nd\n", "--system", "be brief") == 0
    brief, french = ({"role": "system", "content": text} for text in ("be brief", "speak French"))
    assert fake.conversations == [
        [brief, user("a")],
        [brief, user("b")],
        [french, user("b"), REPLY, user("c")],
        [user("d")],
    ]


def test_commands_answer_on_standard_error(say: Run, fake: Any, capsys: Captured) -> None:
    assert say("/stats\na\n/stats\n/help\n/nothing\n") == 0
    captured = capsys.readouterr()
    assert captured.out == "one two three\n"
    assert "no finished answer yet; 64 blocks" in captured.err
    assert "3 tokens in 0.50 s" in captured.err
    assert "/reset " in captured.err
    assert "there is no command /nothing" in captured.err


def test_lines_join_at_a_backslash(say: Run, fake: Any) -> None:
    assert say("first\\\nsecond\nthird\\") == 0
    assert fake.conversations[0] == [user("first\nsecond")]
    assert fake.conversations[1][-1] == user("third")


def test_a_base_model_completes(say: Run, fake: Any, capsys: Captured) -> None:
    fake.has_chat_template = False
    assert say("Once upon\nAnd then\n") == 0
    assert [prompt for prompt, _ in fake.asked] == ["Once upon", "And then"]
    assert "no chat template" in capsys.readouterr().err


def test_raw_is_asked_for_without_a_note(say: Run, fake: Any, capsys: Captured) -> None:
    assert say("Once upon\n", "--raw") == 0
    assert fake.asked[0][0] == "Once upon"
    assert capsys.readouterr().err == ""


def test_a_refusal_costs_a_line_and_not_the_conversation(say: Run, fake: Any, capsys: Captured) -> None:
    fake.refuses = InvalidRequest("too long", param="prompt", code="context_length_exceeded")
    assert say("a\nb\n") == 0
    assert capsys.readouterr().err == "error: too long (/reset forgets the conversation)\n" * 2
    assert fake.conversations == [[user("a")], [user("b")]]


def test_a_failure_is_not_remembered(say: Run, fake: Any, capsys: Captured) -> None:
    fake.fails = RequestFailed("the logits are damaged")
    assert say("a\nb\n") == 0
    assert "error: the logits are damaged" in capsys.readouterr().err
    assert fake.conversations == [[user("a")], [user("b")]]


def test_ctrl_c_stops_the_answer_and_not_the_program(say: Run, fake: Any, capsys: Captured) -> None:
    fake.between = lambda place: os.kill(os.getpid(), signal.SIGINT) if place == 1 else None
    assert say("a\nb\n") == 0
    captured = capsys.readouterr()
    assert captured.out == "one two\none two\n"
    assert captured.err == "stopped\nstopped\n"
    assert fake.abandoned == 2
    assert fake.conversations[1] == [user("a"), {"role": "assistant", "content": "one two"}, user("b")]


def test_ctrl_c_twice_leaves(say: Run, fake: Any) -> None:
    def twice(place: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    fake.between = twice
    assert say("a\nb\n") == 130
    assert fake.abandoned == 1
    assert fake.closed


def test_the_handler_of_ctrl_c_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with InterruptFlag():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_may_chat() -> None:
    entered: list[bool] = []

    def run() -> None:
        with InterruptFlag() as flag:
            entered.append(flag.is_set)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert entered == [False]


def test_plain_lines() -> None:
    read = line_reader(io.StringIO("a\r\nb\\\n\\\nc\nlast\\"))
    assert [read() for _ in range(4)] == ["a", "b\n\nc", "last", None]


@pytest.fixture
def keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PipeInput, Reader]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with create_pipe_input() as pipe:
        yield pipe, terminal_reader(source=pipe, screen=DummyOutput())


def test_typing(keyboard: tuple[PipeInput, Reader], tmp_path: Path) -> None:
    pipe, read = keyboard
    pipe.send_text("hello\r")
    assert read() == "hello"
    pipe.send_text("one\x1b\rtwo\\\rthree\r")  # Alt-Enter, then a backslash
    assert read() == "one\ntwo\nthree"
    pipe.send_text("half\x03whole\r")  # Ctrl-C clears the line
    assert read() == "whole"
    pipe.send_text("\x04")  # Ctrl-D
    assert read() is None
    history = tmp_path / "octavo" / "chat_history"
    assert "hello" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_history_that_cannot_be_kept_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with create_pipe_input() as pipe:
        read = terminal_reader(source=pipe, screen=DummyOutput())
        pipe.send_text("hello\r")
        assert read() == "hello"

"""Where a conversation's messages come from: a terminal with history and several lines, or plain lines of a pipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output

Reader = Callable[[], str | None]  # the next message, None when there are no more


def line_reader(stream: TextIO) -> Reader:
    """Messages from lines of text; a line that ends with a backslash goes on in the next."""

    def read() -> str | None:
        lines: list[str] = []
        for line in stream:
            text = line.rstrip("\r\n")
            if not text.endswith("\\"):
                return "\n".join([*lines, text])
            lines.append(text[:-1])
        return "\n".join(lines) if lines else None

    return read


def terminal_reader(*, source: Input | None = None, screen: Output | None = None) -> Reader:
    """Messages typed at the terminal, with the history of earlier sessions. source, screen: stand in for it."""
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(
        message="> ",
        multiline=True,
        prompt_continuation=". ",
        reserve_space_for_menu=0,
        history=_history(),
        key_bindings=_keys(),
        input=source,
        output=screen,
    )

    def read() -> str | None:
        while True:
            try:
                return session.prompt()
            except KeyboardInterrupt:  # at the prompt it clears the line; Ctrl-D leaves
                continue
            except EOFError:
                return None

    return read


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history() -> History:
    from platformdirs import user_state_path
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder: Path = user_state_path("octavo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "chat_history"
        file.touch(mode=0o600)  # what one says to a model is private
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))

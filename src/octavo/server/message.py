"""An answer's text as the protocol's message, whole and as deltas: thinking, content, calls. Knows no engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from octavo.server.tools import ToolUse
from octavo.text.reasoning import ReasoningReader, Thinking
from octavo.text.tools import CallReader, Piece

Object = dict[str, Any]


class MessageReader:
    """One choice of a chat that may think, or call functions, or both. Calls are looked for after the thinking."""

    def __init__(self, use: ToolUse, thinking: Thinking | None) -> None:
        self._named = use.named
        self._calls = CallReader() if use.calling is not None else None
        self._reasoning = None if thinking is None else ReasoningReader(thinking)

    def deltas(self, text: str, *, last: bool) -> Iterator[Object]:
        """What the next text of the answer adds; `last` is its last, perhaps none."""
        if self._reasoning is None:
            yield from self._content(text)
        else:
            parts = [*self._reasoning.push(text), *(self._reasoning.finish() if last else ())]
            for part, piece in parts:
                if part == "content":
                    yield from self._content(piece)
                else:
                    yield {"reasoning_content": piece}
        if last and self._calls is not None:
            for call_piece in self._calls.finish():
                yield from _delta(call_piece)

    def reason(self, reason: str) -> str:
        """Why the answer ended: "tool_calls" where it stopped after calls that it was free to make."""
        called = self._calls is not None and self._calls.calls
        return "tool_calls" if reason == "stop" and called and not self._named else reason

    def _content(self, text: str) -> Iterator[Object]:
        if self._calls is not None:
            for piece in self._calls.push(text):
                yield from _delta(piece)
        elif text:
            yield {"content": text}


def whole_message(text: str, reader: MessageReader, reason: str) -> tuple[Object, str]:
    """The message of an answer, and why it ended. A call that was cut is there with what it has of its arguments."""
    content = reasoning = ""
    calls: list[Object] = []
    for delta in reader.deltas(text, last=True):
        content += delta.get("content", "")
        reasoning += delta.get("reasoning_content", "")
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                calls.append({"id": part["id"], "type": "function", "function": dict(part["function"])})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    message: Object = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message, reader.reason(reason)


def _delta(piece: Piece) -> Iterator[Object]:
    match piece.kind:
        case "text":
            yield {"content": piece.text}
        case "name":
            made = {"id": f"call_{secrets.token_hex(12)}", "type": "function"}
            yield {"tool_calls": [{"index": piece.call, **made, "function": {"name": piece.text, "arguments": ""}}]}
        case "arguments":
            yield {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}

"""An answer's calls as the protocol's objects, whole and as deltas. Knows no engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from octavo.server.tools import ToolUse
from octavo.text.tools import CallReader, Piece

Object = dict[str, Any]


class CallsOfChoice:
    """One choice of a chat that may call functions."""

    def __init__(self, use: ToolUse) -> None:
        self._named = use.named
        self._reader = CallReader()

    def deltas(self, text: str, *, last: bool) -> Iterator[Object]:
        """What the next text of the answer adds; `last` is its last, perhaps none."""
        for piece in self._reader.push(text):
            yield from _delta(piece)
        if last:
            for piece in self._reader.finish():
                yield from _delta(piece)

    def reason(self, reason: str) -> str:
        """Why the answer ended: "tool_calls" where it stopped after calls that it was free to make."""
        return "tool_calls" if reason == "stop" and self._reader.calls and not self._named else reason


def whole_message(text: str, use: ToolUse, reason: str) -> tuple[Object, str]:
    """The message of an answer, and why it ended. A call that was cut is there with what it has of its arguments."""
    choice = CallsOfChoice(use)
    content = ""
    calls: list[Object] = []
    for delta in choice.deltas(text, last=True):
        content += delta.get("content", "")
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                calls.append({"id": part["id"], "type": "function", "function": dict(part["function"])})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    message: Object = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    return message, choice.reason(reason)


def _delta(piece: Piece) -> Iterator[Object]:
    match piece.kind:
        case "text":
            yield {"content": piece.text}
        case "name":
            made = {"id": f"call_{secrets.token_hex(12)}", "type": "function"}
            yield {"tool_calls": [{"index": piece.call, **made, "function": {"name": piece.text, "arguments": ""}}]}
        case "arguments":
            yield {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}

"""Checks the messages of a chat and brings them into the one form that templates get. Knows no template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MAX_DEPTH = 32
_TEXTS = ("name", "tool_call_id", "reasoning_content", "refusal")


def checked_messages(messages: Sequence[Mapping[str, Any]], *, knows_developer: bool) -> list[dict[str, Any]]:
    """Copies of the messages, of plain values only. Text parts are joined with newlines.

    knows_developer: the template tells the role "developer" from "system", as which it counts otherwise. Raises
    InvalidRequest that names the message, counted from 0.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise _refusal(f"messages must be a list of messages, not {type(messages).__name__}")
    if not messages:
        raise _refusal("messages is empty; a chat needs at least one message")
    return [_checked(message, f"messages[{i}]", knows_developer) for i, message in enumerate(messages)]


def plain_data(value: Any, where: str, depth: int = _MAX_DEPTH) -> Any:
    """A copy of a value of dicts with text keys, lists, texts, numbers, booleans, None; InvalidRequest for others."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if depth == 0:
        raise _refusal(f"{where} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            raise _refusal(f"{where} has the key {odd!r}, which is no text")
        return {key: plain_data(each, where, depth - 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(each, where, depth - 1) for each in value]
    raise _refusal(f"{where} holds a {type(value).__name__}; only texts, numbers, booleans, lists and dicts can be")


def _checked(message: object, where: str, knows_developer: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _refusal(f"{where} must be a dict with role and content, not {type(message).__name__}")
    checked: dict[str, Any] = plain_data(message, where)
    role = checked.get("role")
    if role not in ROLES:
        raise _refusal(f"{where}.role is {_short(role)}; it must be one of {', '.join(ROLES)}")
    if role == "developer" and not knows_developer:
        checked["role"] = "system"
    for key in _TEXTS:
        if checked.get(key, "") is not None and not isinstance(checked.get(key, ""), str):
            raise _refusal(f"{where}.{key} must be a text")
    calls = checked.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise _refusal(f"{where}.tool_calls must be a list of dicts")
    checked["content"] = _content(checked.get("content"), where, may_miss=role == "assistant" and bool(calls))
    return checked


def _content(content: Any, where: str, *, may_miss: bool) -> str | None:
    if isinstance(content, str) or (content is None and may_miss):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    if content is None:
        raise _refusal(f"{where}.content is missing; only an assistant's tool calls may go without")
    raise _refusal(f"{where}.content must be a text or a list of text parts, not {type(content).__name__}")


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = _short(part.get("type")) if isinstance(part, dict) else type(part).__name__
    raise _refusal(f'{where} is of type {kind}; only parts {{"type": "text", "text": ...}} are supported')


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="messages", code="invalid_messages")

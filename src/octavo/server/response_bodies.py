"""Bodies of /v1/responses as those of the chats that ask for the same. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.server.bodies import CHAT, RESPONSE
from octavo.server.fields import Fields

# Names of a chat's fields, in complaints, as this endpoint calls them.
FIELD_NAMES = {"messages": "input", "response_format": "text", "max_completion_tokens": "max_output_tokens"}
# What is said in other words here; every other field means what it does in a chat.
_TRANSLATED = (
    *("tools", "messages", "max_tokens", "max_completion_tokens", "response_format"),
    *("n", "logprobs", "top_logprobs"),  # which are given only where they ask for nothing
)


def as_chat(fields: Fields) -> dict[str, Any]:
    """The body of the chat that asks for the same."""
    chat = {name: fields.get(name) for name in CHAT.fields if name not in _TRANSLATED and name in RESPONSE.fields}
    instructions, most, tools = (fields.get(name) for name in ("instructions", "max_output_tokens", "tools"))
    chat["messages"] = [] if instructions is None else [{"role": "system", "content": instructions}]
    chat["messages"] += _messages(fields.get("input"))
    chat["max_completion_tokens"] = most
    chat["tools"] = None if tools is None else [_nested(tool) for tool in tools]
    form = (fields.get("text") or {}).get("format")
    if form is not None and form["type"] == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    chat["response_format"] = form
    chat["reasoning_effort"] = (fields.get("reasoning") or {}).get("effort") or chat["reasoning_effort"]
    return chat


def repeated(fields: Fields) -> dict[str, Any]:
    """The fields that the answer repeats."""
    form = (fields.get("text") or {}).get("format") or {"type": "text"}
    known = {name: form[name] for name in ("type", "name", "description", "schema", "strict") if name in form}
    return {
        "instructions": fields.get("instructions"),
        "metadata": fields.get("metadata") or {},
        "text": {"format": known},
    }


def _messages(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    thought = ""  # before the assistant's next message
    for item in given:
        kind = item.get("type") or "message"
        if kind == "reasoning":
            thought += "".join(part["text"] for part in item.get("content") or ())
            continue
        message = _ITEMS[kind](item)
        if kind == "function_call" and messages and messages[-1].get("tool_calls"):
            messages[-1]["tool_calls"] += message["tool_calls"]
        else:
            if thought and message["role"] == "assistant":
                message["reasoning_content"] = thought
            messages.append(message)
        thought = ""
    return messages


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": item["role"], "content": _content(item["content"])}


def _content(given: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    return given if isinstance(given, str) else [{"type": "text", "text": part["text"]} for part in given]


def _made_call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": item["call_id"], "content": _content(item["output"])}


_ITEMS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "message": _message,
    "function_call": _made_call,
    "function_call_output": _result,
}


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """A function as chats have it."""
    if "function" in tool:
        return tool
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}

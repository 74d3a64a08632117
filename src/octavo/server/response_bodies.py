"""Bodies of /v1/responses as those of the chats that ask for the same. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.server.errors import invalid, shown
from octavo.server.fields import Fields

# Names of a chat's fields, in complaints, as this endpoint calls them.
FIELD_NAMES = {"messages": "input", "response_format": "text", "max_completion_tokens": "max_output_tokens"}
# What is said in other words here; every other field means what it does in a chat.
_TRANSLATED = ("input", "instructions", "max_output_tokens", "tools", "text")
_CHATS_OWN = ("messages", "max_tokens", "max_completion_tokens", "response_format")
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "truncation": ("disabled",),
    "n": (1,),
    "include": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
}
_TEXT_PARTS = ("input_text", "output_text", "text")


def as_chat(fields: Fields) -> dict[str, Any]:
    """The body of the chat that asks for the same. Raises InvalidRequest for what needs a server that stores."""
    fields.refuse(_UNSUPPORTED)
    chat = fields.others(*_TRANSLATED, *_CHATS_OWN, *_UNSUPPORTED)
    chat["messages"] = [*_instructions(fields), *_messages(fields.get("input"))]
    if (most := fields.get("max_output_tokens")) is not None:
        chat["max_completion_tokens"] = most
    if (tools := fields.get("tools")) is not None:
        chat["tools"] = [_nested(tool) for tool in tools] if isinstance(tools, list) else tools
    form = fields.mapping("text").get("format")
    if form is not None:
        chat["response_format"] = form
        if isinstance(form, dict) and form.get("type") == "json_schema":
            chat["response_format"] = {"type": "json_schema", "json_schema": form}
    return chat


def _instructions(fields: Fields) -> list[Any]:
    text = fields.text("instructions")
    return [] if text is None else [{"role": "system", "content": text}]


def _messages(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise invalid(f"input must be a text or a list of items, not {shown(given)}", "input")
    messages: list[Any] = []
    for place, item in enumerate(given):
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        read = _ITEMS.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise invalid(f"input[{place}] is of a kind that is not supported: {shown(item)}", "input")
        message = read(item)
        if kind == "function_call" and messages and messages[-1].get("tool_calls"):
            messages[-1]["tool_calls"] += message["tool_calls"]
        else:
            messages.append(message)
    return messages


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {"type": "text", "text": part.get("text")}
            if isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS
            else part
            for part in content
        ]
    return {"role": item.get("role"), "content": content}


def _made_call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}


_ITEMS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "message": _message,
    "function_call": _made_call,
    "function_call_output": _result,
}


def _nested(tool: Any) -> Any:
    """A function as chats have it."""
    if isinstance(tool, Mapping) and tool.get("type") == "function" and "function" not in tool:
        return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
    return tool

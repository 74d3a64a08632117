"""A body's tools and tool_choice as one value. What calls look like is octavo.text.tools' affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidRequest
from octavo.server.errors import invalid, shown
from octavo.server.fields import Fields
from octavo.text.tools import Calling, Tool


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a chat may call. told: what the model is told of. calling: what its answer may be; None: a plain text.
    named: the body named the one function to call, whose call ends with "stop", as the protocol has it."""

    told: tuple[Tool, ...] = ()
    calling: Calling | None = None
    named: bool = False


NO_TOOLS = ToolUse()


def read_tools(fields: Fields) -> ToolUse:
    """Raises InvalidRequest naming the field."""
    tools = _tools(fields)
    choice = fields.get("tool_choice")
    several = fields.flag("parallel_tool_calls", True)
    if choice is not None and choice not in ("none", "auto") and not tools:
        raise invalid(f"tool_choice {shown(choice)} needs tools", "tool_choice")
    if not tools or choice == "none":
        return NO_TOOLS
    match choice:
        case "required":
            return ToolUse(tools, Calling(tools, must=True, several=several))
        case {"function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolUse(tools, Calling(_named(tools, [name]), must=True, several=False), named=True)
        case {"allowed_tools": {"mode": mode, "tools": [*allowed]}} | {
            "type": "allowed_tools",
            "mode": mode,
            "tools": [*allowed],
        }:
            named = _named(tools, [_name_of(each) for each in allowed])
            return ToolUse(tools, Calling(named, must=mode == "required", several=several))
    return ToolUse(tools, Calling(tools, several=several))


def _tools(fields: Fields) -> tuple[Tool, ...]:
    tools = tuple(_tool(each["function"]) for each in fields.get("tools") or ())
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise invalid(f"two tools have the name {twice}", "tools")
    return tools


def _tool(function: dict[str, Any]) -> Tool:
    description, parameters = function.get("description") or "", function.get("parameters") or {}
    return Tool(function["name"], description, parameters, strict=function.get("strict") is True)


def _name_of(allowed: dict[str, Any]) -> str:
    match allowed:
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            return name
    raise AssertionError(f"declared otherwise: {shown(allowed)}")


def _named(tools: tuple[Tool, ...], names: list[str]) -> tuple[Tool, ...]:
    known = {tool.name: tool for tool in tools}
    for name in names:
        if name not in known:
            raise InvalidRequest(f"tool_choice names {shown(name)}, which is none of the tools", param="tool_choice")
    return tuple(known[name] for name in dict.fromkeys(names))

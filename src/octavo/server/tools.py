"""A body's tools and tool_choice: read and checked. What calls look like is octavo.text.tools' affair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidRequest
from octavo.server.errors import invalid, shown
from octavo.server.fields import Fields
from octavo.text.tools import Calling, Tool

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


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
        case None | "auto":
            return ToolUse(tools, Calling(tools, several=several))
        case "required":
            return ToolUse(tools, Calling(tools, must=True, several=several))
        case {"type": "function", "function": {"name": name}} | {"type": "function", "name": name}:
            return ToolUse(tools, Calling(_named(tools, [name]), must=True, several=False), named=True)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            named = _named(tools, [_name_of(each) for each in allowed])
            return ToolUse(tools, Calling(named, must=mode == "required", several=several))
    known = '"none", "auto", "required", a function or allowed_tools'
    raise invalid(f"tool_choice must be {known}, not {shown(choice)}", "tool_choice")


def _tools(fields: Fields) -> tuple[Tool, ...]:
    given = fields.get("tools")
    if given is None:
        return ()
    if not isinstance(given, list):
        raise invalid(f"tools must be an array, not {shown(given)}", "tools")
    if len(given) > MAX_TOOLS:
        raise invalid(f"{len(given)} tools are more than {MAX_TOOLS}", "tools")
    tools = tuple(_tool(each, f"tools[{place}]") for place, each in enumerate(given))
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise invalid(f"two tools have the name {twice}", "tools")
    return tools


def _tool(given: Any, where: str) -> Tool:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or given.get("type") != "function":
        raise invalid(f'{where} must be {{"type": "function", "function": {{...}}}}, not {shown(given)}', "tools")
    name, description, parameters = (function.get(each) for each in ("name", "description", "parameters"))
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise invalid(f"{where}.function.name must be 1 to 64 letters, digits, _, . or -, not {shown(name)}", "tools")
    if not isinstance(description or "", str):
        raise invalid(f"{where}.function.description must be a text", "tools")
    if not isinstance(parameters or {}, dict):
        raise invalid(f"{where}.function.parameters must be a JSON schema of an object", "tools")
    return Tool(name, description or "", parameters or {}, strict=function.get("strict") is True)


def _name_of(allowed: Any) -> Any:
    match allowed:
        case {"function": {"name": name}} | {"name": name}:
            return name
    return None


def _named(tools: tuple[Tool, ...], names: list[Any]) -> tuple[Tool, ...]:
    known = {tool.name: tool for tool in tools}
    if not names:
        raise invalid("tool_choice allows no function", "tool_choice")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise InvalidRequest(f"tool_choice names {shown(name)}, which is none of the tools", param="tool_choice")
    return tuple(known[name] for name in dict.fromkeys(names))

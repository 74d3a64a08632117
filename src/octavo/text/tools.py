"""Functions that a model may call: how they are told to it, what a call looks like, and reading calls as they come.

A call is `<tool_call>`, a line of JSON with `name` and `arguments`, `</tool_call>`. A grammar holds answers to that, so
that a small model's calls are well formed too. Knows no protocol and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from octavo.errors import InvalidRequest
from octavo.grammar import Grammar
from octavo.text.overlap import overlap

OPEN, CLOSE = "<tool_call>", "</tool_call>"
BEFORE_NAME, AFTER_NAME, AFTER_ARGUMENTS = '\n{"name": "', '", "arguments": ', "}\n" + CLOSE
MAX_CALLS = 16  # in one answer: a small model would go on for ever

# The style of octavo.text.token_grammar, for schemas within a larger grammar.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_INSTRUCTIONS = """\
You can call functions. They are described here, each by a line of JSON:
<tools>
{tools}
</tools>
To call one, answer with a line of JSON like this, within these tags:
<tool_call>
{{"name": "the function's name", "arguments": {{"the argument's name": "its value"}}}}
</tool_call>"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function. parameters: the JSON schema of its arguments, an object's. strict: refuse a schema with keywords that
    cannot be enforced, which otherwise are left to the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False

    def described(self) -> dict[str, Any]:
        """As chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def schema(self) -> dict[str, Any]:
        """Of its arguments, for a grammar: properties that it does not name are not made up."""
        closed = {"additionalProperties": False} if "properties" in self.parameters else {}
        return {"type": "object", **closed, **self.parameters, "x-guidance": _STYLE | {"lenient": not self.strict}}


@dataclass(frozen=True, slots=True)
class Calling:
    """What an answer may call. must: it has to be calls and nothing else. several: it may be more than one call."""

    tools: tuple[Tool, ...]
    must: bool = False
    several: bool = True

    def grammar(self) -> Grammar:
        """What the answers are: text with calls in it, or calls alone."""
        names = [f'"{tool.name}{_quoted(AFTER_NAME)}" arguments_{place}' for place, tool in enumerate(self.tools)]
        rules = [f"call: {_literal(BEFORE_NAME)} named {_literal(AFTER_ARGUMENTS)}", f"named: {' | '.join(names)}"]
        for place, tool in enumerate(self.tools):
            rules.append(f"arguments_{place}: %json {_one_line(tool)}")
        more = f"{{0,{MAX_CALLS - 1}}}"
        opened, again = _literal(OPEN), _literal("\n" + OPEN)
        if self.must:
            rules.insert(0, f"start: {opened} call" + (f" ({again} call){more}" if self.several else ""))
        else:
            rules.insert(0, "start: TEXT | opened call" + (f" (opened call){more} TEXT" if self.several else ""))
            rules += [f"opened[lazy]: TEXT {opened}", r"TEXT: /(.|\n)*/"]
        return Grammar.lark("\n".join(rules) + "\n")


def with_tools(messages: Sequence[Any], tools: Sequence[Tool]) -> list[Any]:
    """The messages for a template that knows no tools: these are told in the system message, earlier calls become the
    assistant's text and their results the user's. What is no proper message stays, for others to refuse."""
    lines = "\n".join(json.dumps(tool.described(), ensure_ascii=False) for tool in tools)
    told: list[Any] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role == "assistant" and message.get("tool_calls"):
            told.append(_spelled_out(message))
        elif role == "tool" and isinstance(message.get("content"), str):
            result = f"<tool_response>\n{message['content']}\n</tool_response>"
            if told and isinstance(told[-1], dict) and told[-1].get("role") == "user" and told[-1].get("results"):
                told[-1]["content"] += "\n" + result
            else:
                told.append({"role": "user", "content": result, "results": True})
        else:
            told.append(message)
    if tools:
        instructions = _INSTRUCTIONS.format(tools=lines)
        first = told[0] if told and isinstance(told[0], Mapping) else {}
        if first.get("role") in ("system", "developer") and isinstance(first.get("content"), str):
            told[0] = {**first, "content": f"{first['content']}\n\n{instructions}"}
        else:
            told.insert(0, {"role": "system", "content": instructions})
    return [
        {key: value for key, value in each.items() if key != "results"} if isinstance(each, dict) else each
        for each in told
    ]


def _spelled_out(message: Mapping[str, Any]) -> Any:
    """An assistant's message whose calls are part of its text."""
    calls = message["tool_calls"]
    try:
        lines = [
            f"{OPEN}\n" + json.dumps({"name": function["name"], "arguments": _arguments(function)}) + f"\n{CLOSE}"
            for function in (call["function"] for call in calls)
        ]
    except (TypeError, KeyError, ValueError, RecursionError):
        return message
    text = message.get("content")
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join([*([text] if isinstance(text, str) and text else []), *lines])}


def _arguments(function: Mapping[str, Any]) -> Any:
    given = function["arguments"]
    return json.loads(given) if isinstance(given, str) else given


@dataclass(frozen=True, slots=True)
class Piece:
    """What a stretch of an answer is: text, the name with which call number `call` begins, a part of its arguments
    (JSON text), or its end."""

    kind: Literal["text", "name", "arguments", "end"]
    text: str = ""
    call: int = -1


class CallReader:
    """Tells the text of one answer from its calls, as it comes. Feed it with `push`, then `finish` once.

    White space between text and calls belongs to neither. An answer without calls comes out as it went in.
    """

    def __init__(self) -> None:
        self._held = ""  # what may yet turn out to be the beginning of a tag, or white space before one
        self._state: Literal["text", "name", "arguments"] = "text"
        self._after_call = False  # nothing but white space since
        self._arguments = ""  # of the call that is being read
        self.calls = 0  # that have ended

    def push(self, text: str) -> Iterator[Piece]:
        """What `text` makes known."""
        self._held += text
        steps = {"text": self._read_text, "name": self._read_name, "arguments": self._read_arguments}
        while True:
            before = self._state
            yield from steps[before]()
            if self._state == before:
                return

    def finish(self) -> Iterator[Piece]:
        """The answer is over; of a call that was cut, what there is of its arguments."""
        held, self._held = self._held, ""
        if self._state == "arguments":
            # A brace may be theirs or, where they are whole, the call's own.
            yield from self._piece("arguments", "" if _is_json(self._arguments) else held)
        elif self._state == "text":
            held = held.rstrip() if self.calls else held
            yield from self._piece("text", held.lstrip() if self._after_call else held)

    def _read_text(self) -> Iterator[Piece]:
        before, tag, after = self._held.partition(OPEN)
        if tag:
            self._held, self._state = after, "name"
            text = before.rstrip()
        else:
            text = self._held[: len(self._held) - overlap(self._held, OPEN)].rstrip()
            self._held = self._held[len(text) :]
        if self._after_call:
            text = text.lstrip()
            self._after_call = not text
        yield from self._piece("text", text)

    def _read_name(self) -> Iterator[Piece]:
        head, mark, after = self._held.partition(AFTER_NAME)
        if mark:
            self._held, self._state, self._arguments = after, "arguments", ""
            yield from self._piece("name", head.removeprefix(BEFORE_NAME))

    def _read_arguments(self) -> Iterator[Piece]:
        inside, mark, after = self._held.partition(AFTER_ARGUMENTS)
        if mark:
            self._held = after
        else:
            inside = self._held[: len(self._held) - overlap(self._held, AFTER_ARGUMENTS)]
            self._held = self._held[len(inside) :]
        self._arguments += inside
        yield from self._piece("arguments", inside)
        if mark:
            yield Piece("end", call=self.calls)
            self.calls += 1
            self._state, self._after_call = "text", True

    def _piece(self, kind: Literal["text", "name", "arguments"], text: str) -> Iterator[Piece]:
        if text:
            yield Piece(kind, text, -1 if kind == "text" else self.calls)


def _one_line(tool: Tool) -> str:
    try:
        return json.dumps(tool.schema(), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the parameters of {tool.name} are no JSON: {error}", param="tools") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text)


def _quoted(text: str) -> str:
    """The inside of such a literal."""
    return json.dumps(text)[1:-1]

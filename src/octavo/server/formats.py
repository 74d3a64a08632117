"""What a body wants its answers to look like: response_format and its kin. Compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.errors import InvalidRequest
from octavo.grammar import Grammar
from octavo.server.errors import invalid
from octavo.server.fields import Fields

Make = Callable[[Any], Grammar]


# Fields of a body, and entries of its `structured_outputs`, that hold a grammar as they are.
_FIELDS: dict[str, Make] = {
    "guided_json": Grammar.json_schema,
    "guided_regex": Grammar.regex,
    "guided_choice": Grammar.choice,
    "guided_grammar": Grammar.lark,
    "json_schema": Grammar.json_schema,
    "regex": Grammar.regex,
    "grammar": Grammar.lark,
}
_STRUCTURED: dict[str, Make] = {
    "json": Grammar.json_schema,
    "regex": Grammar.regex,
    "choice": Grammar.choice,
    "grammar": Grammar.lark,
    "json_object": lambda wanted: Grammar.json_object(),
}


def read_grammar(fields: Fields) -> tuple[Grammar, str] | None:
    """What the answers must look like, and the field that says so. Raises InvalidRequest, also where two fields do."""
    found = [each for each in (_response_format(fields), _structured_outputs(fields)) if each is not None]
    for name, make in _FIELDS.items():
        if (value := fields.get(name)) is not None:
            found.append((_made(name, make, value), name))
    if len(found) > 1:
        names = " and ".join(name for _, name in found)
        raise invalid(f"{names} both say what answers look like; send one", found[1][1])
    return found[0] if found else None


def _response_format(fields: Fields) -> tuple[Grammar, str] | None:
    match fields.get("response_format"):
        case {"type": "json_object"}:
            return Grammar.json_object(), "response_format"
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return _made("response_format", Grammar.json_schema, schema), "response_format"
    return None


def _structured_outputs(fields: Fields) -> tuple[Grammar, str] | None:
    given: dict[str, Any] = fields.get("structured_outputs") or {}
    wanted = {name: value for name, value in given.items() if value is not None and value is not False}
    if not wanted:
        return None
    name, value = next(iter(wanted.items()))
    if len(wanted) > 1:
        raise invalid(f"structured_outputs takes one of {', '.join(_STRUCTURED)}, not several", "structured_outputs")
    return _made("structured_outputs", _STRUCTURED[name], value), "structured_outputs"


def _made(name: str, make: Make, value: Any) -> Grammar:
    try:
        return make(value)
    except InvalidRequest as error:
        raise invalid(str(error), name) from None

"""What a JSON value may be: one declaration that both checks it and describes it. Knows no field and no endpoint."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.server.errors import shown

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of JSON value. words: what it is, within a sentence. schema: the same as JSON Schema (2020-12).

    fits: whether a value is of this kind. complain: of one that is not, a sentence that begins with its place.
    code: of the refusal.
    """

    words: str
    schema: Schema
    fits: Callable[[Any], bool]
    complain: Callable[[Any, str], str] | None = None
    code: str = "invalid_value"

    def about(self, text: str) -> Shape:
        """The same with a description for its readers."""
        return replace(self, schema={**self.schema, "description": text})

    def complaint(self, value: Any, where: str) -> str:
        """What is wrong with a value that does not fit."""
        if self.complain is not None:
            return self.complain(value, where)
        return f"{where} must be {self.words}, not {shown(value)}"


def anything() -> Shape:
    """Whatever it is."""
    return Shape("anything", {}, lambda value: True)


def flag() -> Shape:
    """A boolean."""
    return Shape("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))


def whole(least: int, most: int) -> Shape:
    """An integer; true is none, and 2.0 is none."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    words = f"a whole number from {least} to {most}"
    return Shape(words, schema, lambda value: type(value) is int and least <= value <= most)


def number(least: float, most: float = math.inf) -> Shape:
    """A finite number within bounds."""
    bounds = {"minimum": least} if most == math.inf else {"minimum": least, "maximum": most}
    words = f"a number of at least {least:g}" if most == math.inf else f"a number from {least:g} to {most:g}"
    return Shape(words, {"type": "number", **bounds}, lambda value: _is_number(value) and least <= value <= most)


def number_above(bound: float) -> Shape:
    """A finite number greater than that."""
    schema = {"type": "number", "exclusiveMinimum": bound}
    return Shape(f"a finite number above {bound:g}", schema, lambda value: _is_number(value) and value > bound)


def text(least: int = 0, most: int | None = None, pattern: str | None = None) -> Shape:
    """A string of so many characters, the whole of which matches the pattern, one of Python's and JavaScript's."""
    compiled = None if pattern is None else re.compile(pattern)

    def fits(value: Any) -> bool:
        if not isinstance(value, str) or not least <= len(value) <= (len(value) if most is None else most):
            return False
        return compiled is None or compiled.fullmatch(value) is not None

    schema: Schema = {"type": "string"}
    schema |= {"minLength": least} if least else {}
    schema |= {} if most is None else {"maxLength": most}
    schema |= {} if pattern is None else {"pattern": f"^(?:{pattern})$"}
    size = "" if most is None else f" of at most {most} characters"
    matching = "" if pattern is None else f" like {pattern}"
    return Shape(("a string that is not empty" if least == 1 else "a string") + size + matching, schema, fits)


def one_of(*values: Any) -> Shape:
    """One of these values, of its type."""
    words = " or ".join(shown(value) for value in values)
    schema = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return Shape(words, schema, lambda value: any(_same(value, each) for each in values))


def array(of: Shape, least: int = 0, most: int | None = None, words: str | None = None) -> Shape:
    """A list of these, so many at least and at most."""

    def fits(value: Any) -> bool:
        if not isinstance(value, list) or not least <= len(value) <= (len(value) if most is None else most):
            return False
        return all(map(of.fits, value))

    def complain(value: Any, where: str) -> str:
        if not isinstance(value, list) or len(value) < least:
            return f"{where} must be {described}, not {shown(value)}"
        if most is not None and len(value) > most:
            return f"{where} has {len(value)} entries; the most is {most}"
        place = next(number for number, each in enumerate(value) if not of.fits(each))
        return of.complaint(value[place], f"{where}[{place}]")

    described = words or ("an array that is not empty" if least else "an array")
    schema: Schema = {"type": "array"}
    schema |= {"items": of.schema} if of.schema else {}
    schema |= {"minItems": least} if least else {}
    schema |= {} if most is None else {"maxItems": most}
    return Shape(described, schema, fits, complain)


def table(of: Shape, keys: str | None = None, most: int | None = None) -> Shape:
    """An object with keys that its sender chooses. keys: the pattern that all of them match."""
    compiled = None if keys is None else re.compile(keys)

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or (most is not None and len(value) > most):
            return False
        return all(map(of.fits, value.values())) and (compiled is None or all(map(compiled.fullmatch, value)))

    def complain(value: Any, where: str) -> str:
        if not isinstance(value, dict):
            return f"{where} must be an object, not {shown(value)}"
        if most is not None and len(value) > most:
            return f"{where} has {len(value)} entries; the most is {most}"
        for key, each in value.items():
            if compiled is not None and compiled.fullmatch(key) is None:
                return f"{where}: the key {shown(key)} is not like {keys}"
            if not of.fits(each):
                return of.complaint(each, f"{where}[{shown(key)}]")
        raise AssertionError("asked to complain of what fits")

    schema: Schema = {"type": "object"}
    schema |= {"additionalProperties": of.schema} if of.schema else {}
    schema |= {} if keys is None else {"propertyNames": {"pattern": f"^(?:{keys})$"}}
    schema |= {} if most is None else {"maxProperties": most}
    return Shape("an object", schema, fits, complain)


def record(fields: Mapping[str, Shape], required: tuple[str, ...] = (), *, closed: bool = False) -> Shape:
    """An object with these fields. What is not required may be null, which counts as absent. closed: there are no
    others; otherwise those are ignored."""

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and misfit(value) is None

    def misfit(value: dict[str, Any]) -> str | None:
        for name, shape in fields.items():
            given = value.get(name)
            if not (given is None and name not in required) and not (name in value and shape.fits(given)):
                return name
        return next((name for name in value if name not in fields), None) if closed else None

    def complain(value: Any, where: str) -> str:
        if not isinstance(value, dict):
            return f"{where} must be an object, not {shown(value)}"
        name = misfit(value)
        assert name is not None
        if name not in fields:
            return f"{where} may have {', '.join(fields)}, not {shown(name)}"
        if name not in value:
            return f"{where}.{name} is missing"
        return fields[name].complaint(value[name], f"{where}.{name}")

    properties = {name: (each if name in required else nullable(each)).schema for name, each in fields.items()}
    schema: Schema = {"type": "object", "properties": properties}
    schema |= {"required": list(required)} if required else {}
    schema |= {"additionalProperties": False} if closed else {}
    return Shape("an object", schema, fits, complain)


def either(*shapes: Shape, words: str | None = None) -> Shape:
    """Of any of these kinds."""

    def fits(value: Any) -> bool:
        return any(shape.fits(value) for shape in shapes)

    def complain(value: Any, where: str) -> str:
        alike = [shape for shape in shapes if shape.schema.get("type") in _json_types(value) and _meant(shape, value)]
        if len(alike) == 1:
            return alike[0].complaint(value, where)
        return f"{where} must be {described}, not {shown(value)}"

    described = words or " or ".join(shape.words for shape in shapes)
    return Shape(described, {"anyOf": [shape.schema for shape in shapes]}, fits, complain)


def nullable(shape: Shape) -> Shape:
    """Of this kind, or null."""
    if shape.fits(None):
        return shape
    schema = dict(shape.schema)
    description = {"description": schema.pop("description")} if "description" in schema else {}
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        schema["type"] = [schema["type"], "null"]
    elif "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    elif "const" in schema:
        schema = {"enum": [schema["const"], None]}
    elif "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return replace(
        shape,
        words=f"{shape.words} or null",
        schema={**description, **schema},
        fits=lambda value: value is None or shape.fits(value),
    )


def refused(*harmless: Any) -> Shape:
    """Of a field that is not supported, but may say what asks for nothing."""
    schema = {"enum": [*harmless, None]} if harmless else {"type": "null"}
    return Shape(
        "left out",
        {**schema, "description": "Not supported: anything else is refused."},
        lambda value: value is None or any(_same(value, each) for each in harmless),
        lambda value, where: f"{where} is not supported by this server; leave it out",
        code="unsupported",
    )


def _meant(shape: Shape, value: Any) -> bool:
    """Whether an object has the tags (its type, its role) of this kind of object."""
    if not isinstance(value, dict):
        return True
    tags = [(name, each) for name, each in shape.schema.get("properties", {}).items() if "const" in each]
    return all(value.get(name) == each["const"] for name, each in tags)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def _same(value: Any, other: Any) -> bool:
    """As JSON has it: true is not 1, but 1.0 is."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _json_types(value: Any) -> tuple[str, ...]:
    for kind, name in ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return (name,)
    return () if value is None else ("number", "integer")

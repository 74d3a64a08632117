"""Shapes: what a declaration checks is what it describes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.server import bodies, objects
from octavo.server.shapes import Shape, array, either, flag, number_above, one_of, record, refused, table, text, whole

BODIES = (bodies.COMPLETION, bodies.CHAT, bodies.RESPONSE, bodies.TOKENIZE, bodies.DETOKENIZE)
ANSWERS = [each.shape for each in vars(objects).values() if isinstance(each, objects.Answer)]
SHAPES = [record(each.fields, each.required) for each in BODIES] + ANSWERS
SHAPES += [shape for each in BODIES for shape in each.fields.values()]
CHECKED = [(shape, jsonschema_rs.Draft202012Validator(shape.schema)) for shape in SHAPES]

WORDS = ("text", "function", "message", "json_schema", "allowed_tools", "auto", "user", "assistant", "a", "", " ", "7")
NAMES = ("type", "text", "role", "content", "name", "function", "schema", "json_schema", "format", "mode", "tools", "7")
SCALARS = st.none() | st.booleans() | st.integers(-3, 200) | st.floats(-3, 3).filter(lambda x: x != int(x))
VALUES = st.recursive(
    SCALARS | st.sampled_from(WORDS) | st.sampled_from((2**31, -(2**63) - 1, 2**63 - 1)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_what_is_checked_is_what_is_described(value: Any) -> None:
    """For every field of every body and for every answer; the schemas are read by a validator of somebody else's."""
    for shape, validator in CHECKED:
        assert shape.fits(value) == validator.is_valid(value), (shape.schema, value)


ONE, TWO = (record({"type": one_of(kind), "x": flag()}, ("type",)) for kind in ("one", "two"))
ONLY = record({"a": whole(0, 9), "b": text(least=1)}, ("a",), closed=True)


@pytest.mark.parametrize(
    ("shape", "value", "told"),
    [
        (whole(0, 9), True, "x must be a whole number from 0 to 9, not True"),
        (whole(0, 9), 2.0, "x must be a whole number from 0 to 9, not 2.0"),
        (number_above(0), 10**400, "x must be a finite number above 0, not 1000"),
        (text(least=1), "", "x must be a string that is not empty, not ''"),
        (text(pattern="[a-z]{1,3}"), "a\n", "x must be a string like [a-z]{1,3}, not 'a\\n'"),
        (one_of("a", "b"), "c", "x must be 'a' or 'b', not 'c'"),
        (one_of(1), True, "x must be 1, not True"),
        (array(flag()), [True, 1], "x[1] must be true or false, not 1"),
        (array(flag(), most=1), [True, True], "x has 2 entries; the most is 1"),
        (array(flag(), least=1), [], "x must be an array that is not empty, not []"),
        (table(flag(), keys="[0-9]"), {"y": True}, "x: the key 'y' is not like [0-9]"),
        (table(flag(), most=0), {"y": True}, "x has 1 entries; the most is 0"),
        (table(flag()), {"y": 1}, "x['y'] must be true or false, not 1"),
        (ONLY, {"b": "b"}, "x.a is missing"),
        (ONLY, {"a": 1, "b": ""}, "x.b must be a string that is not empty, not ''"),
        (ONLY, {"a": 1, "c": 1}, "x may have a, b, not 'c'"),
        (either(text(), array(text())), [1], "x[0] must be a string, not 1"),
        (either(text(), flag()), 1, "x must be a string or true or false, not 1"),
        (either(ONE, TWO), {"type": "two", "x": 1}, "x.x must be true or false, not 1"),
        (either(ONE, TWO), {"type": "three"}, "x must be an object or an object, not {'type': 'three'}"),
        (refused([]), [1], "x is not supported by this server; leave it out"),
    ],
)
def test_complaints(shape: Shape, value: Any, told: str) -> None:
    """They name the place within the field, what it must be, and what came."""
    assert not shape.fits(value)
    assert shape.complaint(value, "x").startswith(told)
    assert len(shape.complaint(value, "x")) < 200

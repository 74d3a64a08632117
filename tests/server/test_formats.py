"""response_format and its kin over HTTP: enforced or refused, never accepted and forgotten."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from server_harness import InProcess, assert_refused

FLAG = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "flag", "schema": FLAG, "strict": True}}
FORMS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": WRAPPED}, r'\{"on": (true|false)\}'),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": FLAG}}}, r'\{"on": \w+\}'),
    ({"guided_json": FLAG}, r'\{"on": (true|false)\}'),
    ({"guided_json": json.dumps(FLAG)}, r'\{"on": (true|false)\}'),
    ({"json_schema": FLAG}, r'\{"on": (true|false)\}'),
    ({"structured_outputs": {"json": FLAG}}, r'\{"on": (true|false)\}'),
    ({"guided_regex": "[bc]{3}x"}, "[bc]{3}x"),
    ({"structured_outputs": {"regex": "[bc]{3}x"}}, "[bc]{3}x"),
    ({"guided_choice": ["left", "right"]}, "left|right"),
    ({"structured_outputs": {"choice": ["left", "right"], "json": None}}, "left|right"),
    ({"guided_grammar": 'start: "<" word ">"\nword: /[ab]{3}/'}, "<[ab]{3}>"),
    ({"grammar": 'root ::= "yes" | "no"'}, "yes|no"),
]


@pytest.mark.parametrize(("fields", "pattern"), FORMS)
def test_an_answer_is_what_was_asked_for_streamed_and_whole(
    served: InProcess, fields: dict[str, Any], pattern: str
) -> None:
    """Case H16. The toy model by itself says "Helloé!"."""
    whole = served.chat(max_tokens=60, **fields)
    assert whole.status_code == 200, whole.text
    choice = whole.json()["choices"][0]
    assert re.fullmatch(pattern, choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    events = served.events(served.chat(max_tokens=60, stream=True, **fields))
    assert events.text == choice["message"]["content"]
    assert events.done
    completion = served.complete("a", max_tokens=60, **fields).json()["choices"][0]
    assert re.fullmatch(pattern, completion["text"])


@pytest.mark.parametrize("schema", [{"type": "object"}, {}])
def test_json_mode_has_no_room_for_endless_blanks(served: InProcess, schema: dict[str, Any]) -> None:
    """Case H14: blanks, newlines and digits are made likely; what comes is the beginning of JSON."""
    form = {"type": "json_object"} if schema else {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    tokens = served.call("POST", "/tokenize", json={"prompt": " \n0123456789"}).json()["tokens"]
    answer = served.chat(max_tokens=100, response_format=form, logit_bias=dict.fromkeys(map(str, tokens), 20))
    choice = answer.json()["choices"][0]
    text = choice["message"]["content"]
    assert not re.search(r"\s\s|^\s|[{\[]\s", re.sub(r'"[^"]*"?', '""', text))
    if choice["finish_reason"] == "stop":
        json.loads(text)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": "text"}}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}},
            "response_format",
        ),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": "left"}, "guided_choice"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_regex": "(" * 60_000 + ")" * 60_000}, "guided_regex"),
        ({"guided_grammar": "start: absent"}, "guided_grammar"),
        ({"structured_outputs": {"xml": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "(a{1000}){1000}"}}, "structured_outputs"),
    ],
)
def test_what_cannot_be_enforced_is_refused(served: InProcess, fields: dict[str, Any], param: str) -> None:
    """Case G06 among them."""
    for response in (served.chat(max_tokens=20, **fields), served.complete(stream=True, **fields)):
        assert_refused(response, 400, param)
    served.assert_alive()
    served.assert_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_forbids_all_that_it_allows_is_refused(served: InProcess, *, stream: bool) -> None:
    """Case H13: known once its first token is to be chosen. A client repeats what is told to be the server's fault."""
    fields = {"guided_choice": ["b"], "bad_words": "b", "stream": stream}
    for response in (served.chat(**fields), served.complete(**fields)):
        assert_refused(response, 400, None)
        assert "mask all" in response.json()["error"]["message"]
    served.assert_alive()
    served.assert_idle()


def test_text_asks_for_nothing(served: InProcess) -> None:
    plain = served.chat().json()["choices"][0]["message"]["content"]
    for fields in ({"response_format": {"type": "text"}}, {"response_format": None}, {"structured_outputs": {}}):
        assert served.chat(**fields).json()["choices"][0]["message"]["content"] == plain

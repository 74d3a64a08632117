"""Tools over HTTP: every form of tool_choice, streamed and whole, on a model that only a grammar brings to call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server_harness import CHAT, MODEL, USER, InProcess, assert_refused

COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": COLOUR}},
    {"type": "function", "function": {"name": "stop"}},
]
PAINT = {"type": "function", "function": {"name": "paint"}}
NOTHING_ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [PAINT]}}


@pytest.fixture
def served(wide: InProcess) -> InProcess:
    """With room for the instructions of tools."""
    return wide


def gather(served: InProcess, **fields: Any) -> tuple[dict[str, Any], str]:
    """The message of a stream, put together as clients do, and the reason of its end."""
    message: dict[str, Any] = {"content": ""}
    reasons = []
    for chunk in served.events(served.chat(stream=True, **fields)).chunks:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if part["index"] == len(calls):  # Case I07: id, type and name once, then arguments alone
                assert set(part) == {"index", "id", "type", "function"}
                assert part["function"]["arguments"] == ""
                calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
            else:
                assert set(part) == {"index", "function"}
                assert set(part["function"]) == {"arguments"}
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    (reason,) = reasons
    return message, reason


def without_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert len({each["id"] for each in calls}) == len(calls)
    return [{key: value for key, value in each.items() if key != "id"} for each in calls]


@pytest.mark.parametrize(
    ("choice", "names", "reason"),
    [("required", {"paint", "stop"}, "tool_calls"), (PAINT, {"paint"}, "stop"), (ALLOWED, {"paint"}, "tool_calls")],
)
def test_calls_streamed_and_whole(served: InProcess, choice: Any, names: set[str], reason: str) -> None:
    """Cases I07, I08: named ends with "stop", required with "tool_calls"."""
    fields = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 120, "parallel_tool_calls": False}
    whole = served.chat(**fields).json()["choices"][0]
    assert whole["finish_reason"] == reason
    (made,) = whole["message"]["tool_calls"]
    assert whole["message"]["content"] is None
    assert made["type"] == "function"
    assert made["function"]["name"] in names
    assert isinstance(json.loads(made["function"]["arguments"]), dict)
    message, streamed_reason = gather(served, **fields)
    assert streamed_reason == reason
    assert without_ids(message["tool_calls"]) == without_ids([made])


def test_several_calls_have_indices_and_ids_of_their_own(served: InProcess) -> None:
    """The toy model is brought to a second call by a bias against its end token."""
    end = served.call("POST", "/tokenize", json={"prompt": "<eos>"}).json()["tokens"]
    bias = dict.fromkeys(map(str, end), -100)
    fields = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 200, "logit_bias": bias}
    message, reason = gather(served, **fields)
    whole = served.chat(**fields).json()["choices"][0]
    assert len(message["tool_calls"]) > 1
    assert without_ids(message["tool_calls"]) == without_ids(whole["message"]["tool_calls"])
    assert reason == whole["finish_reason"]


def test_a_model_that_need_not_call_may_say_what_it_likes(served: InProcess) -> None:
    for choice in (None, "auto"):
        answer = served.chat(tools=TOOLS, tool_choice=choice).json()["choices"][0]
        assert answer["message"] == {"role": "assistant", "content": CHAT, "refusal": None}
        assert answer["finish_reason"] == "stop"
        assert gather(served, tools=TOOLS, tool_choice=choice) == ({"content": CHAT}, "stop")


def test_a_call_that_is_cut(served: InProcess) -> None:
    """Case I08: "length", and never "tool_calls" with an empty list."""
    for most in (1, 3, 20):
        fields = {"tools": TOOLS, "tool_choice": "required", "max_tokens": most}
        whole = served.chat(**fields).json()["choices"][0]
        assert whole["finish_reason"] == "length"
        assert whole["message"].get("tool_calls", [None])
        message, reason = gather(served, **fields)
        assert reason == "length"
        assert without_ids(message.get("tool_calls", [])) == without_ids(whole["message"].get("tool_calls", []))


def test_results_of_calls_reach_the_model(served: InProcess) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "paint", "arguments": '{"colour": "red"}'}}]
    history = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    tokens = served.call("POST", "/tokenize", json={"messages": history, "tools": TOOLS}).json()["tokens"]
    text = served.call("POST", "/detokenize", json={"tokens": tokens}).json()["prompt"]
    for part in ('"name": "stop"', '<tool_call>\n{"name": "paint", "arguments": {"colour": "red"}}', "done"):
        assert part in text
    assert served.chat(history, tools=TOOLS).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": NOTHING_ALLOWED}, "tool_choice"),
        ({"tools": [5]}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}] * 2}, "tools"),
        ({"tools": TOOLS * 100}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "no"}}}]}, "tools"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_what_is_refused(served: InProcess, fields: dict[str, Any], param: str) -> None:
    assert_refused(served.chat(**fields), 400, param)
    served.assert_alive()


def test_calls_of_a_response(served: InProcess) -> None:
    """/v1/responses: an item for each call, its arguments in pieces."""
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    body = {"model": MODEL, "input": "hi", "temperature": 0, "tools": flat, "max_output_tokens": 120}
    choice = {"tool_choice": {"type": "function", "name": "paint"}}
    answer = served.call("POST", "/v1/responses", json=body | choice).json()
    assert answer["tool_choice"] == choice["tool_choice"]
    (item,) = answer["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "paint", "completed")
    assert json.loads(item["arguments"])["colour"] in ("red", "blue")
    stream = served.call("POST", "/v1/responses", json=body | choice | {"stream": True}).text
    told = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    pieces = [each["delta"] for each in told if each["type"] == "response.function_call_arguments.delta"]
    assert "".join(pieces) == item["arguments"]
    assert told[-1]["response"]["output"][0]["arguments"] == item["arguments"]

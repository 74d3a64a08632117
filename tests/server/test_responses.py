"""/v1/responses: the same answers as a chat's, as items and named events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from server_harness import CHAT, MODEL, InProcess, assert_refused, strict

from octavo.errors import RequestFailed
from octavo.exec.sampler import SequenceSampler

CHOICE = {"type": "json_schema", "name": "pick", "schema": {"enum": ["left", "right"]}}
ADD = {"type": "function", "name": "a", "parameters": {}}


def ask(served: InProcess, **fields: Any) -> httpx.Response:
    return served.call("POST", "/v1/responses", json={"model": MODEL, "input": "hi", "temperature": 0, **fields})


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """Each has its name twice, and a number of its own; there is no [DONE]."""
    assert response.status_code == 200, response.text
    found = []
    for number, block in enumerate(response.content.decode().strip().split("\n\n")):
        name, data = block.split("\n")
        found.append(strict(data.removeprefix("data: ").encode()))
        assert name == f"event: {found[-1]['type']}"
        assert found[-1]["sequence_number"] == number
    return found


def test_a_text(served: InProcess) -> None:
    answer = ask(served).json()
    assert answer["object"] == "response"
    assert answer["id"].startswith("resp_")
    assert answer["status"] == "completed"
    (item,) = answer["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [{"type": "output_text", "text": CHAT, "annotations": [], "logprobs": []}]
    chat = served.chat().json()["usage"]
    usage = answer["usage"]
    assert usage["input_tokens"] == chat["prompt_tokens"]
    assert usage["output_tokens"] == chat["completion_tokens"]
    assert usage["total_tokens"] == chat["total_tokens"]


def test_a_stream_tells_the_same_in_order(served: InProcess) -> None:
    whole = ask(served).json()
    told = events(ask(served, stream=True))
    kinds = [each["type"].removeprefix("response.") for each in told]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * deltas,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert deltas > 1
    assert "".join(each["delta"] for each in told if each["type"] == "response.output_text.delta") == CHAT
    assert told[-4]["text"] == CHAT
    last = told[-1]["response"]
    assert [item["content"] for item in last["output"]] == [item["content"] for item in whole["output"]]
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert told[0]["response"]["id"] == last["id"]
    assert told[0]["response"]["status"] == "in_progress"


def test_an_answer_that_is_cut(served: InProcess) -> None:
    answer = ask(served, max_output_tokens=2).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in answer["output"]] == ["incomplete"]
    told = events(ask(served, max_output_tokens=2, stream=True))
    assert told[-1]["type"] == "response.incomplete"
    assert told[-2]["item"]["status"] == "incomplete"


def test_a_fault_in_the_middle(serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol has an event for it, with what there is of the response."""
    constrain = SequenceSampler.constrain

    def faulty(sampler: SequenceSampler, raw: Any, tokens: Any, prompt_len: int) -> Any:
        if len(tokens) == prompt_len + 2:
            raise RequestFailed("a fault")
        return constrain(sampler, raw, tokens, prompt_len)

    monkeypatch.setattr(SequenceSampler, "constrain", faulty)
    server = serve()
    told = events(ask(server, stream=True, presence_penalty=0.01))
    assert "".join(each["delta"] for each in told if each["type"] == "response.output_text.delta") == "Hello"
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["status"] == "failed"
    assert told[-1]["response"]["error"] == {"code": "server_error", "message": "a fault"}
    server.assert_idle()


def test_forms_of_text(served: InProcess) -> None:
    answer = ask(served, text={"format": CHOICE}).json()
    assert json.loads(answer["output"][0]["content"][0]["text"]) in ("left", "right")
    guided = ask(served, guided_choice=["up", "down"]).json()  # what a chat enforces is not dropped here
    assert guided["output"][0]["content"][0]["text"] in ("up", "down")
    assert guided["tool_choice"] == "none"


def prompt(served: InProcess, **fields: Any) -> int:
    response = ask(served, **fields)
    assert response.status_code == 200, response.text
    return int(response.json()["usage"]["input_tokens"])


def test_inputs_make_the_prompts_of_chats(served: InProcess) -> None:
    """Tokens are counted; the chat's messages are the oracle."""

    def chat(*messages: dict[str, Any]) -> int:
        return int(served.chat(list(messages)).json()["usage"]["prompt_tokens"])

    user, system = {"role": "user", "content": "hi"}, {"role": "system", "content": "be"}
    parts = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "yo"}]}
    assert prompt(served, input=[user]) == prompt(served, input=[{"type": "message", **parts}]) == chat(user)
    assert prompt(served, instructions="be") == chat(system, user)
    assert prompt(served, input=[parts, said, user]) == chat(user, {"role": "assistant", "content": "yo"}, user)


def test_results_of_calls_are_part_of_the_input(served: InProcess) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "5"}
    items = [{"role": "user", "content": "hi"}, call, {**call, "call_id": "d"}, result]
    spelled = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": f"{spelled}\n{spelled}"},
        {"role": "user", "content": "<tool_response>\n5\n</tool_response>"},
    ]
    expected = served.call("POST", "/tokenize", json={"messages": messages}).json()["count"]
    response = ask(served, input=items, max_output_tokens=1)
    if expected < 250:
        assert response.json()["usage"]["input_tokens"] == expected
    else:  # more than the toy's context
        assert_refused(response, 400, code="context_length_exceeded")
        assert str(expected) in response.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [5]}, "input"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"type": [], "content": "x"}]}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text"),
        ({"text": 5}, "text"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": 5}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"model": "other"}, "model"),
        ({"instructions": 5}, "instructions"),
        ({"guided_json": {"type": "nothing"}}, "guided_json"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"echo": True}, "echo"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"metadata": {"a": 5}}, "metadata"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
    ],
)
def test_what_is_refused(served: InProcess, fields: dict[str, Any], param: str) -> None:
    assert_refused(ask(served, **fields), 404 if param == "model" else 400, param)
    served.assert_alive()

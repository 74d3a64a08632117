"""Every object that is answered, held to the official client's types, strictly: all required fields, no other types.

The client itself checks nothing: what is missing shows up in programs, as an AttributeError.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from official_types import check, check_event
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from server_harness import CHAT, MODEL, USER, InProcess

FLAG = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}
PAINT = {"name": "a", "parameters": {}}
CALLS = {"tools": [{"type": "function", "function": PAINT}], "tool_choice": "required", "max_tokens": 60}
FORM = {"format": {"type": "json_schema", "name": "flag", "schema": FLAG}}
COMPLETIONS: list[dict[str, Any]] = [
    {},
    {"n": 2, "logprobs": 2},
    {"echo": True, "beam_width": 2},
    {"prompt_logprobs": 1},
]


@pytest.mark.parametrize("fields", COMPLETIONS)
def test_completions(served: InProcess, fields: dict[str, Any]) -> None:
    check(Completion, served.complete(**fields).json())


def test_chunks_of_completions(served: InProcess) -> None:
    """Their type claims that each has a reason to end; the protocol's own are null but for the last."""
    events = served.events(served.complete(stream=True, logprobs=1, stream_options={"include_usage": True}))
    for chunk in events.chunks:
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        check(Completion, chunk)


CHATS: list[dict[str, Any]] = [
    {},
    {"n": 2, "logprobs": True, "top_logprobs": 2},
    {"stop": "lo"},
    {"max_tokens": 1},
    CALLS,
    {"response_format": {"type": "json_object"}, "max_tokens": 20},
]


@pytest.mark.parametrize("fields", CHATS)
def test_chats(wide: InProcess, fields: dict[str, Any]) -> None:
    check(ChatCompletion, wide.chat(**fields).json())
    for chunk in wide.events(wide.chat(stream=True, stream_options={"include_usage": True}, **fields)).chunks:
        check(ChatCompletionChunk, chunk)


RESPONSES: list[dict[str, Any]] = [
    {},
    {"max_output_tokens": 2},
    {"tools": [{"type": "function", **PAINT}], "tool_choice": "required", "max_output_tokens": 60},
    {"tools": [{"type": "function", **PAINT}], "tool_choice": {"type": "function", "name": "a"}},
    {"instructions": "Be kind.", "metadata": {"trace": "7"}, "text": FORM, "max_output_tokens": 30},
]


@pytest.mark.parametrize("fields", RESPONSES)
def test_responses(wide: InProcess, fields: dict[str, Any]) -> None:
    body = {"model": MODEL, "input": "hi", "temperature": 0, **fields}
    whole = wide.call("POST", "/v1/responses", json=body).json()
    check(Response, whole)
    for name in ("instructions", "metadata"):
        assert whole[name] == fields.get(name, {} if name == "metadata" else None)
    assert whole["text"] == fields.get("text", {"format": {"type": "text"}})
    lines = wide.call("POST", "/v1/responses", json={**body, "stream": True}).text.splitlines()
    for line in lines:
        if line.startswith("data: "):
            check_event(json.loads(line.removeprefix("data: ")))


def test_the_rest(served: InProcess) -> None:
    check(Model, served.get(f"/v1/models/{MODEL}").json())
    assert served.get("/v1/models").json()["data"] == [served.get(f"/v1/models/{MODEL}").json()]
    embeddings = served.call("POST", "/v1/embeddings", json={"model": MODEL, "input": ["a", "b"]}).json()
    check(CreateEmbeddingResponse, embeddings)


def test_what_the_client_says_of_itself_changes_nothing(served: InProcess) -> None:
    """Fields that OpenAI's clients send, and that cannot change an answer."""
    fields = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "reasoning_effort": "low",
        "verbosity": "low",
        "modalities": ["text"],
        "parallel_tool_calls": True,
        "top_logprobs": 0,
    }
    assert served.chat(USER, **fields).json()["choices"][0]["message"]["content"] == CHAT

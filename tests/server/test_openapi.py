"""The OpenAPI document, and that it and the server say the same."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from server_harness import MODEL, USER, InProcess, assert_refused, strict

from octavo.server import bodies
from octavo.server.bodies import Body
from octavo.server.fields import Fields
from octavo.server.keys import ApiKeys, Caller
from octavo.server.prompts import Reader

BODIES = {
    "/v1/completions": bodies.COMPLETION,
    "/v1/chat/completions": bodies.CHAT,
    "/v1/responses": bodies.RESPONSE,
    "/v1/embeddings": bodies.EMBEDDING,
    "/tokenize": bodies.TOKENIZE,
    "/detokenize": bodies.DETOKENIZE,
    "/pins": bodies.PIN,
    "/cache/wipe": bodies.WIPE,
}
TOOL = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}

COMPLETION_NAMES = (
    "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed "
    "stop stream stream_options suffix temperature top_p user"
).split()
CHAT_NAMES = (
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens "
    "messages metadata modalities model moderation n parallel_tool_calls prediction presence_penalty "
    "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format "
    "safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools "
    "top_logprobs top_p user verbosity web_search_options"
).split()
RESPONSE_NAMES = (
    "access_programs background background_options context_management conversation image include input "
    "instructions max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls "
    "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning "
    "safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
    "top_logprobs top_p truncation user"
).split()


def named(document: dict[str, Any], name: str) -> jsonschema_rs.Validator:
    """Checks values against a schema of the document."""
    return jsonschema_rs.Draft202012Validator(document["components"]["schemas"][name])


@pytest.fixture(scope="module")
def document(served: InProcess) -> dict[str, Any]:
    response = served.get("/openapi.json")
    assert response.status_code == 200
    return strict(response.content)


def test_every_route_is_described_and_the_reverse(served: InProcess, document: dict[str, Any]) -> None:
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in served.app._front._app.routes
        for method in route.methods - {"HEAD"}
    }
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert described == routes
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    posts = {path for path, methods in document["paths"].items() if "post" in methods}
    assert posts == set(BODIES)


@pytest.mark.parametrize("path", BODIES)
def test_bodies_are_described_by_what_checks_them(document: dict[str, Any], path: str) -> None:
    (content,) = document["paths"][path]["post"]["requestBody"]["content"].values()
    declared = BODIES[path]
    assert content["schema"] == {"$ref": f"#/components/schemas/{declared.name}"}
    schema = document["components"]["schemas"][declared.name]
    assert set(schema["properties"]) == set(declared.fields)
    assert schema.get("required", []) == list(declared.required)


class _Noting(Fields):
    """Notes which fields the server asks for."""

    asked: typing.ClassVar[set[tuple[str, str]]] = set()

    def __init__(self, declared: Body, body: dict[str, Any]) -> None:
        super().__init__(declared, body)
        self._name = declared.name

    def get(self, name: str) -> Any:
        self.asked.add((self._name, name))
        return super().get(name)


def test_every_field_that_is_declared_is_read(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are neither refused nor ignored. The reverse cannot be: asking for an undeclared field fails."""
    monkeypatch.setattr("octavo.server.prompts.Fields", _Noting)
    _Noting.asked.clear()
    reader: Reader = served.app._reader
    beams = {"use_beam_search": True, "beam_width": 2}
    chat = {"messages": USER, "tools": [TOOL], "tool_choice": "none", "max_tokens": 1}
    for body in ({"prompt": "a"}, {"prompt": "a", **beams}):
        reader.completion(json.dumps(body).encode(), Caller())
    reader.chat(json.dumps(chat).encode(), Caller())
    reader.response(json.dumps({"input": "a", "text": {"format": {"type": "text"}}}).encode(), Caller())
    reader.embedding(b'{"input": "a"}', Caller())
    for body in ({"prompt": "a"}, chat):
        reader.tokenize(json.dumps(body).encode())
    reader.detokenize(b'{"tokens": [1]}')
    for body in ({"prompt": "a"}, chat):
        reader.pin(json.dumps({**body, "ttl_s": 9}).encode(), Caller())
    reader.wipe(b"{}", Caller())
    for declared in BODIES.values():
        heeded = {
            name
            for name, shape in declared.fields.items()
            if "without an effect" not in str(shape.schema) and "Not supported" not in str(shape.schema)
        }
        assert heeded <= {name for body, name in _Noting.asked if body == declared.name}
    with pytest.raises(KeyError):
        Fields(bodies.DETOKENIZE, {"tokens": []}).get("prompt")


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        (bodies.COMPLETION, COMPLETION_NAMES),
        (bodies.CHAT, CHAT_NAMES),
        (bodies.RESPONSE, RESPONSE_NAMES),
        (bodies.EMBEDDING, ["dimensions", "encoding_format", "input", "model", "user"]),
    ],
)
def test_every_field_of_the_official_client_is_declared(declared: Body, names: list[str]) -> None:
    """Read, refused or ignored, but on purpose. The names are those of version 3.57."""
    assert set(names) <= set(declared.fields)


def test_keys_are_asked_for_only_where_there_are_some(document: dict[str, Any], serve: Any, tmp_path: Path) -> None:
    assert "securitySchemes" not in document["components"]
    file = tmp_path / "keys"
    file.write_text("ann:" + "0" * 64 + "\n")
    guarded = strict(serve(keys=ApiKeys.from_file(str(file))).get("/openapi.json").content)
    for path, methods in guarded["paths"].items():
        for operation in methods.values():
            assert (
                ("401" in operation["responses"])
                == ("security" in operation)
                == (path.startswith(("/v1", "/pool", "/requests", "/pins")) or path in BODIES)
            )


@pytest.mark.parametrize(
    ("path", "name", "fields"),
    [
        ("/v1/completions", "Completion", {"prompt": ["a", "b"], "n": 2, "echo": True, "logprobs": 2}),
        ("/v1/completions", "Completion", {"prompt": "a", "beam_width": 2, "temperature": 0, "max_tokens": 3}),
        ("/v1/completions", "Completion", {"prompt": "ab", "prompt_logprobs": 1}),
        ("/v1/chat/completions", "ChatCompletion", {"messages": USER, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", "ChatCompletion", {"messages": USER, "prompt_logprobs": 2}),
        ("/v1/chat/completions", "ChatCompletion", {"messages": USER, "stop": "lo"}),
        ("/v1/responses", "Response", {"input": "hi", "max_output_tokens": 2}),
        ("/v1/embeddings", "EmbeddingList", {"input": ["a", "hi"]}),
        ("/v1/embeddings", "EmbeddingList", {"input": [1, 2], "encoding_format": "base64"}),
        ("/tokenize", "Tokens", {"prompt": "hi"}),
        ("/detokenize", "Text", {"tokens": [1, 2]}),
    ],
)
def test_answers_are_as_described(
    served: InProcess, document: dict[str, Any], path: str, name: str, fields: dict[str, Any]
) -> None:
    """Whole, and every event where it can be streamed; the schemas are closed."""
    body = {"model": MODEL, "max_tokens": 8, **fields} if path == "/v1/completions" else {"model": MODEL, **fields}
    response = served.call("POST", path, json=body)
    assert response.status_code == 200, response.text
    named(document, name).validate(response.json())
    content = document["paths"][path]["post"]["responses"]["200"]["content"]
    if "text/event-stream" not in content or "prompt_logprobs" in fields:
        return
    event = content["text/event-stream"]["schema"]["properties"]["data"]["else"]["contentSchema"]
    events = event["anyOf"][0]["$ref"].rpartition("/")[2]
    lines = served.call("POST", path, json={**body, "stream": True}).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ") and "[DONE]" not in line]
    assert data
    for each in data:
        named(document, events).validate(json.loads(each))


def test_errors_are_as_described(served: InProcess, document: dict[str, Any]) -> None:
    for response in (served.get("/nothing"), served.complete(n=0), served.call("POST", "/tokenize", content=b"[")):
        named(document, "Error").validate(response.json())


@pytest.mark.parametrize("deadline", ["9" * 400, "-1", "0", '"1"', "true"])
def test_a_number_that_no_float_holds(served: InProcess, deadline: str) -> None:
    body = f'{{"prompt": "a", "deadline": {deadline}}}'.encode()
    headers = {"content-type": "application/json"}
    assert_refused(served.call("POST", "/v1/completions", content=body, headers=headers), 400, "deadline")

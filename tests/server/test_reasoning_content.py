"""Thinking over HTTP, apart from content: streamed and whole, tags split over tokens, missing, or in the prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import openai
import pytest
from official_types import check_event
from server_harness import CHAT, MODEL, USER, InProcess, assert_refused, strict
from toy import make_toy

from octavo import EngineConfig
from octavo.server.settings import ServerConfig

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if begin %}<think>{% elif enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)
CALL = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
# What a chat answers, token by token.
ANSWERS = {
    "thinks": ("<th", "ink>", "Why?", " So.", "</", "think>", " ", "Yes", "!"),
    "never ends": ("<think>", "Why?", " So.", " And", " so", "."),
    "only closes": ("Why?", "</think>", "Yes"),
    "does not think": ("Yes", "!", "<think>", "no", "</think>"),
    "calls": ("<think>", "Hm", "</think>", CALL),
}
BEGIN = {"chat_template_kwargs": {"begin": True}}


def start(folder: Path, answer: tuple[str, ...]) -> InProcess:
    make_toy(folder, ("\n", *answer, "<eos>"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    return InProcess(folder, ServerConfig(access_log=False), EngineConfig(num_blocks=256, max_seqs=4)).start()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, InProcess]]:
    made = {name: start(tmp_path_factory.mktemp("thinking") / MODEL, answer) for name, answer in ANSWERS.items()}
    yield made
    for server in made.values():
        server.close()


def whole(server: InProcess, **fields: Any) -> list[tuple[str, str, str]]:
    """(reasoning, content, reason of the end) of each choice, the same whole and streamed."""
    response = server.chat(**fields)
    assert response.status_code == 200, response.text
    schemas = strict(server.get("/openapi.json").content)["components"]["schemas"]
    jsonschema_rs.Draft202012Validator(schemas["ChatCompletion"]).validate(response.json())
    said = [
        (each["message"].get("reasoning_content", ""), each["message"]["content"], each["finish_reason"])
        for each in response.json()["choices"]
    ]
    streamed = [["", "", ""] for _ in said]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = server.events(server.chat(**fields, **options))
    for chunk in events.chunks:
        jsonschema_rs.Draft202012Validator(schemas["ChatCompletionChunk"]).validate(chunk)
        for choice in chunk["choices"]:
            parts = streamed[choice["index"]]
            parts[0] += choice["delta"].get("reasoning_content", "")
            parts[1] += choice["delta"].get("content", "")
            parts[2] += choice["finish_reason"] or ""
            assert len(choice["delta"].keys() & {"content", "reasoning_content"}) <= 1
    assert list(map(tuple, streamed)) == said
    usages = [body["usage"] | {"prompt_tokens_details": None} for body in (events.chunks[-1], response.json())]
    assert usages[0] == usages[1]  # but for what was cached meanwhile
    return said


def thought(response: httpx.Response) -> int:
    return int(response.json()["usage"]["completion_tokens_details"]["reasoning_tokens"])


@pytest.mark.parametrize(
    ("name", "fields", "expected", "tokens"),
    [
        ("thinks", {}, ("Why? So.", "Yes!", "stop"), 6),
        ("thinks", BEGIN, ("Why? So.", "Yes!", "stop"), 4),
        ("thinks", {"max_tokens": 4}, ("Why? So.", "", "length"), 4),
        ("thinks", {"max_tokens": 5}, ("Why? So.</", "", "length"), 5),
        ("thinks", {"stop": "So"}, ("Why?", "", "stop"), 4),
        ("thinks", {"enable_thinking": False}, ("", " Yes!", "stop"), 0),
        ("thinks", {"reasoning_effort": "none"}, ("", " Yes!", "stop"), 0),
        ("thinks", {"reasoning_effort": "high"}, ("Why? So.", "Yes!", "stop"), 6),
        ("thinks", {"reasoning_effort": "none", "enable_thinking": True}, ("Why? So.", "Yes!", "stop"), 6),
        ("never ends", {}, ("Why? So. And so.", "", "stop"), 7),
        ("never ends", BEGIN | {"max_tokens": 2}, ("Why? So.", "", "length"), 2),
        ("only closes", {}, ("", "Why?</think>Yes", "stop"), 0),
        ("does not think", {}, ("", "Yes!<think>no</think>", "stop"), 0),
    ],
)
def test_thinking_is_apart(
    servers: dict[str, InProcess], name: str, fields: dict[str, Any], expected: tuple[str, ...], tokens: int
) -> None:
    """An answer that ends while it thinks has said nothing."""
    assert whole(servers[name], **fields) == [expected]
    assert thought(servers[name].chat(**fields)) == tokens


def test_every_choice_by_itself(servers: dict[str, InProcess]) -> None:
    assert whole(servers["thinks"], n=3) == [("Why? So.", "Yes!", "stop")] * 3
    assert thought(servers["thinks"].chat(n=3)) == 18


def test_the_closing_tag_alone_where_the_prompt_began(tmp_path: Path) -> None:
    server = start(tmp_path / MODEL, ("<think>", "Why?", "</think>", "Yes"))
    try:
        assert whole(server, **BEGIN) == [("Why?", "Yes", "stop")]
    finally:
        server.close()


def test_log_probabilities_cover_thinking_and_content(servers: dict[str, InProcess]) -> None:
    """The bytes of all entries, joined, are the answer as the model wrote it."""
    answer = servers["thinks"].chat(logprobs=True).json()["choices"][0]
    spelled = bytes(byte for entry in answer["logprobs"]["content"] for byte in entry["bytes"])
    assert spelled.decode() == "".join(ANSWERS["thinks"])
    assert whole(servers["thinks"], logprobs=True) == [("Why? So.", "Yes!", "stop")]


def test_earlier_thinking_is_the_templates_affair(servers: dict[str, InProcess]) -> None:
    past = [*USER, {"role": "assistant", "reasoning_content": "Because", "content": "Yes"}, *USER]
    server = servers["thinks"]
    tokens = server.call("POST", "/tokenize", json={"messages": past}).json()["tokens"]
    prompt = server.call("POST", "/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "<|im_start|>assistant\n<think>Because</think>Yes<|im_end|>" in prompt
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Because"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]},
        {"role": "user", "content": "hi"},
    ]
    usage = server.call("POST", "/v1/responses", json={"input": items, "temperature": 0}).json()["usage"]
    assert usage["input_tokens"] == len(tokens)


def test_calls_come_after_thinking(servers: dict[str, InProcess]) -> None:
    tools = [{"type": "function", "function": {"name": "stop"}}]
    server = servers["calls"]
    (choice,) = server.chat(tools=tools, max_tokens=40).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "Hm"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "stop", "arguments": "{}"}
    chunks = server.events(server.chat(tools=tools, max_tokens=40, stream=True)).chunks
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [next(iter(delta.keys() - {"role"}), None) for delta in deltas] == [
        *("content", "reasoning_content", "tool_calls", "tool_calls", None)
    ]


@pytest.mark.parametrize(("fields", "thoughts"), [(BEGIN, "Why? So."), ({}, ""), ({"enable_thinking": False}, "")])
def test_what_holds_the_answer_begins_after_thinking(
    servers: dict[str, InProcess], fields: dict[str, Any], thoughts: str
) -> None:
    """Case H16: where the prompt has begun the thinking, that is free; elsewhere there is none."""
    assert whole(servers["thinks"], guided_choice=["no", "never"], **fields)[0] in [
        (thoughts, said, "stop") for said in ("no", "never")
    ]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}}
    ((reasoning, content, reason),) = whole(servers["thinks"], response_format=schema, **fields)
    assert (reasoning, type(json.loads(content)), reason) == (thoughts, bool, "stop")


def test_calls_that_must_be_made_are_made_after_thinking(servers: dict[str, InProcess]) -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "stop", "parameters": closed}}]
    (choice,) = servers["thinks"].chat(tools=tools, tool_choice="required", max_tokens=90, **BEGIN).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "Why? So."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "stop", "arguments": "{}"}


def test_what_a_template_cannot_be_told_is_refused(servers: dict[str, InProcess], served: InProcess) -> None:
    """Neither to think nor, if it thinks, to stop; what it does anyway is accepted, and an effort is a hint."""
    assert_refused(served.chat(enable_thinking=True), 400, "enable_thinking", "unsupported")
    for fields in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}):
        answer = served.chat(**fields).json()
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": CHAT, "refusal": None}
        assert "completion_tokens_details" not in answer["usage"]
    for fields in ({"enable_thinking": "no"}, {"reasoning_effort": 3}):
        assert_refused(servers["thinks"].chat(**fields), 400, next(iter(fields)))


def test_responses_have_a_reasoning_item(servers: dict[str, InProcess]) -> None:
    """Whole and streamed, as the official client reads it."""
    server = servers["thinks"]

    async def ask() -> tuple[Any, list[Any]]:
        transport = httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url="http://toy")
        async with openai.AsyncOpenAI(api_key="x", base_url="http://toy/v1", http_client=transport) as client:
            answer = await client.responses.create(model=MODEL, input="hi", temperature=0)
            stream = await client.responses.create(model=MODEL, input="hi", temperature=0, stream=True)
            return answer, [each async for each in stream]

    answer, events = server.do(ask())
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert [part.text for part in answer.output[0].content] == ["Why? So."]
    assert answer.output_text == "Yes!"
    assert answer.usage.output_tokens_details.reasoning_tokens == 6
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == "Yes!"
    kinds = [each.type for each in events]
    assert "".join(each.delta for each in events if each.type == "response.reasoning_text.delta") == "Why? So."
    assert kinds.index("response.reasoning_text.done") < kinds.index("response.output_text.delta")
    schemas = strict(server.get("/openapi.json").content)["components"]["schemas"]
    validator = jsonschema_rs.Draft202012Validator(schemas["ResponseEvent"])
    for each in events:
        validator.validate(json.loads(each.to_json(exclude_unset=True)))
        check_event(json.loads(each.to_json(exclude_unset=True)))
    off = server.call("POST", "/v1/responses", json={"input": "hi", "temperature": 0, "reasoning": {"effort": "none"}})
    assert [item["type"] for item in off.json()["output"]] == ["message"]


def test_the_official_client_reads_the_thinking_of_a_chat(servers: dict[str, InProcess]) -> None:
    server = servers["thinks"]

    async def ask() -> Any:
        transport = httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url="http://toy")
        async with openai.AsyncOpenAI(api_key="x", base_url="http://toy/v1", http_client=transport) as client:
            return await client.chat.completions.create(model=MODEL, messages=USER, temperature=0)  # type: ignore[arg-type]

    answer = server.do(ask())
    assert answer.choices[0].message.reasoning_content == "Why? So."
    assert answer.choices[0].message.content == "Yes!"
    assert answer.usage.completion_tokens_details.reasoning_tokens == 6

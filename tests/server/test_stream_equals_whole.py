"""Case I09: whatever is asked, an answer is the same streamed and whole: text, thinking, calls, reasons, figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_harness import MODEL, USER, InProcess
from toy import make_random

from octavo import EngineConfig
from octavo.server.settings import ServerConfig

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if begin %}<think>{% endif %}{% endif %}"
    "{# </think> #}"
)
WORDS = ("</think>", "<think>", "<tool_call>", "END", "\n\n", "lo")  # of which answers are made, besides bytes
FIRST_WORD = 256  # its id
TOOL = {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["é", "no", 1]}}}
Fields = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A random model that thinks, some of whose tokens are tags."""
    folder = make_random(tmp_path_factory.mktemp("equal") / MODEL, words=WORDS)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    started = InProcess(folder, ServerConfig(access_log=False), EngineConfig(num_blocks=256, max_seqs=8)).start()
    yield started
    started.close()


def fields_of(draw: st.DrawFn) -> Fields:
    """What completions and chats both take."""
    fields: Fields = {
        "temperature": draw(st.sampled_from([0, 0.7, 1])),
        "seed": draw(st.integers(0, 99)),
        "n": draw(st.sampled_from([1, 1, 3])),
        "max_tokens": draw(st.integers(1, 24)),
        "min_tokens": draw(st.sampled_from([0, 0, 1])),
        "ignore_eos": draw(st.booleans()),
        "skip_special_tokens": draw(st.booleans()),
        "include_stop_str_in_output": draw(st.booleans()),
        "stop": draw(st.sampled_from([None, "é", ["lo", "!"], "\n", "END"])),
        "frequency_penalty": draw(st.sampled_from([0, 1.5])),
        "logit_bias": {str(FIRST_WORD + word): 6 for word in draw(st.sets(st.integers(0, len(WORDS) - 1)))},
        "top_k": draw(st.sampled_from([0, 3])),
    }
    return {name: value for name, value in fields.items() if value is not None}


@st.composite
def completions(draw: st.DrawFn) -> Fields:
    fields = fields_of(draw)
    searched = {"beam_width": 3, "temperature": 0, "frequency_penalty": 0, "logit_bias": {}}
    extra = draw(st.sampled_from([{}, {}, {"best_of": 4}, searched, {"guided_regex": "(é|no)+"}]))
    if "best_of" in extra:
        fields["n"] = min(fields["n"], 3)
    return {
        **fields,
        "prompt": draw(st.sampled_from(["a", ["a", "Hel", "x<think>"], [[70, 71], [72]]])),
        "echo": draw(st.booleans()),
        **draw(st.sampled_from([{}, {"logprobs": 0}, {"logprobs": 2}])),
        **extra,
    }


@st.composite
def chats(draw: st.DrawFn) -> Fields:
    held = [
        *({}, {}),
        {"response_format": SCHEMA},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 90},
    ]
    return {
        **fields_of(draw),
        "messages": USER,
        "chat_template_kwargs": {"begin": draw(st.booleans())},
        **draw(st.sampled_from([{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}])),
        **draw(st.sampled_from(held)),
    }


LIMITS = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def both(server: InProcess, path: str, fields: Fields) -> tuple[Fields, list[Fields], Fields]:
    """The whole answer, a stream's chunks, and the last one, with its usage."""
    body = {"model": MODEL, **fields}
    whole = server.call("POST", path, json=body)
    stream = server.call("POST", path, json={**body, "stream": True, "stream_options": {"include_usage": True}})
    assert (whole.status_code, stream.status_code) == (200, 200), (whole.text, stream.text)
    events = server.events(stream)
    assert events.done
    *chunks, last = events.chunks
    assert last["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"):
        assert last["usage"].get(name) == whole.json()["usage"].get(name)
    return whole.json(), chunks, last


@LIMITS
@given(completions())
def test_completions(server: InProcess, fields: Fields) -> None:
    whole, chunks, _ = both(server, "/v1/completions", fields)
    for choice in whole["choices"]:
        pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == [choice["finish_reason"]]
        assert pieces[-1]["stop_reason"] == choice["stop_reason"]
        lists: Fields = {name: [] for name in choice["logprobs"] or {}}
        for piece in pieces:
            for name, values in (piece["logprobs"] or {}).items():
                lists[name] += values or []
        assert lists == {name: values or [] for name, values in (choice["logprobs"] or {}).items()}


@LIMITS
@given(chats())
def test_chats(server: InProcess, fields: Fields) -> None:
    whole, chunks, _ = both(server, "/v1/chat/completions", fields)
    for choice in whole["choices"]:
        pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        message, calls = choice["message"], list[Fields]()
        for piece in pieces:
            for part in piece["delta"].get("tool_calls", ()):
                if "id" in part:
                    calls.append(dict(part["function"]))
                else:
                    calls[part["index"]]["arguments"] += part["function"]["arguments"]
        for name in ("content", "reasoning_content"):
            said = "".join(piece["delta"].get(name, "") for piece in pieces)
            assert said == (message.get(name) or "")
        assert calls == [call["function"] for call in message.get("tool_calls", ())]
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == [choice["finish_reason"]]
        entries = [entry for piece in pieces if piece["logprobs"] for entry in piece["logprobs"]["content"]]
        assert entries == (choice["logprobs"] or {"content": []})["content"]


@LIMITS
@given(chats())
def test_responses(server: InProcess, fields: Fields) -> None:
    renamed = {"messages": "input", "max_tokens": "max_output_tokens"}
    alone = ("n", "logprobs", "top_logprobs", "response_format", "tools")
    body = {renamed.get(name, name): value for name, value in fields.items() if name not in alone} | {"input": "hi"}
    if "tools" in fields:
        body["tools"] = [{"type": "function", **TOOL["function"]}]  # type: ignore[dict-item]
    whole = server.call("POST", "/v1/responses", json=body).json()
    lines = server.call("POST", "/v1/responses", json={**body, "stream": True}).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    texts: dict[int, str] = {}
    for each in events:
        if each["type"].endswith(".delta"):
            texts[each["output_index"]] = texts.get(each["output_index"], "") + each["delta"]
    final = events[-1]["response"]
    assert [_said(item) for item in final["output"]] == [_said(item) for item in whole["output"]]
    assert [texts.get(place, "") for place in range(len(final["output"]))] == [
        _said(item)[1] for item in whole["output"]
    ]
    assert (final["status"], final["usage"]["output_tokens"]) == (whole["status"], whole["usage"]["output_tokens"])


def _said(item: Fields) -> tuple[str, str]:
    if item["type"] == "function_call":
        return item["type"], item["arguments"]
    return item["type"], "".join(part["text"] for part in item["content"])

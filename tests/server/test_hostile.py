"""Bodies that are wrong, odd or huge: each is refused in the one shape, and the server goes on as before."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from server_harness import MODEL, USER, InProcess, assert_refused, strict

BIG = 2**70

# Case, fields, the field that is named.
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    *(("G02", {"logit_bias": bias}, "logit_bias") for bias in ({"191222": -100}, {"-1": 5}, {"abc": 1}, {"5": 1000})),
    *(("G02", {"logit_bias": bias}, "logit_bias") for bias in ({"5": None}, {"5": True}, [1], "x", {"5": "1"})),
    *(("G02", {"stop_token_ids": ids, "min_tokens": 1}, "stop_token_ids") for ids in ([151645], [-1], [True], "x")),
    *(("G03", {"temperature": value}, "temperature") for value in (-1, 3, 1e308, True, "1", BIG)),
    *(("G03", {"top_p": value}, "top_p") for value in (-0.1, 1.1, True)),
    *(("G03", {name: 5}, name) for name in ("presence_penalty", "frequency_penalty", "min_p")),
    *(("G03", {"repetition_penalty": value}, "repetition_penalty") for value in (0, -1)),
    *(("G03", {"top_k": value}, "top_k") for value in (-2, 1.5, True, BIG)),
    *(("G03", {"seed": value}, "seed") for value in ("x", BIG, True, 1.5)),
    *(("G03", {"n": value}, "n") for value in (0, -1, 129, True, 10**6)),
    *(("G03", {"min_tokens": value}, "min_tokens") for value in (-1, 5, True)),
    *(("F05", {"stop": value}, "stop") for value in ("", [""], ["", "END"], [1], {"a": 1}, ["x"] * 65, True)),
    *(("G10", {"bad_words": value}, "bad_words") for value in ([""], [" "], ["\t"], [1])),
    ("G03", {"ignore_eos": 1}, "ignore_eos"),
    ("G03", {"skip_special_tokens": "no"}, "skip_special_tokens"),
    ("G03", {"include_stop_str_in_output": 1}, "include_stop_str_in_output"),
]


@pytest.mark.parametrize(
    ("case", "fields", "param"), BAD_FIELDS, ids=[f"{case}-{str(fields)[:40]}" for case, fields, _ in BAD_FIELDS]
)
def test_a_field_out_of_range(served: InProcess, case: str, fields: dict[str, Any], param: str) -> None:
    """Cases G02, G03, F05, G10: E400 that names the field, on both endpoints."""
    assert_refused(served.complete("a", **fields), 400, param)
    assert_refused(served.chat(**{"max_tokens": 4, **fields}), 400, param)


BAD_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [1, None]}, "prompt"),
    ({"prompt": [10**9]}, "prompt"),
    ({"prompt": [BIG], "echo": True}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": "a" * 256}, "prompt"),
    ({"prompt": "a" * 250, "max_tokens": 100}, "max_tokens"),
    ({"prompt": [1] * 256}, "prompt"),
    ({"prompt": ["a"] * 1025}, "prompt"),
    ({"prompt": ["a"] * 100, "n": 100}, "n"),
    ({"best_of": 1, "n": 2}, "best_of"),
    ({"best_of": True}, "best_of"),
    ({"best_of": 129}, "best_of"),
    ({"best_of": 3, "beam_width": 4}, "best_of"),
    ({"beam_width": 0}, "beam_width"),
    ({"beam_width": []}, "beam_width"),
    ({"beam_width": 2, "n": 3}, "n"),
    ({"beam_width": 2, "temperature": 1}, "temperature"),
    ({"beam_width": 2, "logit_bias": {"1": 5}}, "logit_bias"),
    ({"beam_width": 2, "use_beam_search": False}, "use_beam_search"),
    ({"use_beam_search": True}, "beam_width"),
    ({"use_beam_search": 1}, "use_beam_search"),
    ({"length_penalty": 2}, "length_penalty"),
    ({"early_stopping": True}, "early_stopping"),
    ({"beam_width": 2, "length_penalty": 11}, "length_penalty"),
    ({"beam_width": 2, "early_stopping": "always"}, "early_stopping"),
    ({"prompt": ["a"] * 100, "best_of": 100}, "n"),
    ({"suffix": "x"}, "suffix"),
    ({"echo": 1}, "echo"),
    ({"echo": True, "logprobs": 1, "prompt_logprobs": "x"}, "prompt_logprobs"),
    ({"prompt_logprobs": True}, "prompt_logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_COMPLETIONS, ids=[str(fields)[:40] for fields, _ in BAD_COMPLETIONS])
def test_a_completion_that_cannot_be(served: InProcess, fields: dict[str, Any], param: str) -> None:
    """Cases N07, D02, G03 and the choices on empty prompts and context lengths."""
    assert_refused(served.complete(**{"prompt": "a", **fields}), 400, param)


def test_context_errors_name_both_lengths(served: InProcess) -> None:
    """Choice 24."""
    for response in (served.complete("a" * 250, max_tokens=100), served.complete([1] * 300)):
        assert_refused(response, 400, code="context_length_exceeded")
        assert "256" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "messages", [None, [], "hi", [1], [{}], [{"role": "boss", "content": "x"}], [{"role": "user", "content": 5}]]
)
def test_messages_that_are_none(served: InProcess, messages: object) -> None:
    """Case G12: missing and malformed messages."""
    assert_refused(served.chat(messages), 400, "messages")


@pytest.mark.parametrize(
    "fields",
    [{"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_p": 1}, {"top_k": -1}, {"top_k": 0}, {"seed": None}]
    + [{name: value} for name in ("presence_penalty", "frequency_penalty") for value in (-2, 2)],
)
def test_values_at_the_limits(served: InProcess, fields: dict[str, Any]) -> None:
    """Case G03."""
    assert served.complete("a", **fields).status_code == 200


BAD_BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"null", 400),
    (b'"a"', 400),
    (b'{"prompt": "a", "temperature": NaN}', 400),
    (b'{"prompt": "a", "temperature": Infinity}', 400),
    (b'{"prompt": "a", "temperature": 1e999}', 400),
    (b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", 400),
    (b'{"prompt": "\xff\xfe"}', 400),
    (b'{"prompt": "\xc0\xaf"}', 400),
    (b"[" * 100_000, 400),
    (b'{"a":' * 50_000, 400),
    (b'{"prompt": "a", "model": "\\ud83d"}', 404),
    (b'{"prompt": "a", "model": 5}', 400),
]


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=[body[:40].decode("latin1") for body, _ in BAD_BODIES])
def test_a_body_that_is_no_request(served: InProcess, body: bytes, status: int) -> None:
    """Cases G12, G09; choice 25."""
    response = served.call("POST", "/v1/completions", content=body, headers={"content-type": "application/json"})
    assert_refused(response, status)


NESTED: list[tuple[str, str]] = [
    ("/v1/completions", '"prompt": "a", "max_tokens": 1, "user": DEEP'),
    ("/v1/completions", '"prompt": DEEP'),
    ("/v1/completions", '"prompt": "a", "stop": DEEP'),
    ("/v1/chat/completions", '"messages": [{"role": "user", "content": DEEP}]'),
    ("/v1/chat/completions", '"messages": [{"role": "user", "content": "a"}], "tool_choice": DEEP'),
    ("/v1/responses", '"input": "hi", "text": {"format": {"type": "text", "x": DEEP}}'),
    ("/v1/responses", '"input": "hi", "metadata": DEEP'),
    ("/v1/embeddings", '"input": DEEP'),
]


@pytest.mark.parametrize(("path", "body"), NESTED)
def test_what_is_nested_deeply(served: InProcess, path: str, body: str) -> None:
    """Never a 500, however near it comes to what Python's own recursion allows."""
    headers = {"content-type": "application/json"}
    for depth in (100, 200, 900, *range(950, 1000, 7), 10_000):
        data = "{" + body.replace("DEEP", "[" * depth + "]" * depth) + "}"
        response = served.call("POST", path, content=data.encode(), headers=headers)
        if depth > 128:
            assert_refused(response, 400, code="invalid_json")
        assert response.status_code in (200, 400)


@pytest.mark.parametrize("text", ["\\ud83d", "\\udc00a", "a\\u0000b", "\\ufffe"])
def test_odd_text_is_text(served: InProcess, text: str) -> None:
    """Case G09: never a 500, and what comes back is UTF-8."""
    quoted = f'"{text}"'
    headers = {"content-type": "application/json"}
    bodies = {
        "/v1/completions": f'{{"prompt": {quoted}, "stop": {quoted}, "user": {quoted}, "max_tokens": 2, "echo": true}}',
        "/v1/chat/completions": f'{{"messages": [{{"role": "user", "content": {quoted}, "name": {quoted}}}]}}',
        "/tokenize": f'{{"prompt": {quoted}}}',
    }
    for path, body in bodies.items():
        response = served.call("POST", path, content=body.encode(), headers=headers)
        assert response.status_code == 200, response.text
        strict(response.content)


def test_bodies_too_large(served: InProcess) -> None:
    """Case D12: 413, before it is read where its header says so, and elsewhere as soon as it is too much."""
    body = b'{"prompt": "' + b"\n" * (2 << 20) + b'"}'
    headers = {"content-type": "application/json"}
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        assert_refused(served.call("POST", path, content=body, headers=headers), 413, code="body_too_large")

    async def parts() -> Any:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    assert_refused(served.call("POST", "/v1/completions", content=parts(), headers=headers), 413)
    lying = {**headers, "content-length": "9" * 30}
    assert_refused(served.call("POST", "/v1/completions", content=b"{}", headers=lying), 413)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "\n" * 400_000}),
        ("/v1/completions", {"prompt": [1] * 300_000}),
        ("/v1/completions", {"prompt": "a", "stop": ["x" * 900_000]}),
        ("/v1/completions", {"prompt": "a", "bad_words": ["x"] * 200_000}),
        ("/v1/completions", {"prompt": "a", "logit_bias": {str(token): 1 for token in range(60_000)}}),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [1] * 300_000}),
        ("/v1/chat/completions", {"messages": USER * 10_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 900_000}]}),
        ("/tokenize", {"prompt": "word " * 180_000}),
    ],
)
def test_big_bodies_stall_nobody(served: InProcess, path: str, fields: dict[str, Any]) -> None:
    """Cases D12, N09: answered quickly, and /health meanwhile at once."""

    async def both() -> tuple[int, float]:
        post = asyncio.create_task(served._client.post(path, json={"model": MODEL, **fields}))
        slowest = 0.0
        while not post.done():
            began = time.monotonic()
            assert (await served._client.get("/health")).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.01)
        return (await post).status_code, slowest

    began = time.monotonic()
    status, slowest = served.do(both())
    assert status in (200, 400)
    assert slowest < 1
    assert time.monotonic() - began < 3


def test_routes_and_methods(served: InProcess) -> None:
    """Case G12."""
    assert_refused(served.get("/nothing"), 404, code="not_found")
    for path in ("/v1/completions/", "/health/"):
        assert_refused(served.call("POST", path, json={"prompt": "a"}), 404, code="not_found")
    assert served.get("/health").headers["openai-processing-ms"].isdecimal()
    assert_refused(served.get("/v1/completions"), 405, code="method_not_allowed")
    assert_refused(served.call("POST", "/v1/models"), 405)
    assert_refused(served.complete("a", model="gpt-4"), 404, "model", "model_not_found")
    assert_refused(served.get("/v1/models/other"), 404, "model", "model_not_found")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert_refused(served.call("POST", "/v1/completions", content=b"{}", headers=kind), 415, code="wrong_type")
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    assert_refused(served.call("POST", "/tokenize", content=b"{}", headers=packed), 415, code="wrong_encoding")


@pytest.mark.parametrize("tokens", ["x", [-1], [True], [10**9], [None], [1.5], None])
def test_what_cannot_be_detokenized(served: InProcess, tokens: object) -> None:
    assert_refused(served.call("POST", "/detokenize", json={"tokens": tokens}), 400, "tokens")


@pytest.mark.parametrize("given", ["x" * 100_000, "a b", "a\u00e9", "", "<script>"])
def test_a_request_id_stays_small_and_plain(served: InProcess, given: str) -> None:
    """Case G14: an id that is long or odd is replaced, and none comes into the chunks."""
    headers = {"x-request-id": given.encode("latin-1")}
    body = {"prompt": "a", "stream": True, "max_tokens": 3}
    response = served.call("POST", "/v1/completions", json=body, headers=headers)
    assert len(response.headers["x-request-id"]) == 24
    assert len(response.content) < 2000
    kept = served.call("POST", "/v1/completions", json=body, headers={"x-request-id": "mine-1"})
    assert kept.headers["x-request-id"] == "mine-1"
    assert b"mine-1" not in kept.content


def test_after_all_that(served: InProcess) -> None:
    """LIVE and IDLE."""
    served.assert_alive()
    served.assert_idle()
    assert json.loads(served.get("/health").content) == {"status": "ready"}

"""/v1/embeddings: both encodings, every form of input, what is refused and by which name, the official client."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from server_harness import MODEL, InProcess, assert_refused, strict
from toy import CONTEXT

from octavo import EngineConfig

TEXTS = ["Hello", "a", "Hello world, this is a longer text than a block"]


def embed(served: InProcess, given: Any, **fields: Any) -> httpx.Response:
    return served.call("POST", "/v1/embeddings", json={"model": MODEL, "input": given, **fields})


def vectors(response: httpx.Response) -> np.ndarray:
    """[texts, dimensions], from either encoding."""
    assert response.status_code == 200, response.text
    answer = strict(response.content)
    assert answer["object"] == "list"
    assert answer["model"] == MODEL
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    assert {each["object"] for each in answer["data"]} == {"embedding"}
    found = [each["embedding"] for each in answer["data"]]
    rows = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else np.array(row) for row in found]
    return np.stack(rows).astype(np.float32)


def test_both_encodings_have_the_same_bits(served: InProcess) -> None:
    floats = vectors(embed(served, TEXTS))
    assert floats.shape == (3, 128)
    np.testing.assert_allclose(np.linalg.norm(floats, axis=1), 1, rtol=1e-6)
    assert np.array_equal(vectors(embed(served, TEXTS, encoding_format="base64")), floats)
    assert np.array_equal(vectors(embed(served, TEXTS, encoding_format=None)), floats)
    usage = embed(served, TEXTS).json()["usage"]
    count = sum(len(served.call("POST", "/tokenize", json={"prompt": text}).json()["tokens"]) for text in TEXTS)
    assert usage == {"prompt_tokens": count, "total_tokens": count}
    served.assert_idle()


def test_forms_of_input(served: InProcess) -> None:
    """Case N07: a text, token ids, lists of either; each in its own place."""
    ids = [served.call("POST", "/tokenize", json={"prompt": text}).json()["tokens"] for text in TEXTS]
    expected = vectors(embed(served, TEXTS))
    assert np.array_equal(vectors(embed(served, ids)), expected)
    for place, text in enumerate(TEXTS):
        assert np.array_equal(vectors(embed(served, text)), expected[place : place + 1])
        assert np.array_equal(vectors(embed(served, ids[place])), expected[place : place + 1])
    many = vectors(embed(served, [TEXTS[1]] * 300, encoding_format="base64"))  # more than run or wait at once
    assert np.array_equal(many, np.repeat(expected[1:2], 300, axis=0))


def test_dimensions_pooling_and_raw_vectors(served: InProcess) -> None:
    raw = vectors(embed(served, TEXTS, normalize=False))
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    cut = vectors(embed(served, TEXTS, dimensions=16, user="ann"))
    np.testing.assert_allclose(cut, raw[:, :16] / np.linalg.norm(raw[:, :16], axis=1, keepdims=True), rtol=1e-5)
    assert vectors(embed(served, TEXTS, dimensions=128, encoding_format="base64")).shape == (3, 128)
    mean = vectors(embed(served, TEXTS, pooling="mean", normalize=False))
    np.testing.assert_allclose(mean[1], raw[1], rtol=1e-6)  # of one token
    assert not np.allclose(mean[0], raw[0])


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"input": ""}, "input", "input is empty"),
        ({"input": ["a", "b", ""]}, "input", "input[2] is empty"),
        ({"input": ["a", "x" * CONTEXT + "y"]}, "input", "input[1] has 257 tokens and the context is 256"),
        ({"input": ["a", "x" * 9000]}, "input", "input[1]: the prompt has at least"),
        ({"input": [[1], [2, 10**6]]}, "input", "input[1]: 1000000 is no token id"),
        ({"input": [[1], []]}, "input", "input must be"),
        ({"input": [1] * (CONTEXT + 1)}, "input", "input has 257 tokens"),
        ({"input": []}, "input", "input must be"),
        ({"input": ["a", 1]}, "input", "not mixed"),
        ({"input": [True]}, "input", "input must be"),
        ({"input": {"a": 1}}, "input", "input must be"),
        ({"input": None}, "input", "missing"),
        ({"input": ["a"] * 2049}, "input", "input must be"),
        ({"encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"dimensions": 0}, "dimensions", "from 1"),
        ({"dimensions": 129}, "dimensions", "more than the 128"),
        ({"dimensions": 1.5}, "dimensions", "whole number"),
        ({"pooling": "cls"}, "pooling", "'last' or 'mean'"),
        ({"stream": True}, "stream", "not supported"),
        ({"cache_salt": ""}, "cache_salt", "not empty"),
    ],
)
def test_what_is_refused_and_by_which_name(served: InProcess, fields: dict[str, Any], param: str, told: str) -> None:
    response = embed(served, **{"given": "a"} | {name.replace("input", "given"): v for name, v in fields.items()})
    assert_refused(response, 400, param)
    assert told in response.json()["error"]["message"]
    served.assert_alive()


def test_another_model_and_too_small_a_pool(served: InProcess, serve: Callable[..., InProcess]) -> None:
    assert_refused(embed(served, "a", model="other"), 404, "model", "model_not_found")
    small = serve(EngineConfig(num_blocks=4, max_seqs=2))
    response = embed(small, ["a", "x" * 100])
    assert_refused(response, 400, "input", "pool_too_small")
    assert "prompt 1" in response.json()["error"]["message"]
    assert vectors(embed(small, ["a", "x" * 60])).shape == (2, 128)
    small.assert_idle()


def test_a_context_full_of_text(served: InProcess) -> None:
    """Nothing follows it, so unlike a prompt to complete it may be as long as the context."""
    assert vectors(embed(served, "x" * CONTEXT)).shape == (1, 128)
    assert_refused(served.complete("x" * CONTEXT), 400, "prompt", "context_length_exceeded")


def test_control_tokens_in_a_text_stay_text(served: InProcess) -> None:
    """Case G08."""
    assert embed(served, "<eos>").json()["usage"]["prompt_tokens"] == 5


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_in_other_company(served: InProcess, pooling: str) -> None:
    """From the cache, which other requests filled, the bits are those of one that nobody came before."""
    alone = vectors(embed(served, TEXTS[2], pooling=pooling, cache_salt=f"new {pooling}"))
    assert served.complete(TEXTS[2]).status_code == 200
    assert np.array_equal(vectors(embed(served, TEXTS[2], pooling=pooling, priority=2)), alone)


def test_the_official_client_reads_both_encodings(served: InProcess) -> None:
    """It asks for base64 unless told otherwise, and decodes that itself."""
    expected = vectors(embed(served, TEXTS))

    async def ask(**how: Any) -> Any:
        transport = httpx.AsyncClient(transport=httpx.ASGITransport(served.app), base_url="http://toy")
        async with openai.AsyncOpenAI(api_key="x", base_url="http://toy/v1", http_client=transport) as client:
            return await client.embeddings.create(model=MODEL, input=TEXTS, **how)

    for how in ({}, {"encoding_format": "float"}, {"user": "ann", "dimensions": 128}):
        answer = served.do(ask(**how))
        assert np.array_equal(np.array([each.embedding for each in answer.data], np.float32), expected)
        assert answer.usage.total_tokens == answer.usage.prompt_tokens > 0
    with pytest.raises(openai.BadRequestError, match="more than the 128"):
        served.do(ask(dimensions=4096))


def test_it_is_counted_as_any_request(serve: Callable[..., InProcess]) -> None:
    server = serve()
    assert vectors(embed(server, TEXTS, deadline=30)).shape == (3, 128)
    assert server.metric('octavo_http_responses_total{path="/v1/embeddings",status="200"}') == 1
    assert server.metric("octavo_prompt_tokens_total") == embed(server, TEXTS).json()["usage"]["total_tokens"]
    assert server.metric("octavo_generation_tokens_total") == 0
    server.assert_idle()

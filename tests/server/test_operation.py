"""Running a server: keys, limits, counts, faults, clients that leave."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_harness import MODEL, InProcess, assert_refused, parse_events, strict

from octavo import LLM, EngineConfig
from octavo.engine.engine import Engine
from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.sampler import SequenceSampler
from octavo.server.keys import ApiKeys
from octavo.server.metrics import Metrics
from octavo.server.settings import ServerConfig

Serve = Callable[..., InProcess]
LONG = {"max_tokens": 200, "ignore_eos": True}


def slow_steps(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    step = Engine.step

    def slow(engine: Engine) -> Any:
        time.sleep(seconds)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow)


def key_file(folder: Path, **keys: str) -> str:
    lines = [f"{tenant}:{hashlib.sha256(key.encode()).hexdigest()}" for tenant, key in keys.items()]
    path = folder / "keys"
    path.write_text("\n".join(["# who may ask", "", *lines]))
    return str(path)


def test_models_version_and_health(served: InProcess) -> None:
    (card,) = served.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == (MODEL, "model", 256)
    assert served.get(f"/v1/models/{MODEL}").json() == card
    assert served.get("/version").json()["version"].startswith("0.")
    assert served.get("/health").status_code == served.get("/ready").status_code == 200


def test_tokens_there_and_back(served: InProcess) -> None:
    counted = served.call("POST", "/tokenize", json={"prompt": "Hello é <eos>"}).json()
    assert counted["count"] == len(counted["tokens"])
    back = served.call("POST", "/detokenize", json={"tokens": counted["tokens"]}).json()
    assert back == {"prompt": "Hello é <eos>"}


def test_keys_name_tenants(serve: Serve, tmp_path: Path) -> None:
    """Case G12 (missing key: 401), A11 (tenants share no cached blocks)."""
    server = serve(keys=ApiKeys.from_file(key_file(tmp_path, ann="a-key", bob="b-key")))
    assert_refused(server.complete("a"), 401, code="invalid_api_key")
    assert_refused(server.get("/v1/models"), 401)
    assert server.get("/health").status_code == 200

    def ask(key: str, **fields: Any) -> Any:
        body = {"model": MODEL, "prompt": "abcd" * 10, "max_tokens": 2, **fields}
        return server.call("POST", "/v1/completions", json=body, headers={"authorization": f"Bearer {key}"})

    for wrong in ("", "x", "a-key2", "é"):
        headers = {"authorization": f"Bearer {wrong}".encode()}
        assert_refused(server.call("POST", "/v1/completions", json={}, headers=headers), 401)
    cached = [ask(key).json()["usage"]["prompt_tokens_details"]["cached_tokens"] for key in ("a-key", "a-key", "b-key")]
    assert cached == [0, 32, 0]
    assert ask("a-key", cache_salt="s").json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("text", ["ann:secret-key", "", "# only this", ":" + "0" * 64, "a b:" + "0" * 64])
def test_a_bad_key_file_is_told_without_its_content(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match="api_keys") as caught:
        ApiKeys.from_file(str(path))
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        ApiKeys.from_file(str(tmp_path / "none"))


def test_a_flood(serve: Serve) -> None:
    """Case N08: all served, or 429 with the time after which to try again; in the end nothing is held."""
    server = serve(max_queue=16)

    async def flood() -> list[Any]:
        body = {"prompt": "a", "max_tokens": 2, "temperature": 0}
        return await asyncio.gather(*(server._client.post("/v1/completions", json=body) for _ in range(300)))

    responses = server.do(flood())
    good = [response for response in responses if response.status_code == 200]
    refused = [response for response in responses if response.status_code != 200]
    assert len(good) >= 24
    assert {response.json()["choices"][0]["text"] for response in good} == {"bc"}
    assert refused
    for response in refused:
        assert_refused(response, 429, code="queue_full")
        assert 1 <= int(response.headers["retry-after"]) <= 60
    assert server.metric("octavo_requests_rejected_total") == len(refused)
    server.assert_idle()
    server.assert_alive()


def test_counters(serve: Serve) -> None:
    """Case N01: each kind of end is counted once; generated tokens are those of the usage."""
    server = serve()
    used = sum(server.complete("a", max_tokens=5).json()["usage"]["completion_tokens"] for _ in range(4))
    used += server.chat().json()["usage"]["completion_tokens"]
    assert_refused(server.complete("a", temperature=-1), 400)
    assert server.metric("octavo_generation_tokens_total") == used
    assert server.metric('octavo_requests_total{finish_reason="length"}') == 4
    assert server.metric('octavo_requests_total{finish_reason="stop"}') == 1
    assert server.metric("octavo_requests_aborted_total") == 0
    prompts = (
        4 + server.call("POST", "/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()["count"]
    )
    assert server.metric("octavo_prompt_tokens_total") == prompts
    assert server.metric('octavo_http_responses_total{path="/v1/completions",status="200"}') == 4
    assert server.metric('octavo_http_responses_total{path="/v1/completions",status="400"}') == 1
    assert server.metric("octavo_request_seconds_count") == 5
    assert server.metric("octavo_inter_token_seconds_count") == used - 5
    assert server.metric("octavo_kv_num_blocks") == 64


def test_the_exposition_is_valid(served: InProcess) -> None:
    """Case N01: each name has one HELP and one TYPE before its samples; buckets only grow."""
    served.get('/odd"path')
    response = served.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    typed: dict[str, str] = {}
    below: dict[str, float] = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed
            typed[name] = kind
        elif not line.startswith("# HELP "):
            sample, _, value = line.rpartition(" ")
            name = sample.partition("{")[0]
            base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert name in typed or typed[base] == "histogram"
            assert float(value) >= 0
            assert (typed.get(name) == "counter") == name.endswith("_total")
            if name.endswith("_bucket"):
                assert float(value) >= below.get(base, 0)
                below[base] = float(value)


def test_histograms_and_labels() -> None:
    metrics = Metrics()
    metrics.count("octavo_http_responses_total", path='a"b\\c\nd', status="200")
    text = metrics.render(None, {"version": "1"})
    assert 'octavo_http_responses_total{path="a\\"b\\\\c\\nd",status="200"} 1\n' in text
    assert "octavo_kv_num_blocks" not in text


def test_a_client_that_leaves_while_it_waits(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases E01, E03: without a stream too, its request ends; the log says 499."""
    slow_steps(monkeypatch, 0.005)
    server = serve(engine=EngineConfig(num_blocks=64, max_seqs=1))

    async def leave(stream: bool) -> None:
        body = b'{"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": %s}' % str(stream).lower().encode()
        left = asyncio.Event()
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
        call = asyncio.create_task(server.app(scope, receive, send))
        await asyncio.sleep(0.1)
        left.set()
        await asyncio.wait_for(call, 2)

    async def all_leave() -> None:
        await asyncio.gather(*(leave(stream) for stream in (True, False) * 3))

    server.do(all_leave())
    server.assert_idle()
    assert server.metric("octavo_requests_aborted_total") == 6
    before = server.metric("octavo_generation_tokens_total")
    time.sleep(0.1)
    assert server.metric("octavo_generation_tokens_total") == before
    server.assert_alive()


def test_a_request_has_its_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_steps(monkeypatch, 0.03)
    server = serve(request_timeout=1)
    assert_refused(server.complete("a", **LONG), 408, code="timeout")
    events = parse_events(server.complete("a", stream=True, **LONG).content)
    assert not events.done
    assert events.chunks[0]["choices"][0]["text"] == "b"
    assert events.chunks[-1]["error"]["code"] == "timeout"
    server.assert_idle()


def test_one_bad_request_fails_alone(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases E09, G12: before the first chunk a real 500, afterwards an event with the error, and no [DONE]."""
    constrain = SequenceSampler.constrain
    letters: dict[int, str] = {}
    fails_at = {"k": 1, "d": 3}  # by the prompt's first letter: the number of tokens before the fault

    def faulty(sampler: SequenceSampler, raw: Any, tokens: Any, prompt_len: int) -> Any:
        if fails_at.get(letters.get(tokens[0], "")) == len(tokens) - prompt_len + 1:
            raise RequestFailed("a fault")
        return constrain(sampler, raw, tokens, prompt_len)

    monkeypatch.setattr(SequenceSampler, "constrain", faulty)
    server = serve()
    for letter in fails_at:
        letters[server.call("POST", "/tokenize", json={"prompt": letter}).json()["tokens"][0]] = letter

    async def four() -> list[Any]:
        prompts = ["a", "k", "b", "d"]
        body = {"temperature": 0, "presence_penalty": 0.01, "max_tokens": 4, "stream": True, "ignore_eos": True}
        post = server._client.post
        return await asyncio.gather(*(post("/v1/completions", json={"prompt": each, **body}) for each in prompts))

    good, failed, fine, broken = server.do(four())
    assert parse_events(good.content).text == "bcdd"
    assert parse_events(fine.content).text == "cddd"
    assert_refused(failed, 500, code="request_failed")
    events = parse_events(broken.content)
    assert not events.done
    assert events.text == "dd"
    assert events.chunks[-1]["error"]["message"] == "a fault"
    assert_refused(server.complete("d", ignore_eos=True, presence_penalty=0.01), 500)
    server.assert_alive()
    server.assert_idle()


def test_equal_request_ids_mean_nothing(serve: Serve) -> None:
    """Case E05: each stream has its own text, and leaving one leaves the other."""
    server = serve()

    async def both() -> list[Any]:
        how = {"headers": {"x-request-id": "same"}}
        body = {"temperature": 0, "max_tokens": 4, "request_id": "same", "stream": True}
        post = server._client.post
        return await asyncio.gather(*(post("/v1/completions", json={"prompt": p, **body}, **how) for p in "abcd"))

    assert [parse_events(each.content).text for each in server.do(both())] == ["bcdd", "cddd", "dddd", "dddd"]
    server.assert_idle()


def test_nothing_is_kept_of_what_is_over(serve: Serve) -> None:
    """Case E06, N03: after many requests of all kinds every table is empty; threads and files are no more."""
    server = serve()

    async def many() -> None:
        post = server._client.post
        for start in range(0, 200, 8):
            bodies = [{"prompt": "a", "max_tokens": 1 + k % 3, "n": 1 + k % 2, "stream": k % 2 == 0} for k in range(8)]
            bodies[start % 8] |= {"temperature": -1}
            await asyncio.gather(*(post("/v1/completions", json=body) for body in bodies))

    server.do(many())
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    server.do(many())
    server.assert_idle()
    engine = server.engine.built.engine
    requests = engine._requests
    readers = server.engine._readers
    tables = [readers, server.engine._adding, requests.by_id, requests._answers, engine._executor._states]
    assert [len(table) for table in tables] == [0] * 5
    assert server.engine._places.taken == 0
    # No more, but maybe fewer: a thread of an earlier test in this process may only end now.
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_a_long_prompt_stalls_no_stream(serve: Serve) -> None:
    """Case N06: while a prompt comes in by chunks of 16, a stream has a token in every step."""
    server = serve(engine=EngineConfig(num_blocks=64, max_seqs=8, max_batched_tokens=16))
    seen: list[str] = []
    observe = server.engine._readers.observe
    assert observe is not None

    def note(deltas: Any) -> None:
        observe(deltas)
        seen.extend("A" if delta.request_id == 0 else "B" for delta in deltas for _ in delta.token_ids)

    server.engine._readers.observe = note

    async def both() -> None:
        post = server._client.post
        first = asyncio.create_task(post("/v1/completions", json={"prompt": "a", **LONG}))
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        await asyncio.gather(first, post("/v1/completions", json={"prompt": "x" * 240, "max_tokens": 1}))

    server.do(both())
    assert seen.index("B") >= 0.8 * 240 / 16


def test_chats_have_the_ids_of_python(served: InProcess, toy_folder: Path) -> None:
    """Case K01."""
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi <eos>"}]
    with LLM(toy_folder, num_blocks=64) as llm:
        expected = llm.chat_tokens(messages)
    assert served.call("POST", "/tokenize", json={"messages": messages}).json()["tokens"] == expected
    assert served.chat(messages).json()["usage"]["prompt_tokens"] == len(expected)


def test_a_server_that_loads_or_drains(toy_folder: Path, serve: Serve) -> None:
    """Case N05: while loading, health is 503 and requests are refused; while draining, only /ready and requests."""
    idle = InProcess(toy_folder, ServerConfig(access_log=False), EngineConfig(num_blocks=64))
    assert idle.get("/health").status_code == 503
    assert_refused(idle.complete("a"), 503, code="unavailable")
    assert_refused(idle.get("/v1/models"), 503)
    idle.close()
    server = serve()
    server.app.draining = True
    assert server.get("/health").status_code == 200
    assert server.get("/ready").status_code == 503
    assert_refused(server.complete("a"), 503)


def test_an_internal_fault_tells_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()

    def breaks(*unused: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(server.app._reader, "_fields", breaks)
    response = server.complete("a")
    assert_refused(response, 500, code="internal_error")
    assert "secret" not in response.text


def test_big_bodies_are_read_beside_the_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N09: however long reading one takes, others are served."""
    server = serve()
    read, go_on = server.app._reader._fields, threading.Event()

    def slowly(data: bytes, declared: Any) -> Any:
        if len(data) > 5000:
            assert go_on.wait(10)
        return read(data, declared)

    monkeypatch.setattr(server.app._reader, "_fields", slowly)

    async def both() -> Any:
        big = {"prompt": "a", "user": "x" * 6000, "max_tokens": 2, "temperature": 0}
        call = asyncio.create_task(server._client.post("/v1/completions", json=big))
        small = await asyncio.wait_for(server._client.post("/v1/completions", json={**big, "user": "x"}), 5)
        go_on.set()
        return small, await call

    for response in server.do(both()):
        assert response.json()["choices"][0]["text"] == "bc"


def test_requests_are_logged(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(access_log=True, keys=ApiKeys.from_file(key_file(tmp_path, ann="a-key")))
    with caplog.at_level(logging.INFO, "octavo.server.access"):
        headers = {"authorization": "Bearer a-key", "x-request-id": "mine"}
        server.call("POST", "/v1/completions", json={"prompt": "a", "max_tokens": 3}, headers=headers)
        server.get("/nothing")
    first, second = (strict(record.getMessage().encode()) for record in caplog.records if "path" in record.getMessage())
    assert first["request_id"] == "mine"
    assert (first["tenant"], first["status"], first["path"]) == ("ann", 200, "/v1/completions")
    assert (first["prompt_tokens"], first["completion_tokens"]) == (1, 3)
    assert second["status"] == 404
    assert "a-key" not in caplog.text

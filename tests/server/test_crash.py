"""What clients see when the engine behind the server fails: once, and again and again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from server_harness import InProcess, assert_refused, parse_events

from octavo.engine.engine import Engine

Serve = Callable[..., InProcess]
LONG = {"max_tokens": 200, "ignore_eos": True}


def break_one_step(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Once the event is set, one step of any engine raises."""
    step, broken = Engine.step, threading.Event()

    def breaks(engine: Engine) -> Any:
        if broken.is_set():
            broken.clear()
            raise ZeroDivisionError("a fault")
        time.sleep(0.005)
        return step(engine)

    monkeypatch.setattr(Engine, "step", breaks)
    return broken


def test_a_crash_fails_what_was_live_and_no_more(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases N05, N01: 500 where nothing was sent yet, an error event where it was; /ready tells; what comes is served;
    counted as answers with an error, and nothing is left."""
    broken, go_on, abandon = break_one_step(monkeypatch), threading.Event(), Engine.abandon

    def slowly(engine: Engine) -> None:
        assert go_on.wait(10)
        abandon(engine)

    monkeypatch.setattr(Engine, "abandon", slowly)
    server = serve()

    async def ask() -> Any:
        post = server._client.post
        bodies = [{"prompt": "a", "stream": stream, "n": 2, **LONG} for stream in (False, True)]
        calls = [asyncio.create_task(post("/v1/completions", json=body)) for body in bodies]
        while server.app._metrics._counters["octavo_generation_tokens_total"][()] < 20:
            await asyncio.sleep(0.001)
        broken.set()
        answers = await asyncio.gather(*calls)
        ready = await server._client.get("/ready")
        after = asyncio.create_task(post("/v1/completions", json={"prompt": "a", "max_tokens": 4, "temperature": 0}))
        await asyncio.sleep(0.01)
        go_on.set()
        return *answers, ready, await after

    whole, stream, ready, after = server.do(ask())
    assert_refused(whole, 500, code="request_failed")
    assert "fault" not in whole.text
    events = parse_events(stream.content)
    assert not events.done
    assert events.chunks[0]["choices"][0]["text"] == "b"
    assert events.chunks[-1]["error"]["code"] == "request_failed"
    assert (ready.status_code, ready.json()) == (503, {"status": "rebuilding"})
    assert after.json()["choices"][0]["text"] == "bcdd"
    assert server.get("/ready").status_code == server.get("/health").status_code == 200
    assert server.metric("octavo_engine_rebuilds_total") == 1
    assert server.metric('octavo_requests_total{finish_reason="error"}') == 4
    assert not server.app._metrics._last_token
    server.assert_alive()
    server.assert_idle()


def test_a_dead_engine_shows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N05: where rebuilding is no use, health is 503 at once, and later requests are refused."""
    server = serve()

    def breaks(engine: Engine) -> Any:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(Engine, "step", breaks)
    for _ in range(4):
        assert_refused(server.complete("a"), 500, code="request_failed")
    server.do(server.engine.ended())
    health = server.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "failed"})
    assert_refused(server.complete("a"), 503)
    assert server.get("/metrics").status_code == 200

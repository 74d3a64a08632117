"""A server in this process around the toy model, and a client that speaks to it without a socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from octavo import AsyncEngine, EngineConfig
from octavo.engine.async_engine import AsyncLimits
from octavo.server.app import Server
from octavo.server.keys import ApiKeys
from octavo.server.metrics import Metrics
from octavo.server.settings import ServerConfig

T = TypeVar("T")

# A chat answers "Helloé!" (the é in two tokens) and ends; "a" goes on with "bcdddd..." for ever.
CHAIN = ("\n", "Hel", "lo", "Ã", "©", "!", "<eos>", "a", "b", "c", "d")
CHAT = "Helloé!"
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and message.content == 'refuse' %}{{ raise_exception('no system') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MODEL = "toy"
ENGINE = EngineConfig(num_blocks=64, max_seqs=8)
USER = [{"role": "user", "content": "hi"}]


@dataclass
class Events:
    """A stream as it came: its chunks, and how it ended."""

    chunks: list[dict[str, Any]]
    done: bool

    @property
    def text(self) -> str:
        """The text of all choices, joined."""
        return "".join(self.of(0))

    def of(self, index: int) -> list[str]:
        """The pieces of one choice."""
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", []) if choice["index"] == index]
        return [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]


def parse_events(body: bytes) -> Events:
    """Each event is one line `data: ...` and an empty line; nothing else."""
    assert body.endswith(b"\n\n")
    events = body[:-2].split(b"\n\n")
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    done = events[-1] == b"data: [DONE]"
    return Events([strict(event[6:]) for event in (events[:-1] if done else events)], done)


def strict(data: bytes) -> Any:
    """Parsed as strict JSON in UTF-8."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


class InProcess:
    """A server with its engine in a loop of its own thread; calls are plain functions."""

    def __init__(self, folder: Path, config: ServerConfig, engine: EngineConfig, keys: ApiKeys | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        metrics = Metrics()
        limits = AsyncLimits(
            config.max_queue, config.stream_buffer, config.stall_timeout, max_queued_tokens=config.max_queued_tokens
        )
        self.engine = AsyncEngine(folder, engine, limits=limits, observe=metrics.see)
        self.app = Server(self.engine, metrics, config, MODEL, keys or ApiKeys())
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://toy", timeout=30)

    def start(self) -> InProcess:
        """Load; returns when ready."""

        async def load() -> None:
            self.engine.start()
            await self.engine.ready()

        self.do(load())
        return self

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def call(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request."""
        return self.do(self._client.request(method, path, **how))

    def get(self, path: str, **how: Any) -> httpx.Response:
        """One GET."""
        return self.call("GET", path, **how)

    def complete(self, prompt: Any = "a", **fields: Any) -> httpx.Response:
        """One completion of "a" unless told otherwise, greedy."""
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 4, **fields}
        return self.call("POST", "/v1/completions", json=body)

    def chat(self, messages: Any = USER, **fields: Any) -> httpx.Response:
        """One chat, greedy."""
        body = {"model": MODEL, "messages": messages, "temperature": 0, **fields}
        return self.call("POST", "/v1/chat/completions", json=body)

    def events(self, response: httpx.Response) -> Events:
        """A response that is a stream."""
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.content)

    def metric(self, line: str) -> float:
        """The value of one line of /metrics."""
        text = self.get("/metrics").text
        return next(float(each.rpartition(" ")[2]) for each in text.splitlines() if each.rpartition(" ")[0] == line)

    def assert_idle(self) -> None:
        """Nothing runs, waits or holds a block within two seconds."""
        deadline = time.monotonic() + 2
        names = ("octavo_requests_running", "octavo_requests_waiting", "octavo_kv_blocks_used")
        while held := {name: value for name in names if (value := self.metric(name))}:
            assert time.monotonic() < deadline, held
            time.sleep(0.02)

    def assert_alive(self) -> None:
        """The same question has the same answer as ever."""
        response = self.complete("a")
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["text"] == "bcdd"

    def close(self) -> None:
        """Stop everything."""
        self.do(self._client.aclose())
        self.do(self.engine.stop())
        self.app.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def assert_refused(response: httpx.Response, status: int, param: str | None = None, code: str | None = None) -> None:
    """The error is in OpenAI's shape, with this status."""
    assert response.status_code == status, (response.status_code, response.text)
    body = strict(response.content)
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert isinstance(error["type"], str)
    if param is not None:
        assert error["param"] == param, error
    if code is not None:
        assert error["code"] == code, error

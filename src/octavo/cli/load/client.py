"""Sends requests to a server of OpenAI's protocol when they are due, and notes when each piece of an answer comes.

Draws no load and computes no percentiles. Needs aiohttp, of the extra `bench`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.cli.load.schedule import Arrival
from octavo.errors import InvalidRequest

try:
    import aiohttp
except ImportError as missing:  # pragma: no cover
    raise InvalidRequest("octavo bench serve needs aiohttp: pip install 'octavo[bench]'") from missing

LINE_LIMIT = 1 << 22  # bytes of one event


@dataclass(frozen=True, slots=True)
class Target:
    """A server. url: up to and with /v1. model: the name that it knows. chat: chats instead of completions. timeout:
    seconds of one request."""

    url: str
    model: str
    api_key: str | None = None
    chat: bool = False
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One request as its client saw it, in seconds since the load began. due: when it should have been sent, from which
    its latencies count. pieces: when each piece of text came. error: why it counts as failed."""

    due: float
    sent: float
    pieces: tuple[float, ...]
    end: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    error: str | None = None

    @property
    def first(self) -> float:
        """Time to the first token."""
        return self.pieces[0] - self.due

    @property
    def total(self) -> float:
        """From when it was due to its end."""
        return self.end - self.due

    @property
    def per_token(self) -> float:
        """Mean time of each token after the first."""
        return (self.pieces[-1] - self.pieces[0]) / max(self.output_tokens - 1, 1)


async def model_name(url: str, api_key: str | None) -> str:
    """The first model that the server lists. Raises InvalidRequest when it does not answer as it should."""
    try:
        async with (
            aiohttp.ClientSession(headers=_headers(api_key), timeout=aiohttp.ClientTimeout(10)) as session,
            session.get(f"{url}/models") as response,
        ):
            listed = await response.json(content_type=None)
            return str(listed["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise InvalidRequest(f"{url}/models does not list a model: {told}; name one with --model-name") from error


async def drive(target: Target, arrivals: Sequence[Arrival], done: Callable[[Sample], None]) -> list[Sample]:
    """Send every request when it is due, whether or not earlier ones were answered; the samples in their order."""
    connector = aiohttp.TCPConnector(limit=0)  # no bound: the load is open-loop
    timeout = aiohttp.ClientTimeout(total=target.timeout)
    async with aiohttp.ClientSession(
        connector=connector, headers=_headers(target.api_key), timeout=timeout, read_bufsize=LINE_LIMIT
    ) as session:
        begun = time.perf_counter()
        tasks = []

        async def one(arrival: Arrival) -> Sample:
            sample = await _one(session, target, arrival, begun)
            done(sample)
            return sample

        async with asyncio.TaskGroup() as group:
            for arrival in arrivals:
                await asyncio.sleep(begun + arrival.at - time.perf_counter())
                tasks.append(group.create_task(one(arrival)))
        return [task.result() for task in tasks]


async def _one(session: aiohttp.ClientSession, target: Target, arrival: Arrival, begun: float) -> Sample:
    sent = time.perf_counter() - begun
    reading = _Reading()
    error = None
    try:
        path = "chat/completions" if target.chat else "completions"
        async with session.post(f"{target.url}/{path}", json=_body(target, arrival)) as response:
            if response.status != 200:
                error = f"status {response.status}: {(await response.text())[:200]}"
            else:
                async for data in response.content.iter_any():
                    reading.feed(data, time.perf_counter() - begun)
                error = reading.problem
    except (aiohttp.ClientError, TimeoutError, ValueError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    usage = reading.usage
    return Sample(
        due=arrival.at,
        sent=sent,
        pieces=tuple(reading.pieces),
        end=time.perf_counter() - begun,
        prompt_tokens=usage.get("prompt_tokens", arrival.prompt_tokens),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        output_tokens=usage.get("completion_tokens", len(reading.pieces)),
        error=error,
    )


class _Reading:
    """One stream of events."""

    def __init__(self) -> None:
        self.pieces: list[float] = []
        self.usage: dict[str, Any] = {}
        self._error: str | None = None
        self._done = False
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        """What came at one time. ValueError for a line without an end in sight."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LIMIT:
            raise ValueError(f"an event of more than {LINE_LIMIT} bytes")
        for line in lines:
            self._line(line, now)

    def _line(self, line: bytes, now: float) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self._done = True
            return
        event = json.loads(data)
        if "error" in event:
            self._error = str(event["error"])[:200]
        for choice in event.get("choices") or ():
            if choice.get("text") or (choice.get("delta") or {}).get("content"):
                self.pieces.append(now)
        self.usage = event.get("usage") or self.usage

    @property
    def problem(self) -> str | None:
        """What is wrong with the answer as a whole."""
        if self._error is not None or self.pieces:
            return self._error if self._error or self._done else "the stream ended before its [DONE]"
        return "an answer without a token"


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}


def _body(target: Target, arrival: Arrival) -> dict[str, Any]:
    """Greedy and of a fixed length where the server knows `ignore_eos`."""
    prompt: dict[str, Any] = {"prompt": arrival.prompt}
    if target.chat:
        prompt = {"messages": [{"role": "user", "content": arrival.prompt}]}
    return prompt | {
        "model": target.model,
        "max_tokens": arrival.generated,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }

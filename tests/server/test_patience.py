"""Connections by hand: malformed, slow, idle, oversized; what each is told, and that none of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from server_process import Process
from uvicorn.server import ServerState

from octavo.server.patience import patient

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"prompt": "a", "max_tokens": 4, "temperature": 0}'
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def process(toy_folder: Path) -> Iterator[Process]:
    """A server that waits a second for its clients."""
    with Process(toy_folder, "--client-timeout", "1", "--max-body", "100000") as running:
        yield running
        before = running.sockets()
        deadline = time.monotonic() + 5
        while running.sockets() > 3:  # its own: listener and the event loop's two
            assert time.monotonic() < deadline, before
            time.sleep(0.02)
        assert running.ask(json.loads(BODY))[0] == 200
        assert running.end() == 0
        assert not [line for line in running.log if not line.startswith("{") and "octavo: " not in line]


@contextlib.contextmanager
def connected(process: Process) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as raw:
        yield raw


def read(raw: socket.socket) -> bytes:
    """All until the server ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := raw.recv(1 << 16):
            data += piece
    return data


def await_text(raw: socket.socket, text: bytes) -> bytes:
    """What comes until it holds `text`."""
    data = b""
    while text not in data:
        piece = raw.recv(1 << 16)
        assert piece, data
        data += piece
    return data


def told(answer: bytes) -> tuple[int, dict[str, Any]]:
    """The status and the error of one answer, which ends the connection and has OpenAI's shape."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/json" in lines, answer
    assert b"connection: close" in lines, answer
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split(b" ")[1]), error


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this was TLS\r\n\r\n",
    b"GARBAGE\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no host
    b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nx: \x00\r\n\r\n",
    HEAD + b"content-length: -1\r\n\r\n",
    HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
    HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello*",
    b"\x00" * 100 + b"\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", MALFORMED, ids=[repr(each[:20]) for each in MALFORMED])
def test_what_is_not_http(process: Process, request_bytes: bytes) -> None:
    """Case G12: 400 in the shape of every other error."""
    with connected(process) as raw:
        raw.sendall(request_bytes)
        status, error = told(read(raw))
        assert (status, error["code"]) == (400, "invalid_http")


def test_an_unknown_transfer_coding(process: Process) -> None:
    with connected(process) as raw:
        raw.sendall(HEAD + b"transfer-encoding: gzip\r\n\r\n")
        assert told(read(raw))[0] == 501


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_headers_too_long(process: Process, many: bool, pause: bool) -> None:
    """Case G14: 64 KiB in all, whether they come in one piece or in many, in one header or in many."""
    headers = b"".join(b"x-%d: y\r\n" % number for number in range(9000)) if many else b"x: " + b"y" * 70_000 + b"\r\n"
    with connected(process) as raw:
        for piece in (b"GET /health HTTP/1.1\r\nhost: x\r\n", headers, b"\r\n"):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                raw.sendall(piece)
            time.sleep(0.05 * pause)
        assert told(read(raw))[0] == 431


def test_what_follows_an_answer_may_be_malformed(process: Process) -> None:
    """The first of two in a row has its answer."""
    with connected(process) as raw:
        raw.sendall(WHOLE + b"GARBAGE\r\n\r\n")
        answer = read(raw)
        first, _, second = answer.rpartition(b"HTTP/1.1")
        assert b'"bcdd"' in first
        assert told(b"HTTP/1.1" + second)[0] == 400


def test_a_body_that_goes_wrong_while_it_is_waited_for(process: Process) -> None:
    before = process.metric("octavo_requests_aborted_total")
    with connected(process) as raw:
        raw.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        time.sleep(0.1)
        raw.sendall(b"zz\r\n")
        assert told(read(raw))[0] == 400
    assert process.metric("octavo_requests_aborted_total") == before


def trickle(raw: socket.socket, data: bytes, every_s: float) -> bytes:
    """Send byte after byte until the server says something."""
    raw.settimeout(every_s)
    for byte in data:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            raw.sendall(bytes([byte]))
        with contextlib.suppress(TimeoutError):
            first = raw.recv(1 << 16)
            raw.settimeout(5)
            return first + read(raw)
    raise AssertionError("nobody minds")


@pytest.mark.parametrize("start", [b"", WHOLE])
def test_slow_headers(process: Process, start: bytes) -> None:
    """However often a byte comes, and whether it is the connection's first request or another: 408."""
    with connected(process) as raw:
        if start:
            raw.sendall(start)
            await_text(raw, b'"bcdd"')
        status, error = told(trickle(raw, HEAD * 10, 0.1))
        assert (status, error["code"]) == (408, "timeout")
        assert "headers" in error["message"]


def test_a_slow_body(process: Process) -> None:
    with connected(process) as raw:
        raw.sendall(HEAD + b"content-length: 1000\r\n\r\n")
        status, error = told(trickle(raw, b" " * 1000, 0.1))
        assert (status, error["code"]) == (408, "timeout")
        assert "body" in error["message"]


def test_a_body_that_keeps_coming_has_its_time(process: Process) -> None:
    """Longer than a second in all, but more than 4 KiB in each."""
    with connected(process) as raw:
        body = BODY[:-1] + b', "user": "' + b"x" * 20_000 + b'"}'
        raw.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 4000):
            raw.sendall(body[start : start + 4000])
            time.sleep(0.3)
        await_text(raw, b'"bcdd"')


def test_a_connection_that_says_nothing(process: Process) -> None:
    """It ends without a word."""
    with connected(process) as raw:
        assert read(raw) == b""


def test_a_body_too_large_is_told_to_who_still_sends(process: Process) -> None:
    """Case D12: the answer is read whole, and what is left of the body is passed over, but not for ever."""
    with connected(process) as raw:
        raw.sendall(HEAD + b"content-length: 3000000\r\n\r\n" + b" " * 2_000_000)
        assert b" 413 " in await_text(raw, b"body_too_large")
        raw.sendall(b" " * 1_000_000 + WHOLE)
        await_text(raw, b'"bcdd"')
    with connected(process) as raw:
        raw.sendall(HEAD + b"content-length: 3000000\r\n\r\n")
        assert b" 413 " in await_text(raw, b"}}")
        began = time.monotonic()
        assert read(raw) == b""
        assert time.monotonic() - began < 5


def test_who_waits_to_be_asked_for_the_body(process: Process) -> None:
    with connected(process) as raw:
        raw.sendall(HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY))
        assert await_text(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        raw.sendall(BODY)
        await_text(raw, b'"bcdd"')


def test_an_answer_that_takes_longer_than_its_question(process: Process) -> None:
    """Nobody is hurried while the server works, nor when it asks no more for a while."""
    with connected(process) as raw:
        long = json.dumps({"prompt": "a", "max_tokens": 250, "n": 16, "ignore_eos": True}).encode()
        raw.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(long) + long)
        await_text(raw, b'"usage"')
        time.sleep(1.3)
        raw.sendall(WHOLE)
        await_text(raw, b'"bcdd"')


class FakeTransport(asyncio.Transport):
    """A client that reads as much as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0
        self.ended: str | None = None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"


@pytest.mark.parametrize(("unread", "ended"), [([0], "closed"), ([9, 9], "aborted"), ([9, 5, 0], "closed")])
def test_an_answer_that_nobody_reads(unread: list[int], ended: str) -> None:
    """Once an answer is out, its connection lasts as long as some of it is read."""

    async def main() -> None:
        config = uvicorn.Config(lambda *_: None, lifespan="off", log_config=None)
        protocol = patient(1.0)(config, ServerState(), {})
        transport = FakeTransport()
        protocol.connection_made(transport)
        for left in unread:
            assert transport.ended is None
            transport.unread = left
            protocol.timeout_keep_alive_handler()
        assert transport.ended == ended
        protocol.connection_lost(None)

    asyncio.run(main())

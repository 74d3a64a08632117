"""`octavo serve` as a process with a real socket: starting, ending, clients that leave or do not read."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_harness import CHAT, USER, parse_events
from server_process import PROGRAM, Process

LONG = {"prompt": "a", "max_tokens": 250, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.fixture(scope="module")
def process(toy_folder: Path) -> Iterator[Process]:
    """One server for the tests that leave it running."""
    with Process(toy_folder) as running:
        yield running
        assert running.end() == 0
        assert not [line for line in running.log if "Traceback" in line], running.log


def test_answers(process: Process) -> None:
    status, body = process.ask({"messages": USER, "temperature": 0}, "/v1/chat/completions")
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == CHAT
    status, body = process.ask(LONG)
    events = parse_events(body)
    assert events.text == "bc" + "d" * 248
    assert events.done
    assert json.loads(process.get("/v1/models")[1])["data"][0]["id"] == "toy"


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_stream_is_whole_in_each_version_of_http(process: Process, version: str, n: int) -> None:
    """Its middle is written past ASGI: in chunks for HTTP/1.1, where the next request follows; bare for HTTP/1.0. One
    choice takes a shorter way than several."""
    body = json.dumps({**LONG, "n": n, "stream_options": {"include_usage": True}}).encode()
    request = b"POST /v1/completions HTTP/%s\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
    with socket.create_connection(("127.0.0.1", process.port), 20) as raw:
        for _ in range(2 if version == "1.1" else 1):
            raw.sendall(request % (version.encode(), len(body), body))
            response = http.client.HTTPResponse(raw)
            response.begin()
            assert response.chunked == (version == "1.1")
            events = parse_events(response.read())
            assert ["".join(events.of(index)) for index in range(n)] == ["bc" + "d" * 248] * n
            assert events.done
            assert events.chunks[-1]["usage"]["completion_tokens"] == 250 * n
        assert version == "1.1" or raw.recv(1) == b""


def test_a_client_that_goes_away(process: Process) -> None:
    """Case E01: after two chunks, ten times; every block is back and the token counter stops."""
    before = process.metric("octavo_requests_aborted_total")
    for _ in range(10):
        raw = process.send(LONG)
        assert b"200 OK" in raw.recv(1024)
        raw.close()
    process.until("octavo_kv_blocks_used", 0)
    process.until("octavo_requests_running", 0)
    tokens = process.metric("octavo_generation_tokens_total")
    time.sleep(0.1)
    assert process.metric("octavo_generation_tokens_total") == tokens
    assert process.metric("octavo_requests_aborted_total") > before


def test_a_reader_that_does_not_read(toy_folder: Path) -> None:
    """Case E08: its stream is cut off and its connection with it; others are served meanwhile and afterwards."""
    body = {**LONG, "n": 16, "logprobs": 5}  # a megabyte, more than the sockets' buffers hold
    with Process(toy_folder, "--stream-buffer", "64") as process:
        before = process.sockets()
        with process.send(body):
            deadline = time.monotonic() + 20
            while not process.metric("octavo_requests_aborted_total"):
                assert time.monotonic() < deadline
                status, answer = process.ask({"prompt": "a", "max_tokens": 4, "temperature": 0})
                assert (status, json.loads(answer)["choices"][0]["text"]) == (200, "bcdd")
            process.until("octavo_kv_blocks_used", 0)
            deadline = time.monotonic() + 2
            while process.sockets() > before:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert process.end() == 0


def test_a_port_in_use(process: Process, toy_folder: Path) -> None:
    """Case N04: one line and exit 2, before anything is loaded, as the model that is not there shows; the first server
    goes on."""
    argv = [sys.executable, "-c", PROGRAM, "serve", str(toy_folder / "no-such-model"), "--port", str(process.port)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr == (
        f"octavo: error: port {process.port} of 127.0.0.1 is in use by another process; choose another with --port\n"
    )
    assert process.get("/health")[0] == 200


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--api-keys", "/no/such/file"], "api_keys: /no/such/file cannot be read"),
        (["--port", "70000"], "port must be from 0 to 65535"),
        (["--host", "not a host"], "host 'not a host' is no address"),
        (["--port", "0"], "no-such-model"),
    ],
)
def test_what_is_wrong_from_the_start(flags: list[str], said: str) -> None:
    argv = [sys.executable, "-c", PROGRAM, "serve", "./no-such-model", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_signal_lets_requests_finish(toy_folder: Path) -> None:
    """SIGTERM: the stream that runs comes to its end, new connections are refused, the port is free, exit 0."""
    with Process(toy_folder, check="2") as process, process.send(LONG) as raw:
        data = raw.recv(1024)
        process.process.send_signal(signal.SIGTERM)
        while piece := raw.recv(1 << 16):
            data += piece
        assert b"data: [DONE]\n\n" in data
        assert process.process.wait(20) == 0
        with pytest.raises(ConnectionRefusedError):
            process.get("/health")


def test_the_drain_has_its_time(toy_folder: Path) -> None:
    """What still runs when the time is over ends with an error event; the exit code is 0 all the same."""
    with Process(toy_folder, "--drain", "0", check="2") as process, process.send(LONG) as raw:
        data = raw.recv(1024)
        process.process.send_signal(signal.SIGTERM)
        while piece := raw.recv(1 << 16):
            data += piece
        assert b"the server is shutting down" in data
        assert b"[DONE]" not in data
        assert process.process.wait(20) == 0


def test_a_signal_while_it_loads(toy_folder: Path) -> None:
    """It does not wait for the end of that: the port is free, exit 0."""
    slow = "import time; from octavo.engine.async_engine import AsyncEngine; "
    slow += "AsyncEngine.__init__.__kwdefaults__['build'] = lambda *_: (print('loading', flush=True), time.sleep(60)); "
    argv = [sys.executable, "-c", slow + PROGRAM, "serve", str(toy_folder), "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loading:
        assert loading.stdout is not None
        assert loading.stderr is not None
        assert loading.stdout.readline() == "loading\n"
        loading.send_signal(signal.SIGTERM)
        assert loading.wait(20) == 0
        assert loading.stderr.read().startswith("octavo: SIGTERM")


def test_a_second_signal_ends_at_once(toy_folder: Path) -> None:
    with Process(toy_folder, check="2") as process, process.send({**LONG, "n": 32}) as raw:
        raw.recv(1024)
        process.process.send_signal(signal.SIGINT)
        while not any("SIGINT" in line for line in process.log):
            time.sleep(0.01)
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(10) == 128 + signal.SIGINT  # a third of what draining may take


def test_a_failed_engine_ends_the_process(toy_folder: Path, tmp_path: Path) -> None:
    """Case N05: who waits is told; the incident is kept; where faults come too fast, the exit code is 1, for whatever
    supervises the process, and one line says why."""
    fault = "from octavo.engine.engine import Engine; Engine.step = lambda self: 1 // 0; "
    with Process(toy_folder, "--incident-dir", str(tmp_path / "kept"), program=fault + PROGRAM) as process:
        for _ in range(4):
            status, body = process.ask({"prompt": "a secret"})
            assert status == 500
            assert "failed" in json.loads(body)["error"]["message"]
        assert process.end(None) == 1
        assert process.log[-1].startswith(
            "octavo: the server ended: EngineUnavailable: the engine failed again after 3"
        )
        assert "ZeroDivisionError" in process.log[-1]
        (incident,) = (tmp_path / "kept").iterdir()
        assert incident.stem in process.log[-1]
        assert not any("secret" in line for line in [*process.log, incident.read_text()])


def test_a_reset_connection(process: Process) -> None:
    """Case E01: a client that resets instead of closing."""
    raw = process.send(LONG)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    process.until("octavo_kv_blocks_used", 0)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_http(process: Process, sent: bytes, status: int) -> None:
    """Refused in the one shape, though no request comes of it."""
    with socket.create_connection(("127.0.0.1", process.port), 20) as raw:
        with contextlib.suppress(ConnectionError):  # what it would not read is reset
            raw.sendall(sent)
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert response.status == status
        assert json.loads(response.read())["error"]["code"] == "invalid_http"
    assert process.get("/health")[0] == 200


def test_a_body_that_goes_wrong_after_its_answer(process: Process) -> None:
    """There is nothing more to say on this connection, and nothing to log: the fixture looks for tracebacks."""
    with socket.create_connection(("127.0.0.1", process.port), 20) as raw:
        raw.sendall(b"POST /nothing HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert response.status == 404
        response.read()
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"no chunk\r\n")
            assert raw.recv(1) == b""
    assert process.get("/health")[0] == 200

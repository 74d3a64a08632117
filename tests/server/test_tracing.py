"""Spans of requests: what they hold, whose children they are, and how the environment configures them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from server_harness import InProcess

from octavo.errors import InvalidRequest
from octavo.server.tracing import Traced, make_provider, wanted

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Ask = Callable[..., tuple[httpx.Response, ReadableSpan]]


@pytest.fixture
def ask(served: InProcess) -> Ask:
    """ask(path, body, headers): the answer and its span."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traced = Traced(served.app, provider)

    async def post(path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(traced), base_url="http://toy") as client:
            return await client.post(path, json=body, headers=headers)

    def asked(path: str, body: Any, **headers: str) -> tuple[httpx.Response, ReadableSpan]:
        exporter.clear()
        response = served.do(post(path, body, headers))
        (span,) = exporter.get_finished_spans()
        return response, span

    return asked


@pytest.mark.parametrize("stream", [False, True])
def test_a_span_tells_where_the_time_went(ask: Ask, stream: bool) -> None:
    body = {"prompt": ["qrst" * 10, "a"], "max_tokens": 3, "stream": stream, "user": "a secret"}  # letters of no id
    response, span = ask("/v1/completions", body)
    assert response.status_code == 200
    assert (span.name, span.kind) == ("POST /v1/completions", SpanKind.SERVER)
    assert span.parent is None
    told = dict(span.attributes or {})
    assert told["http.response.status_code"] == 200
    assert told["octavo.request_id"] == response.headers["x-request-id"]
    assert told["gen_ai.usage.input_tokens"] == 41
    assert told["gen_ai.usage.output_tokens"] == 6
    assert 0 <= int(str(told["octavo.cached_tokens"])) <= 41
    assert [event.name for event in span.events] == ["queue", "prefill", "decode"] * 2
    for first in (0, 3):
        times = [event.timestamp for event in span.events[first : first + 3]]
        assert times == sorted(times)
        assert span.end_time is not None
        assert times[-1] <= span.end_time
    assert "secret" not in span.to_json()
    assert "qrst" not in span.to_json()


def test_a_client_may_be_the_parent(ask: Ask) -> None:
    """W3C trace context: honoured where it is well formed, passed over where it is not."""
    _, span = ask("/v1/completions", {"prompt": "a"}, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=b")
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.context.trace_state.get("a") == "b"
    for odd in ("", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01", "x" * 5000, f"ff-{TRACE}-{PARENT}-01"):
        _, span = ask("/v1/completions", {"prompt": "a"}, traceparent=odd)
        assert span.parent is None


def test_errors_are_told(ask: Ask, served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    response, span = ask("/v1/completions", {"prompt": ""})
    assert response.status_code == 400
    assert dict(span.attributes or {})["http.response.status_code"] == 400
    assert span.status.status_code is StatusCode.UNSET
    monkeypatch.setattr(served.app._reader, "_fields", lambda *_: 1 // 0)
    _, span = ask("/v1/completions", {"prompt": "a"})
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
    ],
)
def test_who_asks_for_traces(environment: dict[str, str], asked: bool) -> None:
    assert wanted(environment) == asked


@pytest.mark.parametrize(
    "environment", [{"OTEL_TRACES_EXPORTER": "zipkin"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}], ids=str
)
def test_other_exporters_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="http/protobuf"):
        make_provider(environment)


def test_spans_reach_a_collector(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables OTEL_* alone say where to; what is left is sent at the end."""
    got: list[tuple[str, str | None, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, self.headers["x-mine"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *unused: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-mine=yes",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        provider = make_provider(environment)
        traced = Traced(served.app, provider)

        async def get() -> None:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(traced), base_url="http://toy") as client:
                await client.get("/health")

        asyncio.run(get())
        provider.shutdown()
        collector.shutdown()
    ((path, mine, body),) = got
    assert (path, mine) == ("/v1/traces", "yes")
    assert b"GET /health" in body
    assert b"octavo" in body


def test_nothing_is_imported_unless_asked_for() -> None:
    code = (
        "import octavo.server.run, octavo.server.tracing, sys; sys.exit(any('opentelemetry' in m for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

"""A span for every HTTP request, for OpenTelemetry. An ASGI application around another one; where nobody asked for
traces it is not there at all, and nothing of OpenTelemetry is imported.

What is exported, and where to, is OpenTelemetry's own affair: the variables OTEL_* say it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.engine.outputs import RequestMetrics
from octavo.errors import InvalidRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces: it names a place for them, or the exporter, and does not say no."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not disabled and exporter != "none" and (bool(exporter) or any(environment.get(name) for name in ENDPOINTS))


def make_provider(environment: Mapping[str, str]) -> TracerProvider:
    """What exports spans over HTTP, in batches, beside the server; `shutdown` sends the last. InvalidRequest: the extra
    is not installed, or the environment asks for another exporter."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() or "otlp"
    protocols = [environment.get(f"OTEL_EXPORTER_OTLP_{part}PROTOCOL") for part in ("TRACES_", "")]
    if exporter != "otlp" or next((each for each in protocols if each), "http/protobuf") != "http/protobuf":
        raise InvalidRequest("traces go out by OTLP as http/protobuf alone: set OTEL_TRACES_EXPORTER=none, or otlp")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidRequest(
            f"the environment asks for traces, which need an extra ({error}): pip install 'octavo[otel]', or set "
            "OTEL_SDK_DISABLED=true"
        ) from error
    named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {SERVICE_NAME: "octavo"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traced:
    """Traces what `app` answers. A client's `traceparent` makes its span the parent, and decides whether it is sampled
    where the sampler leaves that to parents. Spans hold numbers and names: no prompt and no answer."""

    def __init__(self, app: ASGIApp, provider: TracerProvider, clock: Callable[[], int] = time.time_ns) -> None:
        """clock: nanoseconds since the epoch."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._tracer = provider.get_tracer("octavo")
        self._kind = SpanKind.SERVER
        self._extract = TraceContextTextMapPropagator().extract
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carrier = {
            name.decode(): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        span = self._tracer.start_span(
            f"{scope['method']} {scope['path'][:200]}",
            context=self._extract(carrier),
            kind=self._kind,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"][:200]},
            start_time=self._clock(),
        )

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_start(span, message)
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            self._end(span, scope.get("state", {}))

    def _end(self, span: Span, state: Mapping[str, Any]) -> None:
        now = self._clock()
        if state.get("tenant"):
            span.set_attribute("octavo.tenant", state["tenant"])
        bills: Sequence[RequestMetrics] = state.get("usage", ())
        if bills:
            span.set_attribute("gen_ai.usage.input_tokens", sum(bill.prompt_tokens for bill in bills))
            span.set_attribute("gen_ai.usage.output_tokens", sum(bill.output_tokens for bill in bills))
            span.set_attribute("octavo.cached_tokens", sum(bill.cached_tokens for bill in bills))
            span.set_attribute("octavo.preemptions", sum(bill.preemptions for bill in bills))
        for prompt, bill in enumerate(bills):
            # The engine's own clock tells spans of time alone; they end with the last token, which is just now.
            arrived = now - round(bill.total_s * 1e9)
            for name, seconds in (("queue", 0.0), ("prefill", bill.queued_s), ("decode", bill.first_token_s)):
                span.add_event(name, {"prompt": prompt}, timestamp=arrived + round(seconds * 1e9))
        span.end(end_time=now)


def _note_start(span: Span, message: Message) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("http.response.status_code", message["status"])
    if message["status"] >= 500:
        span.set_status(StatusCode.ERROR)
    for name, value in message["headers"]:
        if name == b"x-request-id":
            span.set_attribute("octavo.request_id", value.decode())

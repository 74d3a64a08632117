"""Around every request: its id, its line in the log, its count, and an answer whatever happened. Knows no endpoint."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import failure_of
from octavo.server.metrics import Metrics
from octavo.server.wire import JsonResponse

log = logging.getLogger(__name__)
access = logging.getLogger("octavo.server.access")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Front:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str], *, log_requests: bool) -> None:
        """paths: those that count by name; all others count together, for anybody may invent some."""
        self._app = app
        self._metrics = metrics
        self._paths = frozenset(paths)
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        began = time.monotonic()
        status = 0
        scope.setdefault("state", {})

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                took = b"%d" % ((time.monotonic() - began) * 1000)
                mine = [(b"x-request-id", request_id), (b"openai-processing-ms", took)]
                limits = scope["state"].get("limits")  # of the key, where there are any
                mine += [] if limits is None else limits.headers()
                message["headers"] = [*message.get("headers", ()), *mine]
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except Exception as error:  # one request's fault is its own
            log.exception("request %s failed", request_id.decode())
            if not status:
                failure = failure_of(error)
                await JsonResponse(failure.body, failure.status)(scope, receive, send_noting)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.count("octavo_http_responses_total", path=path, status=str(status))
            if self._log_requests:
                access.info(_line(scope, request_id, status, time.monotonic() - began))


def _request_id(scope: Scope) -> bytes:
    """The client's own id when it is short and plain, else a new one. Nothing inside depends on it."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12).encode()


def _line(scope: Scope, request_id: bytes, status: int, seconds: float) -> str:
    entry: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request_id": request_id.decode(),
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "ms": round(seconds * 1000, 1),
    }
    state = scope["state"]
    if state.get("tenant"):
        entry["tenant"] = state["tenant"]
    if bills := state.get("usage"):
        entry["prompt_tokens"] = sum(bill.prompt_tokens for bill in bills)
        entry["cached_tokens"] = sum(bill.cached_tokens for bill in bills)
        entry["completion_tokens"] = sum(bill.output_tokens for bill in bills)
    return json.dumps(entry)

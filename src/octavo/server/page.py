"""The live page: its static files, and the headers under which a browser trusts nothing else. Knows no engine."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import Response

from octavo.server import operations
from octavo.server.errors import ApiError, Failure
from octavo.server.operations import Operation

# Nothing inline and nothing from elsewhere: a model's words, even if they came to be taken for HTML, could do nothing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

Endpoint = Callable[[Request], Awaitable[Response]]


class Page:
    """The page's files, read once."""

    def __init__(self) -> None:
        folder = files("octavo.server") / "static"
        self._files = {each.name: each.read_bytes() for each in folder.iterdir()}

    @property
    def endpoints(self) -> tuple[tuple[Operation, Endpoint], ...]:
        """Open to all: there is nothing in it that is not in the package."""
        return (
            (operations.PAGE, self._sender("index.html")),
            (operations.PAGE_STYLE, self._sender("page.css")),
            (operations.PAGE_ICON, self._sender("icon.svg")),
            (operations.PAGE_SCRIPT, self._script),
        )

    async def _script(self, request: Request) -> Response:
        name: str = request.path_params["script"]
        if not name.endswith(".js") or name not in self._files:
            raise ApiError(Failure(404, f"the page has no script {name[:100]!r}", code="not_found"))
        return self._send(name, request)

    def _sender(self, name: str) -> Endpoint:
        async def send(request: Request) -> Response:
            return self._send(name, request)

        return send

    def _send(self, name: str, request: Request) -> Response:
        body = self._files[name]
        headers = {**HEADERS, "etag": f'"{hashlib.sha256(body).hexdigest()[:16]}"'}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=_KINDS[PurePath(name).suffix], headers=headers)

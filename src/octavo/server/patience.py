"""How long a client may take to say what it wants, and how much: slow, idle, oversized and malformed connections get an
answer in the protocol's shape, or none, and end. Knows no request.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import h11

from octavo.server.connection import Protocol
from octavo.server.errors import Failure
from octavo.server.wire import dump

HEADER_BYTES = 64 << 10  # of a request's line and headers
BODY_RATE = 4096  # bytes of a body, each of which gives its client one second more
LINGER_S = 2.0  # in which a client that is still sending may read why it was refused


class _BoundedHeads(h11.Connection):
    """h11's, which bounds what it has not parsed yet, and here heads that came in one piece as well."""

    def next_event(self) -> Any:
        """See h11."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers)
            if size > HEADER_BYTES:
                raise h11.RemoteProtocolError("the headers are too long", error_status_hint=431)
        return event


def patient(seconds: float) -> type[Protocol]:
    """A protocol for uvicorn. seconds: for a request's head from its first byte, or the connection's beginning; and for
    its body, which has one more for every 4 KiB that came."""

    class Patient(_Patient):
        patience_s = seconds

    return Patient


class _Patient(Protocol):
    patience_s: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _BoundedHeads(h11.SERVER, HEADER_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._in_body = False
        self._refused = False
        self._unread = 0  # bytes that the client had not read when it was last looked at

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._watch(0)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._relax()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._refused:
            return
        super().data_received(data)
        self._watch(len(data))

    def on_response_complete(self) -> None:
        """An answer is out. Of a body that nobody wanted the rest is passed over, for a while."""
        super().on_response_complete()
        self._watch(0)
        if self._in_body:
            self._deadline = min(self._deadline, self.loop.time() + self.patience_s)

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", 400)
        if status == 431:
            said = f"the request's line and headers have more than {HEADER_BYTES} bytes"
        else:
            said = f"this is not valid HTTP: {error}"
        self._refuse(Failure(status, said, code="invalid_http"))

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for a while. What was answered may still be on its way, if its client reads at all."""
        unread = self.transport.get_write_buffer_size()
        if unread and unread == self._unread:
            self.transport.abort()
            return
        self._unread = unread
        if unread:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def _watch(self, size: int) -> None:
        """After `size` bytes: what is its client to send now, and until when?"""
        state, now = self.conn.their_state, self.loop.time()
        if self._refused or self.transport.is_closing():
            self._relax()
        elif state is h11.SEND_BODY:
            self._deadline = self._deadline + size / BODY_RATE if self._in_body else now + self.patience_s
            self._in_body = True
            self._wait()
        elif state is h11.IDLE and self.timeout_keep_alive_task is None:
            if self._timer is None or self._in_body:
                self._deadline = now + self.patience_s
            self._in_body = False
            self._wait()
        else:
            self._relax()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline, self._look)

    def _relax(self) -> None:
        self._in_body = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """It may have got more time meanwhile, or not have been asked for more."""
        self._timer = None
        if self.flow.read_paused:
            self._deadline = self.loop.time() + self.patience_s
        if self._deadline > self.loop.time():
            self._wait()
        elif self._in_body:
            self._refuse(Failure(408, "the body came too slowly", "timeout_error", code="timeout"))
        elif self.conn.trailing_data[0]:
            self._refuse(Failure(408, "the headers came too slowly", "timeout_error", code="timeout"))
        else:
            self.transport.close()

    def _refuse(self, failure: Failure) -> None:
        """Say why, unless an answer has begun, and end the connection; the application is told that its client left."""
        self._refused = True
        self._relax()
        self._unset_keepalive_if_required()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = dump(failure.body)
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        head = h11.Response(
            status_code=failure.status, headers=headers, reason=HTTPStatus(failure.status).phrase.encode()
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._linger()

    def _linger(self) -> None:
        """A connection that is closed while bytes come in is reset, and its client may never read what was said."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_S, self.transport.abort)

"""The middle of a stream, from a step's deltas to the outbox, with as little as possible on the way. Knows one kind of
answer alone; whatever is different goes the long way."""

from __future__ import annotations

from octavo.engine.streams import Batch
from octavo.server.answers import Frame
from octavo.server.connection import Connection
from octavo.server.wire import dump


class Relay:
    """Of a stream with one choice whose events differ in their text alone, which most are.

    Between two steps the model's weights push everything else out of the processor's caches, and what a token costs the
    server is mostly bringing it back. So this holds what a token needs, and follows no other references.
    """

    __slots__ = ("_after", "_before", "_flow", "_outbox", "_socket", "_transport")

    def __init__(self, frame: Frame, connection: Connection, socket: int) -> None:
        """connection: of HTTP/1.1, and its socket, on which bytes leave as they are."""
        self._before, self._after = frame.before, frame.after + b"\r\n"
        self._transport, self._flow, self._outbox = connection.transport, connection.flow, connection.outbox
        self._socket = socket

    def take(self, batch: Batch) -> bool:
        """Put a piece of text into the outbox; whether that could be done. See Stream.batch."""
        _, delta = batch[0]
        if len(batch) > 1 or delta.finish_reason is not None or self._flow.write_paused:
            return False
        if delta.text:
            before, text, after = self._before, dump(delta.text), self._after
            size = len(before) + len(text) + len(after) - 2
            self._outbox.put(self._transport, self._socket, b"%x\r\n%b%b%b" % (size, before, text, after))
        return True


def relay(frame: Frame | None, connection: Connection | None) -> Relay | None:
    """For events of this frame to this connection, where that is enough."""
    if frame is None or connection is None or connection.socket is None or not connection.chunked:
        return None
    return Relay(frame, connection, connection.socket)

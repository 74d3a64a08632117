"""What an answer may do to its connection besides ASGI's `send`: write the middle of a stream at once, or cut it.

ASGI's way costs a task switch and some layers for every piece of every stream, several times what sending it takes.
Heads, ends and whole answers go that way all the same; so does everything of in-process clients, which have no
connection. The pieces of one step leave together. Knows no request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol


def send_none(sockets: list[int], pieces: list[bytes]) -> list[tuple[int, int]]:
    """`send_all` where there is no native code: nobody has taken anything, so all is left to asyncio."""
    return [(index, 0) for index in range(len(pieces))]


try:
    from octavo.ops.native._native import send_all
except ImportError:  # an install for the numpy backend alone
    send_all = send_none

_KEY = "octavo.connection"


class Outbox:
    """What the streams of a step have to say, which leaves in one native call: each `send` by itself would let go of
    the interpreter lock and want it back. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.Transport, int, bytes]] = []

    def put(self, transport: asyncio.Transport, socket: int, piece: bytes) -> None:
        """Keep a piece for a connection until the `flush` of this step. socket: the connection's own, not encrypted."""
        self._waiting.append((transport, socket, piece))

    def flush(self) -> None:
        """Send them. What a socket does not take now, asyncio keeps for it, which also sees what is wrong with one."""
        waiting, self._waiting = self._waiting, []
        transports, sockets, pieces = [], [], []
        for transport, socket, piece in waiting:
            if transport.is_closing():  # its socket may be another's by now
                continue
            if transport.get_write_buffer_size():  # what was said before is still here
                transport.write(piece)
                continue
            transports.append(transport)
            sockets.append(socket)
            pieces.append(piece)
        if pieces:
            for index, sent in send_all(sockets, pieces):
                transports[index].write(pieces[index][sent:])


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's connection, while an answer to it is under way. socket: None where bytes are not sent as they are."""

    transport: asyncio.Transport
    flow: FlowControl
    socket: int | None
    outbox: Outbox
    chunked: bool

    @property
    def takes_more(self) -> bool:
        """Whether its client keeps up."""
        return not self.flow.write_paused

    def write(self, piece: bytes) -> None:
        """Send more, at least a byte, of a body that has begun, that has no content-length and is not at its end; once
        the outbox is flushed."""
        framed = b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece
        if self.socket is None:
            self.transport.write(framed)
        else:
            self.outbox.put(self.transport, self.socket, framed)

    def cut(self) -> None:
        """End it at once, with all that was not sent yet."""
        self.transport.abort()


def connection_of(scope: Scope, outbox: Outbox) -> Connection | None:
    """That of a request; None for an in-process client."""
    found: tuple[asyncio.Transport, FlowControl, int | None] | None = scope["state"].get(_KEY)
    if found is None:
        return None
    chunked = scope["http_version"] != "1.0"  # whose bodies end with the connection
    return Connection(*found, outbox, chunked)


class Protocol(H11Protocol):
    """uvicorn's, which hands its connection on to the answers."""

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        socket = None if transport.get_extra_info("sslcontext") else transport.get_extra_info("socket")
        self.app_state = {
            **self.app_state,
            _KEY: (transport, self.flow, None if socket is None else socket.fileno()),
        }

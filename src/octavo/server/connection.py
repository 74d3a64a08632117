"""What an answer may do to its connection besides ASGI's `send`: write the middle of a stream at once, or cut it.

ASGI's way costs a task switch and some layers for every piece of every stream, several times what sending it takes.
Heads, ends and whole answers go that way all the same; so does everything of in-process clients, which have no
connection. Knows no request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

_KEY = "octavo.connection"


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's connection, while an answer to it is under way."""

    transport: asyncio.Transport
    flow: FlowControl
    chunked: bool = True

    @property
    def takes_more(self) -> bool:
        """Whether its client keeps up and is there."""
        return not self.flow.write_paused and not self.transport.is_closing()

    def write(self, piece: bytes) -> None:
        """Send more, at least a byte, of a body that has begun, that has no content-length and is not at its end."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece)

    def cut(self) -> None:
        """End it at once, with all that was not sent yet."""
        self.transport.abort()


def connection_of(scope: Scope) -> Connection | None:
    """That of a request; None for an in-process client."""
    found: Connection | None = scope["state"].get(_KEY)
    if found is None or scope["http_version"] != "1.0":
        return found
    return Connection(found.transport, found.flow, chunked=False)  # its bodies end with the connection


class Protocol(H11Protocol):
    """uvicorn's, which hands its connection on to the answers."""

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _KEY: Connection(transport, self.flow)}

"""The outbox of a step: what it says arrives whole and in order, whatever becomes of the connections meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server import connection
from octavo.server.connection import Outbox


class Line:
    """A connection: ours as a transport, theirs as a reader."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.theirs.setblocking(False)

    async def open(self) -> Line:
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_connection(asyncio.Protocol, sock=self.ours)
        self.number = self.ours.fileno()
        return self

    async def read(self, size: int) -> bytes:
        got = b""
        while len(got) < size and (more := await asyncio.get_running_loop().sock_recv(self.theirs, 1 << 16)):
            got += more
        return got

    async def close(self) -> None:
        self.transport.abort()
        await asyncio.sleep(0)
        self.theirs.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.fixture(params=["native", "none"])
def sends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "none":  # an install without native code
        monkeypatch.setattr(connection, "send_all", connection.send_none)


@pytest.mark.usefixtures("sends")
def test_pieces_leave_with_the_flush() -> None:
    async def test() -> None:
        lines = [await Line().open() for _ in range(5)]
        box = Outbox()
        for index, line in enumerate(lines):
            box.put(line.transport, line.number, b"piece %d" % index)
        with pytest.raises(BlockingIOError):
            lines[0].theirs.recv(1)
        box.flush()
        box.flush()
        assert [await line.read(7) for line in lines] == [b"piece %d" % index for index in range(5)]
        for line in lines:
            await line.close()

    run(test)


@given(st.lists(st.tuples(st.lists(st.integers(1, 40_000), max_size=3), st.booleans()), min_size=1, max_size=6))
def test_a_slow_reader_gets_all_of_it_in_order(steps: list[tuple[list[int], bool]]) -> None:
    """Pieces of steps, more than the socket holds, with what goes past the outbox in between. Now and then it reads
    while asyncio still keeps some of what came before."""

    async def test() -> None:
        line, box, said, got = await Line().open(), Outbox(), b"", b""
        for step, (sizes, reads) in enumerate(steps):
            if reads and said:
                with contextlib.suppress(BlockingIOError):
                    got += line.theirs.recv(1 << 20)
            for size in sizes[:1]:
                piece = bytes([65 + step]) * size
                said += piece
                box.put(line.transport, line.number, piece)
            box.flush()
            for size in sizes[1:]:
                piece = bytes([97 + step]) * size
                said += piece
                line.transport.write(piece)
        assert got + await line.read(len(said) - len(got)) == said
        await line.close()

    run(test)


@pytest.mark.parametrize("how", ["abort", "close"])
def test_a_closed_connections_piece_goes_to_nobody(how: str) -> None:
    """By the time of the flush its socket's number may be another client's."""

    async def test() -> None:
        gone, box = await Line().open(), Outbox()
        box.put(gone.transport, gone.number, b"secret")
        getattr(gone.transport, how)()
        for _ in range(3):
            await asyncio.sleep(0)
        others = [await Line().open() for _ in range(4)]
        assert gone.number in [each for line in others for each in (line.number, line.theirs.fileno())]
        box.flush()
        for line in others:
            for end in (line.theirs, line.ours):
                end.setblocking(False)
                with pytest.raises(BlockingIOError):
                    end.recv(1)
            await line.close()
        assert gone.theirs.recv(100) == b""
        gone.theirs.close()

    run(test)


def test_a_reader_that_left_ends_its_connection_alone() -> None:
    async def test() -> None:
        left, fine, box = await Line().open(), await Line().open(), Outbox()
        left.theirs.close()
        box.put(left.transport, left.number, b"to nobody")
        box.put(fine.transport, fine.number, b"fine")
        box.flush()
        assert await fine.read(4) == b"fine"
        await asyncio.sleep(0)
        assert left.transport.is_closing()
        await fine.close()

    run(test)

"""`send_all`: many pieces to many sockets in one call."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from octavo.ops.native._native import send_all

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(4)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


def test_every_socket_gets_its_piece(pairs: list[Pair]) -> None:
    pieces = [b"%d" % index * (index + 1) for index in range(4)]
    assert send_all([ours.fileno() for ours, _ in pairs], pieces) == []
    assert [theirs.recv(100) for _, theirs in pairs] == pieces
    assert send_all([], []) == []


def test_what_a_socket_does_not_take_is_told_and_the_others_go_on(pairs: list[Pair]) -> None:
    """One that is full, one in part, one whose reader has left, and one that is none."""
    full, partly, left, fine = (ours for ours, _ in pairs)
    full.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(bytes(1 << 16))
    pairs[2][1].close()
    large = bytes(range(256)) * (1 << 14)
    sockets = [full.fileno(), partly.fileno(), left.fileno(), 1 << 20, fine.fileno()]
    said = send_all(sockets, [b"full", large, b"left", b"none", b"fine"])
    (taken,) = [sent for index, sent in said if index == 1]
    assert said == [(0, 0), (1, taken), (2, 0), (3, 0)]
    assert 0 < taken < len(large)
    assert pairs[3][1].recv(100) == b"fine"
    got = b""
    while len(got) < taken:
        got += pairs[1][1].recv(1 << 20)
    assert got == large[:taken]


def test_what_is_no_list_of_pieces_is_refused(pairs: list[Pair]) -> None:
    with pytest.raises(ValueError, match="as many sockets"):
        send_all([pairs[0][0].fileno()], [])
    with pytest.raises((TypeError, RuntimeError)):
        send_all([pairs[0][0].fileno()], ["text"])  # type: ignore[list-item]
    pairs[0][1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pairs[0][1].recv(1)

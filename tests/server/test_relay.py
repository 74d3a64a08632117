"""The short way of a stream's middle says what the long way does, and takes nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from octavo.engine.outputs import Delta
from octavo.params import SamplingParams
from octavo.server.answers import ChatForm, CompletionForm, Form
from octavo.server.connection import Connection, Outbox
from octavo.server.prompts import Ask, Prompt
from octavo.server.relay import Relay, relay
from octavo.server.responses import ResponseForm
from octavo.text.reasoning import Thinking

FORMS = (ChatForm, CompletionForm)
ASK = Ask((), (Prompt([1], "a"),), SamplingParams(), stream=True, include_usage=False)
NOBODY: Any = None  # no tokenizer is asked for anything


class Kept(Outbox):
    """An outbox that shows what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def put(self, transport: asyncio.Transport, socket: int, piece: bytes) -> None:
        assert socket == 5
        self.said += piece


def connection(outbox: Outbox, *, socket: int | None = 5, chunked: bool = True) -> Connection:
    transport = asyncio.Transport()
    return Connection(transport, FlowControl(transport), socket, outbox, chunked)


def begun(form: Form) -> Form:
    assert form.frame() is None
    assert form.events(0, Delta(7, 0, "first", (1,)))
    return form


def quick(form: Form, outbox: Outbox) -> Relay:
    made = relay(begun(form).frame(), connection(outbox))
    assert made is not None
    return made


@pytest.mark.parametrize("make", FORMS)
@given(text=st.text(st.characters(), max_size=20), usage=st.booleans())
def test_both_ways_say_the_same(make: type[ChatForm | CompletionForm], text: str, *, usage: bool) -> None:
    """Quotes, controls and lone surrogates among them."""
    form, outbox = make(dataclasses.replace(ASK, include_usage=usage), "m", NOBODY), Kept()
    delta = Delta(7, 0, text, (2,))
    assert quick(form, outbox).take([(0, delta)])
    event = form.events(0, delta)
    assert outbox.said == (b"%x\r\n%b\r\n" % (len(event), event) if text else b"")
    assert bool(event) == bool(text)


@pytest.mark.parametrize("make", FORMS)
def test_what_is_no_plain_piece_is_left(make: type[ChatForm | CompletionForm]) -> None:
    outbox = Kept()
    taker = quick(make(ASK, "m", NOBODY), outbox)
    plain = Delta(7, 0, "x", (2,))
    assert not taker.take([(0, plain), (0, plain)])
    assert not taker.take([(0, plain._replace(finish_reason="stop"))])
    assert not taker.take([(0, plain._replace(finish_reason="error", text=""))])
    assert outbox.said == b""


def test_a_reader_that_is_behind_gets_nothing_more() -> None:
    outbox = Kept()
    line = connection(outbox)
    made = relay(begun(ChatForm(ASK, "m", NOBODY)).frame(), line)
    assert made is not None
    line.flow.pause_writing()
    assert not made.take([(0, Delta(7, 0, "x", (2,)))])
    line.flow.resume_writing()
    assert made.take([(0, Delta(7, 0, "x", (2,)))])
    assert outbox.said.count(b"data:") == 1


@pytest.mark.parametrize(
    "ask",
    [
        dataclasses.replace(ASK, params=SamplingParams(n=2, temperature=1)),
        dataclasses.replace(ASK, params=SamplingParams(logprobs=0)),
    ],
)
@pytest.mark.parametrize("make", FORMS)
def test_answers_of_other_kinds_have_no_frame(make: type[ChatForm | CompletionForm], ask: Ask) -> None:
    assert begun(make(ask, "m", NOBODY)).frame() is None


def test_other_forms_have_no_frame() -> None:
    two = dataclasses.replace(ASK, prompts=ASK.prompts * 2)
    assert begun(CompletionForm(two, "m", NOBODY)).frame() is None
    thinking = dataclasses.replace(ASK, thinking=Thinking("<t>", "</t>"))
    assert begun(ChatForm(thinking, "m", NOBODY)).frame() is None
    assert begun(ResponseForm(ASK, "m", NOBODY)).frame() is None


def test_other_connections_have_no_relay() -> None:
    frame = begun(ChatForm(ASK, "m", NOBODY)).frame()
    assert relay(frame, None) is None  # in-process
    assert relay(None, connection(Outbox())) is None
    assert relay(frame, connection(Outbox(), socket=None)) is None  # encrypted
    assert relay(frame, connection(Outbox(), chunked=False)) is None  # HTTP/1.0

"""One request's answer on its way out: whole or as a stream of events, watched for a client that leaves, with a
deadline. Knows the protocol's framing and none of its objects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.engine.outputs import RequestOutput
from octavo.engine.streams import Batch, Stream, Take
from octavo.errors import RequestFailed
from octavo.server.answers import BulkForm, Form
from octavo.server.connection import Connection
from octavo.server.errors import CLIENT_GONE, client_gone, failure_of
from octavo.server.prompts import Ask
from octavo.server.relay import relay
from octavo.server.wire import JsonResponse

EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies that honour it pass each event on at once
]
LAST_WORD_S = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """What an answer is made from and goes by. deadline: by the event loop's clock. connection: None in-process."""

    ask: Ask
    form: Form | BulkForm
    stream: Stream
    deadline: float
    connection: Connection | None


class Answering(Response):
    """Sends the answer and ends the requests, however it is left.

    What goes wrong before the first byte is raised, so that it gets a status of its own; after it, the stream ends
    with an error event, or with the connection where nobody reads. What lies between the first byte and the end goes to
    the connection as it comes, without a switch to this answer's task, as long as the client keeps up.
    """

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._form = call.form if isinstance(call.form, Form) else None
        self._outputs: list[RequestOutput | None] = [None] * len(call.ask.prompts)
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of this one answer."""
        call = self._call
        call.stream.on_cut = self._cut_connection
        watcher = asyncio.create_task(self._watch(receive))
        try:
            async with call.stream, asyncio.timeout_at(call.deadline):
                if call.ask.stream:
                    await self._send_events(send)
                else:
                    await self._send_whole(scope, receive, send)
        except Exception as error:
            if not self._started:
                raise
            await self._end_with(error, send)
        finally:
            watcher.cancel()
            scope["state"]["usage"] = [output.metrics for output in self._outputs if output is not None]

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._call.stream.abort(client_gone())

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        async for _ in self._batches():
            pass
        form = self._call.form
        if isinstance(form, Form):
            response: Response = JsonResponse(form.whole(self._finished()))
        else:
            body = await asyncio.to_thread(form.body, self._finished())
            response = Response(body, media_type=JsonResponse.media_type)
        await response(scope, receive, send)

    async def _send_events(self, send: Send) -> None:
        form = self._form
        assert form is not None, "a body that cannot ask for a stream asked for one"
        async for batch in self._batches():
            events = b"".join([form.events(place, delta) for place, delta in batch])
            if not events:
                continue
            if not self._started:
                self._started = True
                await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            await send({"type": "http.response.body", "body": events, "more_body": True})
        last = form.last_events(self._finished())
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _batches(self) -> AsyncIterator[Batch]:
        """The deltas as they come; after those before it raises what ended a request early. Notes the outputs."""
        while batch := await self._call.stream.batch(self._taker()):
            for number, (place, delta) in enumerate(batch):
                if delta.output is not None:
                    self._outputs[place] = delta.output
                if delta.finish_reason == "error":
                    yield batch[:number]
                    known = delta.output.error if delta.output is not None else None
                    raise known or RequestFailed("the request failed while it ran")
            yield batch

    def _taker(self) -> Take | None:
        """What takes what comes at once."""
        if not self._started or self._form is None:
            return None
        quick = relay(self._form.frame(), self._call.connection)
        return self._pass_on if quick is None else quick.take

    def _pass_on(self, batch: Batch) -> bool:
        """Write the middle of a begun stream at once; whether that could be done. See Stream.batch."""
        connection, form = self._call.connection, self._form
        if connection is None or form is None or not connection.takes_more:
            return False
        if any(delta.finish_reason is not None for _, delta in batch):
            return False
        piece = b"".join([form.events(place, delta) for place, delta in batch])
        if piece:
            connection.write(piece)
        return True

    def _cut_connection(self) -> None:
        if self._call.connection is not None:
            self._call.connection.cut()

    def _finished(self) -> Sequence[RequestOutput]:
        assert all(output is not None for output in self._outputs)
        return [output for output in self._outputs if output is not None]

    async def _end_with(self, error: Exception, send: Send) -> None:
        failure = failure_of(error)
        if self._form is not None and failure.status != CLIENT_GONE:
            message = {"type": "http.response.body", "body": self._form.failed(failure), "more_body": False}
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):  # it may have to wait behind what nobody reads
                    await send(message)
                    return
        self._cut_connection()
        await asyncio.sleep(0)  # the connection is told before this answer, which has no end, returns

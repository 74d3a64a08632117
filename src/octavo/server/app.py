"""The ASGI application: routes, who may use them, and what each does with the engine. Opens no socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from octavo import __version__
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.outputs import RequestOutput
from octavo.engine.submission import Submission
from octavo.errors import EngineUnavailable, InvalidRequest, OctavoError, Overloaded
from octavo.server import operations
from octavo.server.answering import Answering, Call
from octavo.server.answers import BulkForm, ChatForm, CompletionForm, EmbeddingForm, Form
from octavo.server.connection import Outbox, connection_of
from octavo.server.errors import ApiError, Failure, failure_of
from octavo.server.front import Front
from octavo.server.keys import ApiKeys, Caller
from octavo.server.looking import Looking
from octavo.server.metrics import Metrics
from octavo.server.openapi import document
from octavo.server.operations import Operation
from octavo.server.page import Page
from octavo.server.prompts import Ask, Reader, no_such_model
from octavo.server.rates import KeyLimits
from octavo.server.responses import ResponseForm
from octavo.server.settings import ServerConfig
from octavo.server.wire import JsonResponse, read_body
from octavo.text.tokenizer import Tokenizer

Endpoint = Callable[[Request], Awaitable[Response]]
MakeForm = Callable[[Ask, str, Tokenizer], Form | BulkForm]
T = TypeVar("T")

SMALL_BODY = 4096  # bytes that are read at once; more are read in a thread, so that other clients do not wait
READERS = 2


class Server:
    """One engine's HTTP application. `close` it; the engine is the caller's."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics, config: ServerConfig, model: str, keys: ApiKeys) -> None:
        """model: the name that clients use. The engine, which should be made with `observe=metrics.see`, is this
        application's from now on: it sends what a step made once all streams have it."""
        self.draining = False  # requests are then refused
        self._engine = engine
        self._metrics = metrics
        self._config = config
        self._model = model
        self._keys = keys
        self._outbox = Outbox()
        engine.after_step = self._outbox.flush
        self._reader = Reader(lambda: engine.built, model)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="octavo-reader")
        self._created = int(time.time())
        self._looking = Looking(engine, self._reader, config, model, self._threads)
        endpoints = self._endpoints()
        self._document = document((operation for operation, _ in endpoints), keys=keys.needed)
        app = Starlette(
            routes=[self._route(operation, endpoint) for operation, endpoint in endpoints],
            exception_handlers={
                HTTPException: _http_error,
                OctavoError: _error,
                TimeoutError: _error,
                Exception: _error,
            },
        )
        app.router.redirect_slashes = False  # to another path, without a body, by what the client says of its host
        paths = [operation.path for operation, _ in endpoints]
        self._front = Front(app, metrics, paths, log_requests=config.access_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        await self._front(scope, receive, send)

    def close(self) -> None:
        """Let go of the threads that read bodies."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _endpoints(self) -> list[tuple[Operation, Endpoint]]:
        return [
            (operations.HEALTH, self._health),
            (operations.READY, self._ready),
            (operations.VERSION, self._version),
            (operations.METRICS, self._render_metrics),
            (operations.DOCUMENT, self._describe),
            (operations.MODELS, self._models),
            (operations.MODEL, self._one_model),
            (operations.COMPLETIONS, self._completions),
            (operations.CHAT, self._chat),
            (operations.RESPONSES, self._response),
            (operations.EMBEDDINGS, self._embeddings),
            (operations.TOKENIZE, self._tokenize),
            (operations.DETOKENIZE, self._detokenize),
            *self._looking.endpoints,
            *Page().endpoints,
        ]

    def _for_tenants(self, endpoint: Endpoint) -> Endpoint:
        async def checked(request: Request) -> Response:
            request.state.caller = self._keys.caller(request.headers.get("authorization"))
            request.state.tenant = request.state.caller.tenant.name  # for the log
            return await endpoint(request)

        return checked

    def _route(self, operation: Operation, endpoint: Endpoint) -> Route:
        # Names of models have slashes in them.
        path = operation.path.replace("{model}", "{model:path}")
        checked = self._for_tenants(endpoint) if operation.for_tenants else endpoint
        return Route(path, checked, methods=[operation.method])

    async def _health(self, request: Request) -> Response:
        health = self._engine.health
        return JsonResponse({"status": health}, 200 if health == "ready" else 503)

    async def _ready(self, request: Request) -> Response:
        health = "draining" if self.draining else self._engine.health
        return JsonResponse({"status": health}, 200 if health == "ready" else 503)

    async def _version(self, request: Request) -> Response:
        return JsonResponse({"version": __version__})

    async def _render_metrics(self, request: Request) -> Response:
        text = self._metrics.render(await self._engine.stats(), {"version": __version__, "model": self._model})
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _describe(self, request: Request) -> Response:
        return JsonResponse(self._document)

    async def _models(self, request: Request) -> Response:
        return JsonResponse({"object": "list", "data": [self._model_card()]})

    async def _one_model(self, request: Request) -> Response:
        if (asked := request.path_params["model"]) != self._model:
            raise no_such_model(asked, self._model)
        return JsonResponse(self._model_card())

    def _model_card(self) -> dict[str, Any]:
        return {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "octavo",
            "max_model_len": self._engine.built.engine.max_model_len,
        }

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, self._reader.completion, CompletionForm)

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, self._reader.chat, ChatForm)

    async def _response(self, request: Request) -> Response:
        return await self._answer(request, self._reader.response, ResponseForm)

    async def _embeddings(self, request: Request) -> Response:
        return await self._answer(request, self._reader.embedding, EmbeddingForm)

    async def _tokenize(self, request: Request) -> Response:
        tokens = await self._read(await self._body(request), self._reader.tokenize)
        most = self._engine.built.engine.max_model_len
        return JsonResponse({"count": len(tokens), "max_model_len": most, "tokens": tokens})

    async def _detokenize(self, request: Request) -> Response:
        return JsonResponse({"prompt": await self._read(await self._body(request), self._reader.detokenize)})

    async def _answer(self, request: Request, read: Callable[[bytes, Caller], Ask], form: MakeForm) -> Response:
        if self.draining:
            raise EngineUnavailable("the server is shutting down and takes no more requests")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.request_timeout
        caller: Caller = request.state.caller
        if caller.limits.limited:
            request.state.limits = caller.limits  # for the headers of whatever answer there will be
        caller.limits.take_request()
        async with asyncio.timeout_at(deadline):
            # A chat waits for its turn with the template, which the event loop must not do.
            wait = form in (ChatForm, ResponseForm)
            ask = await self._read(await self._body(request), lambda data: read(data, caller), wait=wait)
            submissions = _admitted(ask, caller.limits)
            tokenizer = self._engine.built.engine.tokenizer
            try:
                stream = await self._engine.submit(*submissions)
            except OctavoError as error:
                caller.limits.charge(-ask.prompt_tokens)
                if isinstance(error, Overloaded):
                    self._metrics.count("octavo_requests_rejected_total")
                if isinstance(error, InvalidRequest):
                    name = ask.names.get(error.param or "", error.param)
                    raise InvalidRequest(str(error), param=name, code=error.code) from error
                raise
        made = form(ask, self._model, tokenizer)
        if isinstance(made, Form):
            self._looking.known.note(made.id, caller.tenant.name, stream.request_ids)
        return Answering(Call(ask, made, stream, deadline, connection_of(request.scope, self._outbox)))

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self._config.max_body)

    async def _read(self, data: bytes, read: Callable[[bytes], T], *, wait: bool = True) -> T:
        if len(data) <= SMALL_BODY and not wait:
            return read(data)
        return await asyncio.get_running_loop().run_in_executor(self._threads, read, data)


def _admitted(ask: Ask, limits: KeyLimits) -> tuple[Submission, ...]:
    """A body's submissions: the key pays for prompts now and for answers when they have ended. ApiError 429."""
    if not limits.limited:
        return ask.submissions
    limits.take_prompt(ask.prompt_tokens)

    def charge(output: RequestOutput) -> None:
        limits.charge(output.metrics.output_tokens)

    return tuple(replace(each, account=charge) for each in ask.submissions)


def _error(request: Request, error: Exception) -> Response:
    failure = failure_of(error)
    return JsonResponse(failure.body, failure.status, headers=failure.headers)


def _http_error(request: Request, error: Exception) -> Response:
    """Routing's own: no such path, or not this method."""
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    headers = dict(error.headers or {})
    return _error(request, ApiError(Failure(error.status_code, message, code=code, headers=headers)))

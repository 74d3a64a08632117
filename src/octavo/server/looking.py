"""Endpoints to look at the engine and to tend its cache: pool, explanations, pins, wiping. Answers no prompt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.async_engine import AsyncEngine
from octavo.server import operations
from octavo.server.errors import ApiError, Failure
from octavo.server.explanations import Namer, explanation_body
from octavo.server.keys import Caller
from octavo.server.known import KnownRequests
from octavo.server.operations import Operation
from octavo.server.pins import Pin, Pins
from octavo.server.pool import PoolWatch
from octavo.server.prompts import Reader
from octavo.server.settings import ServerConfig
from octavo.server.spacing import Spacing
from octavo.server.wire import JsonResponse, read_body

EXPLAINED = 64  # prompts of one answer, at most
TEND_EVERY_S = 0.05  # explaining, pinning and wiping go through the pool's blocks, between two steps

Endpoint = Callable[[Request], Awaitable[Response]]


class Looking:
    """What it tells a caller is of the caller's tenant alone."""

    def __init__(
        self, engine: AsyncEngine, reader: Reader, config: ServerConfig, model: str, threads: ThreadPoolExecutor
    ) -> None:
        """model: the name that clients use. threads: for what takes longer than the event loop may be kept."""
        self.known = KnownRequests()  # whoever begins an answer notes it here
        self._engine = engine
        self._reader = reader
        self._config = config
        self._threads = threads
        self._pool = PoolWatch(engine.picture, self.known, model, threads)
        self._pins = Pins()
        self._spacing = Spacing(TEND_EVERY_S)

    @property
    def endpoints(self) -> tuple[tuple[Operation, Endpoint], ...]:
        """Whoever routes to them has set `request.state.caller`."""
        return (
            (operations.POOL, self._show_pool),
            (operations.EXPLAIN, self._explain),
            (operations.PIN, self._pin),
            (operations.UNPIN, self._unpin),
            (operations.WIPE, self._wipe),
        )

    async def _show_pool(self, request: Request) -> Response:
        async with asyncio.timeout(self._config.request_timeout):
            body = await self._pool.body(_caller(request).tenant.name)
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    async def _explain(self, request: Request) -> Response:
        id, tenant = request.path_params["id"], _caller(request).tenant.name
        requests = self.known.requests(id, tenant)
        if requests is None:
            raise _not_found(f"there is no request {id[:100]!r} of yours among the latest", "request_not_found")
        explanations = []
        async with asyncio.timeout(self._config.request_timeout), self._spacing:
            for each in requests[:EXPLAINED]:
                explanation = await self._engine.explain(each, operator=False)
                if explanation is not None:
                    explanations.append(explanation)
        if not explanations:
            raise _not_found(f"request {id} ended too long ago to be explained", "request_not_found")
        return JsonResponse(explanation_body(id, explanations, Namer(self.known, tenant)))

    async def _pin(self, request: Request) -> Response:
        _refuse_other_sites(request)
        caller, body = _caller(request), await read_body(request, self._config.max_body)
        async with asyncio.timeout(self._config.request_timeout), self._spacing:
            ask = await asyncio.get_running_loop().run_in_executor(self._threads, self._reader.pin, body, caller)
            blocks = len(ask.tokens) // self._engine.config.block_size
            life = self._engine.rebuilds
            self._pins.check(caller.tenant, blocks, life)
            number = await self._engine.pin(ask.tokens, ask.ttl_s, ask.namespace)
            pin = Pin(number, life, caller.tenant.name, blocks, time.time() + ask.ttl_s)
            id = self._pins.add(pin)
        told: dict[str, Any] = {"id": id, "object": "pin", "tokens": len(ask.tokens)}
        return JsonResponse(told | {"pinned_tokens": blocks * self._engine.config.block_size, "expires_at": pin.ends})

    async def _unpin(self, request: Request) -> Response:
        _refuse_other_sites(request)
        id = request.path_params["id"]
        pin = self._pins.take(id, _caller(request).tenant, self._engine.rebuilds)
        if pin is None:
            raise _not_found(f"there is no pin {id[:100]!r} of yours; it may have ended", "pin_not_found")
        async with asyncio.timeout(self._config.request_timeout):
            await self._engine.unpin(pin.number)
        return JsonResponse({"id": id, "object": "pin", "deleted": True})

    async def _wipe(self, request: Request) -> Response:
        _refuse_other_sites(request)
        caller, body = _caller(request), await read_body(request, self._config.max_body)
        namespace = self._reader.wipe(body, caller)
        async with asyncio.timeout(self._config.request_timeout), self._spacing:
            blocks = await self._engine.wipe(namespace)
        return JsonResponse({"object": "cache.wipe", "blocks": blocks})


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _refuse_other_sites(request: Request) -> None:
    """Where no key is asked for, another site's page in a visitor's browser must not tend the cache."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise ApiError(Failure(403, "pages of other sites may not do this", "permission_error", code="cross_site"))


def _not_found(message: str, code: str) -> ApiError:
    return ApiError(Failure(404, message, code=code))

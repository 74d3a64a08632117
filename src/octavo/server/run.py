"""A server from its start to its end: socket, loading, signals, draining. Knows no request.

The only place of octavo that touches signal handlers, and only while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp

from octavo.config import EngineConfig
from octavo.engine.async_engine import AsyncEngine, AsyncLimits
from octavo.engine.incidents import Incidents, headline
from octavo.errors import EngineUnavailable, InvalidRequest
from octavo.server import tracing
from octavo.server.app import Server
from octavo.server.keys import ApiKeys
from octavo.server.logs import log_to_stderr
from octavo.server.metrics import Metrics
from octavo.server.patience import HEADER_BYTES, patient
from octavo.server.settings import ServerConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

BACKLOG = 1024
SEND_BUFFER = 256 << 10  # bytes that the system keeps for a client that does not read; by itself it keeps megabytes
KEEP_ALIVE_S = 60
TICK_S = 1.0
AFTER_DRAIN_S = 5  # for streams that were ended to say so
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(model: str, engine: EngineConfig, config: ServerConfig) -> int:
    """Serve until a signal or a fault; the exit code: 0 after a signal, 1 when the engine failed.

    Raises OctavoError for what is wrong from the start (port, key file, model), before or while the model loads.
    """
    keys = ApiKeys() if config.api_keys is None else ApiKeys.read(config.api_keys)
    tls = _tls(config)
    traces = tracing.make_provider(os.environ) if tracing.wanted(os.environ) else None
    log_to_stderr()
    with bind(config.host, config.port) as listener:
        running = _Running(model, engine, config, keys, tls, traces)
        try:
            fault = asyncio.run(running.serve(listener))
        finally:
            if traces is not None:
                traces.shutdown()
    if fault is not None:
        _tell(f"the server ended: {headline(fault)}")
    code = 0 if fault is None else 1
    if running.left_alone:  # its thread, which is in native code, would not survive the interpreter's end in peace
        os._exit(code)
    return code


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. It listens at once, so that a second server is told before it loads anything."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidRequest(f"host {host!r} is no address to listen on: {error.strerror}", param="host") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT, not one in use
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use by another process; choose another with --port"
        else:
            message = f"cannot listen on {host} port {port}: {error.strerror}"
        raise InvalidRequest(message, param="port") from error
    return listener


class HttpServer(uvicorn.Server):
    """uvicorn's, without its signal handlers: they are ours here. It is told to end, and need not look ten times a
    second whether it is to: that would be as often as a step wakes the event loop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Take no more connections, let requests end, and return from `serve`."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """See uvicorn: the date in every head is of the last tick."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


@dataclass(slots=True)
class _Running:
    """One run of the server."""

    model: str
    engine_config: EngineConfig
    config: ServerConfig
    keys: ApiKeys
    tls: ssl.SSLContext | None
    traces: TracerProvider | None
    left_alone: bool = False  # the engine, which loads or hangs, and cannot be interrupted

    async def serve(self, listener: socket.socket) -> BaseException | None:
        """From loading to the last byte; what ended the engine, if that is why."""
        metrics = Metrics()
        limits = AsyncLimits(
            self.config.max_queue,
            self.config.stream_buffer,
            self.config.stall_timeout,
            max_queued_tokens=self.config.max_queued_tokens,
        )
        incidents = Incidents(_incident_dir(self.config), prompts=self.config.incident_prompts)
        engine = AsyncEngine(self.model, self.engine_config, limits=limits, observe=metrics.see, incidents=incidents)
        name = self.config.served_model_name or (Path(self.model).name if os.path.exists(self.model) else self.model)
        app = Server(engine, metrics, self.config, name, self.keys)
        traced = app if self.traces is None else tracing.Traced(app, self.traces)
        http = HttpServer(self._http_config(traced))
        stopping = asyncio.Event()
        with _signals(stopping):
            engine.start()
            serving = asyncio.create_task(http.serve(sockets=[listener]))
            try:
                await _first(engine.ready(), stopping.wait(), serving)
                if not stopping.is_set():
                    await engine.ready()  # raises what loading raised
                    _tell(f"{name} is ready at {_url(listener, 'https' if self.tls else 'http')}")
                    gc.collect()
                    gc.freeze()  # what is loaded stays: to look through it once more holds up every stream for 25 ms
                    await _first(engine.ended(), stopping.wait(), serving)
                return await engine.ended() if engine.health == "failed" else None
            finally:
                gc.unfreeze()
                app.draining = True
                http.end()
                await self._drain(engine, serving)
                app.close()
                if engine.health != "loading":
                    await engine.stop()
                self.left_alone = engine.alive

    async def _drain(self, engine: AsyncEngine, serving: asyncio.Task[None]) -> None:
        """Wait for the requests that run, at most the drain time; then end them."""
        done, _ = await asyncio.wait([serving], timeout=self.config.drain)
        if not done:
            engine.abort_all(EngineUnavailable("the server is shutting down"))
        await serving

    def _http_config(self, app: ASGIApp) -> uvicorn.Config:
        tls = self.tls
        return uvicorn.Config(
            app,
            http=patient(self.config.client_timeout),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.ERROR,  # anybody may cause its warnings
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=self.config.drain + AFTER_DRAIN_S,
            h11_max_incomplete_event_size=HEADER_BYTES,
            ssl_context_factory=None if tls is None else (lambda _config, _make: tls),
        )


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """The first SIGTERM or SIGINT sets `stopping`; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        _tell(f"{number.name}: ending; running requests may finish, another signal ends at once")

    for each in SIGNALS:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        for each in SIGNALS:
            loop.remove_signal_handler(each)


async def _first(*awaitables: Any) -> None:
    """Wait until one of them is done, whatever came of it."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ours = [task for task, given in zip(tasks, awaitables, strict=True) if task is not given]
    for task in ours:
        task.cancel()
    await asyncio.gather(*ours, return_exceptions=True)


def _incident_dir(config: ServerConfig) -> Path:
    if config.incident_dir is not None:
        return Path(config.incident_dir).expanduser()
    from platformdirs import user_state_path

    return user_state_path("octavo") / "incidents"


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    """The certificate, read before anything is loaded. InvalidRequest for one that cannot be used."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A password would be asked for at the terminal, where nobody may be.
        context.load_cert_chain(config.tls_cert, config.tls_key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        told = " ".join(str(error).split())
        names = f"{config.tls_cert} and {config.tls_key}"
        raise InvalidRequest(f"{names} cannot be used for https: {told}", param="tls_cert") from error
    return context


def _tell(text: str) -> None:
    print(f"octavo: {text}", file=sys.stderr, flush=True)

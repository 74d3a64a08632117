"""`octavo.AsyncEngine`: submit, stream and abort from asyncio while one thread runs the engine. Schedules nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from octavo.config import EngineConfig
from octavo.engine.block_map import Picture
from octavo.engine.build import Built, build_engine
from octavo.engine.embedding import embedding_of, embedding_params, encode_document
from octavo.engine.engine import Engine
from octavo.engine.events import Event
from octavo.engine.explain import Explanation
from octavo.engine.incidents import Incidents, headline
from octavo.engine.outputs import Delta, EngineStats, RequestOutput
from octavo.engine.places import Claim, Places
from octavo.engine.readers import Readers
from octavo.engine.streams import Stream
from octavo.engine.submission import Ready, Submission, abort_all, add_all
from octavo.engine.worker import Ended, EngineThread, Lost, News
from octavo.errors import EngineUnavailable, KVError, OctavoError, RequestFailed
from octavo.exec.pooling import Vector
from octavo.options import RequestOptions
from octavo.params import Pooling, SamplingParams
from octavo.text.token_grammar import TokenGrammar

T = TypeVar("T")
Request = tuple[int, Submission]
Health = Literal["loading", "ready", "rebuilding", "stuck", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class AsyncLimits:
    """max_queue: answers that may wait beyond the max_seqs that run. max_queued_tokens: tokens of prompts that may
    wait. buffer: deltas of one stream that wait for its reader. stall_s: seconds after which a step counts as hanging.
    stop_s: seconds that `stop` waits for a step."""

    max_queue: int = 256
    buffer: int = 4096
    stall_s: float = 30.0
    stop_s: float = 10.0
    max_queued_tokens: int = 1 << 20


class AsyncEngine:
    """A language model that many tasks of one event loop use at once.

    `start` begins to load, `ready` waits for it; or use it as an async context manager. It touches no signal handlers.
    A fault that leaves the engine's state in doubt costs it that state: all requests that live get RequestFailed, a
    fresh engine on the same weights takes over (`health` is "rebuilding" meanwhile, `rebuilds` counts) and serves what
    comes. Where faults come too fast for that, or the model itself is damaged, it ends: `health` is "failed".
    observe: called with the deltas of every step, also of requests that nobody reads any more. incidents: where faults
    are kept; None: in the log alone. after_step: called when all streams have what a step made, for a reader that
    takes it at once (see `Stream.batch`) and has something to do for all of them together.
    """

    def __init__(
        self,
        model: str | Path,
        config: EngineConfig | None = None,
        *,
        limits: AsyncLimits | None = None,
        observe: Callable[[Sequence[Delta]], None] | None = None,
        incidents: Incidents | None = None,
        build: Callable[[str | Path, EngineConfig], Built] = build_engine,
    ) -> None:
        self.config = config or EngineConfig()
        self.limits = limits or AsyncLimits()
        self.rebuilds = 0
        self.after_step: Callable[[], None] | None = None
        self._thread = EngineThread(lambda: build(model, self.config), self._tell, incidents)
        self._health: Health = "stopped"
        self._built: Built | None = None
        self._stats: EngineStats | None = None
        self._adding: set[asyncio.Future[None]] = set()
        self._asked: set[asyncio.Future[Any]] = set()
        self._places = Places(self.config.max_seqs, self.limits.max_queue)
        self._readers = Readers(self._places, observe)
        self._compiling = ThreadPoolExecutor(1, thread_name_prefix="octavo-compile")  # of grammars, one at a time
        self._seeds = random.Random(self.config.seed) if self.config.seed is not None else secrets.SystemRandom()

    def start(self) -> None:
        """Begin to load, in the running event loop, which is the engine's from now on."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._loaded: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[BaseException | None] = loop.create_future()
        self._health = "loading"
        self._thread.start()

    async def ready(self) -> None:
        """Wait until it takes requests. Raises what loading raises: see `octavo.LLM`."""
        await asyncio.shield(self._loaded)

    async def ended(self) -> BaseException | None:
        """Wait until the engine's thread has ended: None, or what ended it."""
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End all requests and the thread; it waits for the step that runs. Does nothing when there is none."""
        if self._health == "stopped":
            return
        self.abort_all(EngineUnavailable("the engine is stopping"))
        self._thread.stop()
        self._compiling.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), self.limits.stop_s)
            self._thread.join(self.limits.stop_s)
        self._health = "stopped"

    @property
    def alive(self) -> bool:
        """Whether its thread is there, as it is after a `stop` that could not wait for it."""
        return self._thread.alive

    @property
    def health(self) -> Health:
        """What it is doing; "stuck": one step has taken longer than `limits.stall_s`."""
        if self._health == "ready" and self._thread.step_s > self.limits.stall_s:
            return "stuck"
        return self._health

    @property
    def built(self) -> Built:
        """The engine's fixed parts (tokenizer, chat template, sizes), which any thread may read. EngineUnavailable
        while it loads and after it failed."""
        if self._built is None or self._health not in ("ready", "rebuilding"):
            raise EngineUnavailable(f"the model is not ready: {self._health}")
        return self._built

    async def stats(self, wait_s: float = 0.5) -> EngineStats | None:
        """Counters and gauges as they are after the current step, or the last ones known where that takes longer or
        fails. None before the first."""
        if self._health == "ready":
            with contextlib.suppress(TimeoutError, OctavoError):
                self._stats = await asyncio.wait_for(self._ask(Engine.stats, reads=True), wait_s)
        return None if self._stats is None else replace(self._stats, rebuilds=self.rebuilds)

    async def events(self) -> tuple[Event, ...]:
        """What happened lately: `Engine.events` after the current step."""
        return await self._ask(Engine.events, reads=True)

    async def explain(self, request_id: int, *, operator: bool = True) -> Explanation | None:
        """Why the request of these deltas was served as it was: `Engine.explain` after the current step."""
        return await self._ask(lambda engine: engine.explain(request_id, operator=operator), reads=True)

    async def picture(self) -> Picture:
        """What every block is used for: `Engine.picture` after the current step."""
        return await self._ask(Engine.picture, reads=True)

    async def resize(self, num_blocks: int) -> None:
        """Let the pool have `num_blocks` blocks from now on: `Engine.resize`, and what that raises."""
        await self._ask(lambda engine: engine.resize(num_blocks))

    async def pin(self, prompt: str | Sequence[int], ttl_s: float, namespace: bytes = b"") -> int:
        """See `PromptPins.add`."""
        return await self._ask(lambda engine: engine.pins.add(prompt, ttl_s, namespace=namespace))

    async def unpin(self, pin: int) -> bool:
        """See `PromptPins.remove`."""
        return await self._ask(lambda engine: engine.pins.remove(pin))

    async def wipe(self, namespace: bytes) -> int:
        """See `Engine.wipe`."""
        return await self._ask(lambda engine: engine.wipe(namespace))

    def _ask(self, question: Callable[[Engine], T], *, reads: bool = False) -> asyncio.Future[T]:
        """What the engine says between two steps. EngineUnavailable while there is none. reads: the question changes
        nothing, whatever comes of it."""
        _ = self.built
        answer: asyncio.Future[T] = self._loop.create_future()
        self._asked.add(answer)
        answer.add_done_callback(self._asked.discard)

        def ask(engine: Engine) -> None:
            try:
                self._in_loop(_fulfil, answer, question(engine))
            except Exception as error:
                self._in_loop(_fail, answer, _told(error))
                if not (reads or _refuses(error)):
                    raise

        self._thread.call(ask)
        return answer

    async def submit(self, *submissions: Submission) -> Stream:
        """Queue all of them or none; their deltas. Raises InvalidRequest, Overloaded or EngineUnavailable."""
        _ = self.built
        grammars = await self._compiled(submissions)
        claims = [(each.options.tenant, each.params.sequences) for each in submissions]
        self._places.take(claims, self._thread.predicted_wait_s)
        stream = Stream(len(submissions), self.limits.buffer, self._abandon)
        added: asyncio.Future[None] = self._loop.create_future()
        self._adding.add(added)
        ready = [
            Ready(each, self._seed(each.params), grammar) for each, grammar in zip(submissions, grammars, strict=True)
        ]

        def add(engine: Engine) -> None:
            try:
                ids = add_all(engine, ready, self.limits.max_queued_tokens)
            except Exception as error:
                self._in_loop(self._on_refused, added, claims, _told(error))
                if not _refuses(error):
                    raise
            else:
                self._in_loop(self._on_added, added, stream, list(zip(ids, submissions, strict=True)))

        self._thread.call(add)
        await added  # when cancelled, `_on_added` finds it so
        return stream

    async def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Answer one prompt piece by piece; the last delta carries the whole output. Leaving early ends it."""
        one = Submission(prompt, params or SamplingParams(), options=options or RequestOptions())
        async with await self.submit(one) as stream:
            while batch := await stream.batch():
                for _, delta in batch:
                    yield delta

    async def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> RequestOutput:
        """Answer one prompt whole."""
        one = Submission(prompt, params or SamplingParams(), options=options or RequestOptions())
        async with await self.submit(one) as stream:
            while batch := await stream.batch():
                for _, delta in batch:
                    if delta.output is not None:
                        return delta.output
        raise EngineUnavailable("the engine ended the request without an answer")  # pragma: no cover

    async def embed(
        self,
        text: str | Sequence[int],
        pooling: Pooling = "last",
        *,
        normalize: bool = True,
        options: RequestOptions | None = None,
    ) -> Vector:
        """The embedding of one text: see `octavo.LLM.embed`."""
        engine = self.built.engine
        tokens = await asyncio.to_thread(encode_document, text, engine.tokenizer, engine.max_model_len)
        return embedding_of(await self.generate(tokens, embedding_params(pooling), options), normalize=normalize)

    def abort_all(self, error: OctavoError) -> None:
        """End every request that runs or waits; their readers get `error`."""
        self._readers.abort(error)

    async def __aenter__(self) -> AsyncEngine:
        self.start()
        try:
            await self.ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _compiled(self, submissions: Sequence[Submission]) -> list[TokenGrammar | None]:
        """Each submission's grammar, compiled where nobody waits for it. Equal ones are compiled once."""
        wanted = [each.params.grammar for each in submissions]
        if not any(wanted):
            return [None] * len(wanted)
        compile_one = self.built.engine.grammars.compile
        made = {
            grammar: await self._loop.run_in_executor(self._compiling, compile_one, grammar)
            for grammar in set(wanted)
            if grammar is not None
        }
        return [None if grammar is None else made[grammar] for grammar in wanted]

    def _seed(self, params: SamplingParams) -> int:
        return self._seeds.getrandbits(63) if params.seed is None else params.seed

    def _abandon(self, stream: Stream) -> None:
        """Nobody reads `stream` any more: end its requests."""
        if ids := self._readers.leave(stream):
            self._thread.call(lambda engine: abort_all(engine, ids))

    def _tell(self, news: News) -> None:
        """From the engine's thread."""
        if isinstance(news, Built):
            self._in_loop(self._on_ready, news)
        elif isinstance(news, Lost):
            self._in_loop(self._on_lost, news.error)
        elif isinstance(news, Ended):
            self._in_loop(self._on_end, news.error)
        else:
            self._in_loop(self._deliver, news)

    def _deliver(self, deltas: Sequence[Delta]) -> None:
        try:
            self._readers.deliver(deltas)
        finally:
            if self.after_step is not None:
                self.after_step()

    def _in_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        """From the engine's thread. A loop that was closed under a running engine has nobody left to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_added(self, added: asyncio.Future[None], stream: Stream, requests: Sequence[Request]) -> None:
        self._adding.discard(added)
        self._readers.add(stream, requests)
        if added.done():  # its task was cancelled meanwhile
            stream.close()
        else:
            added.set_result(None)

    def _on_refused(self, added: asyncio.Future[None], claims: Sequence[Claim], error: Exception) -> None:
        self._adding.discard(added)
        self._places.give_back(claims)
        if not added.done():
            added.set_exception(error)

    def _on_ready(self, built: Built) -> None:
        self._built = built
        self._health = "ready"
        if not self._loaded.done():
            self._loaded.set_result(None)

    def _on_lost(self, error: RequestFailed) -> None:
        self._health = "rebuilding"
        self.rebuilds += 1
        self._readers.lose(error)

    def _on_end(self, error: BaseException | None) -> None:
        self._health = "stopped" if error is None else "failed"
        reason = "it has stopped" if error is None else f"it failed: {headline(error)}"
        gone = EngineUnavailable(f"the engine ended before the request did: {reason}")
        if not self._loaded.done():
            self._loaded.set_exception(error or gone)
            self._loaded.exception()  # heard, even if nobody waits
        for waiting in (*self._adding, *self._asked):
            if not waiting.done():
                waiting.set_exception(gone)
        self._adding.clear()
        self._readers.lose(gone)
        self._places.clear()
        self._ended.set_result(error)


def _fulfil(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _refuses(error: Exception) -> bool:
    """Whether `error` says no to what was asked and leaves the engine as it was."""
    return isinstance(error, OctavoError) and not isinstance(error, KVError)


def _told(error: Exception) -> OctavoError:
    """What to tell who asked. Of errors that are not meant for anybody, their kind alone."""
    if isinstance(error, OctavoError):
        return error
    return RequestFailed(f"the engine failed on this request ({type(error).__name__}) and starts anew")

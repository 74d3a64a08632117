"""Many tasks on one engine: answers, cancelling, limits, faults, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from toy import make_toy

from octavo import LLM, AsyncEngine, EngineConfig, SamplingParams
from octavo.engine.async_engine import AsyncLimits
from octavo.engine.engine import Engine
from octavo.engine.streams import Stream
from octavo.engine.submission import Submission
from octavo.errors import EngineUnavailable, InvalidRequest, ModelNotFound, Overloaded, ReaderTooSlow, RequestFailed

CHAIN = ("a", "b", "c", "d")
LONG = SamplingParams(max_tokens=200, ignore_eos=True)
SHORT = SamplingParams(max_tokens=3)
CONFIG = EngineConfig(num_blocks=64, max_seqs=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy(tmp_path_factory.mktemp("async") / "toy", CHAIN)


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CHECK", "2")


def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.005) -> None:
    """Let steps take a while, so that tasks of the loop come in between."""
    step = Engine.step

    def slow(engine: Engine) -> Any:
        time.sleep(seconds)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))


@asynccontextmanager
async def idle_after(engine: AsyncEngine) -> AsyncIterator[None]:
    """Within two seconds of what the block did, no sequence and no block is left."""
    yield
    deadline = time.monotonic() + 2
    places = engine._places
    while not (stats := await engine.stats()) or places.taken or stats.running or stats.waiting or stats.blocks_used:
        assert time.monotonic() < deadline, (places.taken, stats)
        await asyncio.sleep(0.01)
    assert not engine._readers


async def read_all(stream: Stream) -> None:
    while await stream.batch():
        pass


def test_a_step_ends_once_all_its_streams_have_their_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where handing it out fails half way: what was taken is not kept for another step."""
    slowed(monkeypatch)
    taken: list[str | None] = []  # by whom, and None for a step's end

    def taker(name: str) -> Callable[[list[tuple[int, Any]]], bool]:
        def take(batch: list[tuple[int, Any]]) -> bool:
            if any(delta.finish_reason for _, delta in batch):
                return False
            taken.append(name)
            return True

        return take

    async def read(stream: Stream, name: str) -> None:
        while await stream.batch(taker(name)):
            pass

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine:
            engine.after_step = lambda: taken.append(None)
            streams = [await engine.submit(Submission(prompt, LONG)) for prompt in ("a", "b")]
            await asyncio.gather(read(streams[0], "a"), read(streams[1], "b"))
            parts = [part.split() for part in " ".join(each or "|" for each in taken).split("|")]
            assert ["a", "b"] in parts
            assert all(len(set(part)) == len(part) for part in parts)
            engine._readers.observe = lambda deltas: 1 / 0
            before = taken.count(None)
            with pytest.raises(ZeroDivisionError):
                engine._deliver([])
            assert taken.count(None) == before + 1
            engine._readers.observe = None

    run(main)


def test_answers_as_the_synchronous_engine(folder: Path) -> None:
    with LLM(folder, num_blocks=64) as llm:
        expected = [output.text for output in llm.generate(["a", "b", [0, 1]], SHORT, progress=False)]

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            outputs = await asyncio.gather(*(engine.generate(prompt, SHORT) for prompt in ("a", "b", [0, 1])))
            assert [output.text for output in outputs] == expected
            pieces = [delta async for delta in engine.stream("a", SHORT)]
            assert "".join(delta.text for delta in pieces) == "bcd"
            assert [delta.finish_reason for delta in pieces] == [None, None, "length"]

    run(main)


def test_prompts_submitted_together_keep_their_places(folder: Path) -> None:
    """Case N07."""

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            pair = SamplingParams(max_tokens=2, n=2)
            stream = await engine.submit(*(Submission(prompt, pair) for prompt in "abc"))
            texts: dict[tuple[int, int], str] = {}
            async for place, delta in stream:
                key = place, delta.index
                texts[key] = texts.get(key, "") + delta.text
            assert texts == {(place, k): text for place, text in enumerate(("bc", "cd", "dd")) for k in (0, 1)}

    run(main)


def test_one_refused_prompt_refuses_all(folder: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            with pytest.raises(InvalidRequest, match="prompt 1: the prompt is empty"):
                await engine.submit(Submission("a", LONG), Submission("", LONG))
            assert (await engine.generate("a", SHORT)).text == "bcd"

    run(main)


def test_an_abandoned_stream_ends_within_a_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case E01: closed, cancelled while reading, cancelled while being added."""
    slowed(monkeypatch)

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            async with idle_after(engine):
                stream = engine.stream("a", LONG)
                await anext(stream)
                await stream.aclose()
            async with idle_after(engine):
                task = asyncio.create_task(engine.generate("a", LONG))
                await asyncio.sleep(0.05)
                task.cancel()
            async with idle_after(engine):
                task = asyncio.create_task(engine.generate("a", LONG))
                await asyncio.sleep(0)
                task.cancel()
            assert (await engine.generate("a", SHORT)).text == "bcd"

    run(main)


def test_requests_cancelled_while_queued(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case E03."""
    slowed(monkeypatch)

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64, max_seqs=1)) as engine, idle_after(engine):
            running = asyncio.create_task(engine.generate("a", SamplingParams(max_tokens=60, ignore_eos=True)))
            for place in range(50):
                task = asyncio.create_task(engine.generate("b", LONG))
                await asyncio.sleep(0.001 * (place % 6))
                task.cancel()
            assert len((await running).choices[0].tokens) == 60

    run(main)


def test_a_full_queue_refuses_with_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N08: beyond the limit a typed refusal, and all that was taken in is served."""
    slowed(monkeypatch, 0.001)

    async def main() -> None:
        limits = AsyncLimits(max_queue=8)
        async with AsyncEngine(folder, CONFIG, limits=limits) as engine, idle_after(engine):
            results = await asyncio.gather(*(engine.generate("a", SHORT) for _ in range(200)), return_exceptions=True)
            refused = [result for result in results if isinstance(result, Overloaded)]
            assert len(refused) == 200 - 12
            assert all(1 <= error.retry_after_s <= 60 for error in refused)
            assert [result.text for result in results if not isinstance(result, BaseException)] == ["bcd"] * 12
            many = SamplingParams(max_tokens=1, n=30)  # an idle engine takes any number of answers
            assert len((await engine.generate("a", many)).choices) == 30

    run(main)


def test_a_reader_that_does_not_read_is_cut_off(folder: Path) -> None:
    """Case E08: its buffer is bounded, its requests end, others go on."""

    async def main() -> None:
        limits = AsyncLimits(buffer=20)
        async with AsyncEngine(folder, CONFIG, limits=limits) as engine, idle_after(engine):
            stream = await engine.submit(Submission("a", LONG))
            cut = asyncio.Event()
            stream.on_cut = cut.set
            assert (await engine.generate("a", SHORT)).text == "bcd"
            await cut.wait()
            with pytest.raises(ReaderTooSlow, match="20 pieces"):
                await stream.batch()

    run(main)


def test_a_fault_of_the_engine_reaches_everybody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N05: who waits gets an error, and later requests are served by another engine."""
    step = Engine.step
    broken = threading.Event()

    def breaks(engine: Engine) -> Any:
        if broken.is_set():
            broken.clear()
            raise ZeroDivisionError("a fault")
        time.sleep(0.002)
        return step(engine)

    monkeypatch.setattr(Engine, "step", breaks)

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            tasks = [asyncio.create_task(engine.generate("a", LONG)) for _ in range(3)]
            await asyncio.sleep(0.05)
            broken.set()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, RequestFailed)
            assert (await engine.generate("a", SHORT)).text == "bcd"
            assert (engine.health, engine.rebuilds) == ("ready", 1)

    run(main)


def test_a_hanging_step_shows_in_health(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N05."""
    go_on = threading.Event()
    step = Engine.step

    def hangs(engine: Engine) -> Any:
        go_on.wait(10)
        return step(engine)

    monkeypatch.setattr(Engine, "step", hangs)

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG, limits=AsyncLimits(stall_s=0.05)) as engine:
            task = asyncio.create_task(engine.generate("a", SHORT))
            await asyncio.sleep(0.2)
            assert engine.health == "stuck"
            go_on.set()
            assert (await task).text == "bcd"
            assert engine.health == "ready"

    run(main)


def test_loading_fails_where_it_is_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        engine = AsyncEngine(tmp_path / "nothing")
        engine.start()
        assert engine.health == "loading"
        with pytest.raises(EngineUnavailable, match="loading"):
            await engine.submit(Submission("a", SHORT))
        with pytest.raises(ModelNotFound):
            await engine.ready()
        assert engine.health == "failed"
        await engine.stop()

    run(main)


def test_leaves_nothing_behind(folder: Path) -> None:
    """Case N03: signal handlers are the host's; threads and files return to what they were."""

    def mark(number: int, frame: object) -> None:
        """The host's own handler."""

    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine:
            await engine.generate("a", SHORT)
            running = await engine.submit(Submission("a", LONG))
        with pytest.raises(EngineUnavailable, match="stopping"):
            await read_all(running)

    run(main)
    gc.collect()
    before = signal.signal(signal.SIGTERM, mark)
    try:
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            run(main)
        gc.collect()
        assert signal.getsignal(signal.SIGTERM) is mark
        assert threading.active_count() <= threads
        assert len(os.listdir("/proc/self/fd")) <= files
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_tells_what_happened_and_why(folder: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, CONFIG) as engine, idle_after(engine):
            ids = {delta.request_id async for delta in engine.stream("a", SHORT)}
            told = await engine.explain(ids.pop())
            assert told is not None
            assert told.state == "ended"
            assert [event.kind for event in await engine.events()] == ["arrived", "admitted", "finished"]
            assert await engine.explain(99) is None
        with pytest.raises(EngineUnavailable):
            await engine.events()

    run(main)

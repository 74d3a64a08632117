"""Faults that leave the engine's state in doubt: who is told, what takes over, what is kept, when it is given up."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy import make_random, make_toy

from octavo import LLM, AsyncEngine, EngineConfig, SamplingParams
from octavo.engine.choices import AnswerMaker
from octavo.engine.engine import Engine
from octavo.engine.incidents import Incidents
from octavo.engine.journal import Journal
from octavo.engine.live_requests import LiveRequests
from octavo.engine.submission import Submission
from octavo.engine.tiers import Prefetcher
from octavo.errors import EngineUnavailable, KVError, RequestFailed
from octavo.exec.batch import BatchEncoder
from octavo.exec.block_mover import BlockMover
from octavo.exec.executor import Executor
from octavo.kv import KVCacheManager
from octavo.models.decoder import Decoder
from octavo.ops.kv_pool import KVPool
from octavo.sched.scheduler import Scheduler
from octavo.tiers import HostTier, TierStack

# Everything that the engine's thread runs through, and at which call of a burst of requests it breaks there.
PLACES: list[tuple[type, str, int]] = [
    *((Scheduler, name, 30) for name in ("schedule", "apply")),
    *((Scheduler, name, 4) for name in ("add", "abort", "request")),
    *((KVCacheManager, name, 40) for name in ("extend", "commit", "take_ops", "end_step", "block_ids")),
    *((KVCacheManager, name, 8) for name in ("open", "close", "fork")),
    *((BatchEncoder, "encode", 30), (Executor, "run", 30), (Executor, "admit", 8), (Executor, "release", 6)),
    *((BlockMover, "run", 30), (KVPool, "read_block", 4), (KVPool, "write_block", 4)),
    *((TierStack, name, 8) for name in ("contains", "put", "fetch", "wants")),
    *((TierStack, name, 30) for name in ("begin_step", "end_step")),
    *((HostTier, "put", 4), (Prefetcher, "poll", 30), (LiveRequests, "land", 60)),
    *((Journal, name, 6) for name in ("admitted", "ended", "closed")),
]
GREEDY = SamplingParams(max_tokens=20, ignore_eos=True, temperature=0)
PAIR = SamplingParams(max_tokens=6, n=2, ignore_eos=True)
LONG = SamplingParams(max_tokens=80, ignore_eos=True)
SHORT = SamplingParams(max_tokens=3)


class Injected(Exception):
    """A fault that a test put in."""


@contextmanager
def fault_at(owner: type, name: str, call: int, *, after: bool = False) -> Iterator[list[int]]:
    """The `call`-th call of a method raises, before or after it did its work. Yields how many came by."""
    method, seen = getattr(owner, name), [0]

    def broken(*arguments: Any, **named: Any) -> Any:
        seen[0] += 1
        if seen[0] != call:
            return method(*arguments, **named)
        if after:
            method(*arguments, **named)
        raise Injected(f"{owner.__name__}.{name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, broken)
        yield seen


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CHECK", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy(tmp_path_factory.mktemp("rebuild") / "toy", ("a", "b", "c", "d"))


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


async def idle(engine: AsyncEngine) -> None:
    """No sequence and no block is left."""
    async with asyncio.timeout(5):
        while not (stats := await engine.stats()) or engine._readers or stats.running or stats.blocks_used:
            await asyncio.sleep(0.002)
    assert engine._places.taken == 0
    assert not engine._adding
    assert not engine._asked


def prompts_of(generator: random.Random) -> list[list[int]]:
    """Some that share a beginning, some that do not."""
    shared = [generator.randrange(256) for _ in range(40)]
    return [
        shared[: generator.randrange(1, 40)] + [generator.randrange(256) for _ in range(generator.randrange(1, 30))]
        for _ in range(4)
    ]


async def ask(engine: AsyncEngine, prompt: list[int], right: dict[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether there was an answer, which must be the right one."""
    try:
        output = await engine.generate(prompt, GREEDY)
    except RequestFailed:
        return False
    if output.error is not None:
        return False
    assert output.choices[0].tokens == right[tuple(prompt)]
    return True


async def leave(engine: AsyncEngine, prompt: list[int]) -> None:
    """A request with two answers, given up early."""
    with contextlib.suppress(RequestFailed):
        async with await engine.submit(Submission(prompt, PAIR)) as stream:
            await stream.batch()


def test_after_a_fault_anywhere_all_is_as_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine under pressure, with tiers, that breaks again and again, each time somewhere else: who was concerned
    gets an error, who was not gets the right answer, what comes afterwards is answered to the last token, and neither
    blocks nor threads nor files nor the engines before are left."""
    monkeypatch.setattr(logging.getLogger("octavo.engine.engine"), "disabled", True)  # pytest keeps what it is told
    model = make_random(tmp_path / "model")
    generator = random.Random(7)
    rounds = [prompts_of(generator) for _ in range(len(PLACES))]
    with LLM(model, num_blocks=64) as llm:
        every = [prompt for prompts in rounds for prompt in prompts]
        texts = [output.choices[0].tokens for output in llm.generate(every, GREEDY, progress=False)]
    right = {tuple(prompt): tokens for prompt, tokens in zip(every, texts, strict=True)}
    config = EngineConfig(
        num_blocks=12, max_seqs=4, max_batched_tokens=32, host_kv_memory="256KiB", disk_kv=str(tmp_path / "disk")
    )

    async def main() -> None:
        async with AsyncEngine(model, config) as engine:
            fired = failed = 0
            for (owner, name, most), prompts in zip(PLACES, rounds, strict=True):
                before = weakref.ref(engine.built.engine)
                rebuilt = engine.rebuilds
                call, after = generator.randrange(1, most + 1), generator.random() < 0.5
                with fault_at(owner, name, call, after=after) as seen:
                    left = asyncio.create_task(leave(engine, prompts[0]))
                    answered = await asyncio.gather(*(ask(engine, prompt, right) for prompt in prompts))
                    await left
                fired += seen[0] >= call
                failed += not all(answered)
                assert engine.rebuilds <= rebuilt + 1
                assert await ask(engine, prompts[0], right), (owner, name)
                await idle(engine)
                if engine.rebuilds > rebuilt:
                    gc.collect()
                    assert before() is None, (owner, name)
            assert fired > len(PLACES) * 0.6
            assert failed > len(PLACES) * 0.5
            assert engine.rebuilds > len(PLACES) * 0.3
            assert [thread.name for thread in threading.enumerate()].count("octavo-tier-writer") == 1

    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    run(main)
    gc.collect()
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_what_a_disk_tier_held_is_found_again(tmp_path: Path) -> None:
    model = make_random(tmp_path / "model")
    config = EngineConfig(num_blocks=8, max_seqs=2, disk_kv=str(tmp_path / "disk"))
    first, other = list(range(64)), [9] * 100

    async def main() -> None:
        async with AsyncEngine(model, config) as engine:
            expected = await engine.generate(first, GREEDY)
            await engine.generate(other, GREEDY)  # which drives the first one's blocks out of the pool
            with fault_at(Scheduler, "schedule", 1), pytest.raises(RequestFailed, match="starts anew"):
                await engine.generate(other, GREEDY)
            again = await engine.generate(first, GREEDY)
            assert again.choices == expected.choices
            assert again.metrics.cached_tokens == 48
            stats = await engine.stats()
            assert stats is not None
            assert (stats.hits.restart, stats.rebuilds) == (48, 1)

    run(main)


def test_no_id_comes_twice_and_no_memory_is_kept(folder: Path) -> None:
    """What is said of a request that is lost concerns no later one; the pool's pages go back to the system."""

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            before = (await engine.generate("a", SHORT)).request_id
            pool = engine.built.model.loaded.pool.array
            assert pool.any()
            with fault_at(Scheduler, "schedule", 1), pytest.raises(RequestFailed):
                await engine.generate("a", SHORT)
            while engine.health != "ready":
                await asyncio.sleep(0.001)
            assert not pool.any()
            assert (await engine.generate("a", SHORT)).request_id > before + 1

    run(main)


def test_a_resized_pool_stays_as_it_was(folder: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64, max_seqs=4)) as engine:
            await engine.resize(40)
            with fault_at(KVCacheManager, "commit", 1), pytest.raises(RequestFailed):
                await engine.generate("a", SHORT)
            assert (await engine.generate("a", SHORT)).text == "bcd"
            assert engine.built.engine.num_blocks == 40

    run(main)


def test_what_cannot_be_read_costs_nobody_else(folder: Path) -> None:
    """Case E09: a fault while one request is read is that request's alone, and so is one of a mere question."""

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            task = asyncio.create_task(engine.generate("a", LONG))
            await asyncio.sleep(0)
            with fault_at(AnswerMaker, "sampler", 2), pytest.raises(RequestFailed, match="could not be read"):
                await asyncio.gather(*(engine.generate("b", SHORT) for _ in range(2)))
            with fault_at(Journal, "explain", 1), pytest.raises(RequestFailed):
                await engine.explain(0)
            assert len((await task).choices[0].tokens) == 80
            assert engine.rebuilds == 0

    run(main)


def test_a_question_that_breaks_something_is_answered(folder: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            with fault_at(KVCacheManager, "forget", 1), pytest.raises(RequestFailed, match="Injected"):
                await engine.wipe(b"ann")
            assert await engine.wipe(b"ann") == 0
            assert engine.rebuilds == 1

    run(main)


def test_a_misused_verb_is_a_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KVError tells of a broken promise, wherever it comes up: no refusal."""
    add = Scheduler.add

    def misused(*arguments: Any) -> None:
        monkeypatch.setattr(Scheduler, "add", add)
        raise KVError("sequence 3 is open already")

    monkeypatch.setattr(Scheduler, "add", misused)

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            with pytest.raises(KVError):
                await engine.generate("a", SHORT)
            assert (await engine.generate("a", SHORT)).text == "bcd"
            assert engine.rebuilds == 1

    run(main)


def test_requests_that_come_meanwhile_are_served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N05: `health` tells, and what is asked then is answered by the next engine."""
    go_on, abandon = threading.Event(), Engine.abandon

    def slowly(engine: Engine) -> None:
        assert go_on.wait(10)
        abandon(engine)

    monkeypatch.setattr(Engine, "abandon", slowly)

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            with fault_at(Scheduler, "apply", 1), pytest.raises(RequestFailed):
                await engine.generate("a", SHORT)
            assert engine.health == "rebuilding"
            task = asyncio.create_task(engine.generate("a", SHORT))
            await asyncio.sleep(0.01)
            go_on.set()
            assert (await task).text == "bcd"
            assert engine.health == "ready"

    run(main)


def test_a_crash_loop_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case N05: after three rebuilds without a token between, who waits gets an error and later requests are refused;
    a token in between, and all begins anew."""

    async def fail(engine: AsyncEngine) -> None:
        with fault_at(Scheduler, "schedule", 1), pytest.raises(RequestFailed):
            await engine.generate("a", SHORT)

    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64)) as engine:
            for _ in range(3):
                await fail(engine)
            assert (await engine.generate("a", SHORT)).text == "bcd"
            for _ in range(4):
                assert engine.health in ("ready", "rebuilding")
                await fail(engine)
            ended = await engine.ended()
            assert isinstance(ended, EngineUnavailable)
            assert "3 rebuilds within 60 s" in str(ended)
            assert "Injected" in str(ended)
            assert engine.health == "failed"
            assert engine.rebuilds == 7
            with pytest.raises(EngineUnavailable, match="failed"):
                await engine.generate("a", SHORT)

    run(main)


def test_a_damaged_model_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64, backend="numpy")) as engine:
            nothing = np.full((1, 300), np.nan)
            monkeypatch.setattr(Decoder, "__call__", lambda *_: SimpleNamespace(logits=nothing, hidden=nothing))
            with fault_at(Scheduler, "schedule", 1), pytest.raises(RequestFailed):
                await engine.generate("a", SHORT)
            assert "damaged" in str(await engine.ended())
            assert engine.health == "failed"

    run(main)


def incidents_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*"))]


@pytest.mark.parametrize("prompts", [False, True])
def test_an_incident_is_kept(folder: Path, tmp_path: Path, prompts: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What happened last, where, in which versions; prompts and what may quote them only where somebody asked."""
    directory = tmp_path / "state" / "incidents"

    async def main() -> None:
        incidents = Incidents(directory, prompts=prompts)
        async with AsyncEngine(folder, EngineConfig(num_blocks=64), incidents=incidents) as engine:
            with fault_at(Scheduler, "apply", 3), pytest.raises(RequestFailed, match="incident-2") as told:
                await engine.generate("a secret", LONG)
            assert "Injected" not in str(told.value)

    with caplog.at_level(logging.ERROR):
        run(main)
    (path,) = directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert str(path) in caplog.text
    (incident,) = incidents_of(directory)
    assert set(incident) == {"time", "error", "versions", "machine", "config", "step", "counts", "live", "events"}
    (error,) = incident["error"]
    assert error["type"] == "Injected"
    assert error["message"] == ("Scheduler.apply" if prompts else None)
    assert error["traceback"][-1].startswith("engine/test_rebuild.py:")
    assert incident["step"]["id"] == 3
    assert incident["step"]["rows"][0]["count"] == 1
    assert incident["counts"]["steps"] == 3
    assert incident["live"][0]["prompt_tokens"] == 8
    assert [event["kind"] for event in incident["events"]] == ["arrived", "admitted"]
    assert ("secret" in path.read_text()) == prompts
    assert "secret" not in caplog.text
    if prompts:
        assert incident["live"][0]["prompt"] == "a secret"


def test_a_fault_of_rows_is_kept_too(folder: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(folder, EngineConfig(num_blocks=64), incidents=Incidents(tmp_path / "kept")) as engine:
            with fault_at(Executor, "run", 2):
                output = await engine.generate("a", SHORT)
            assert output.choices[0].finish_reason == "error"
            assert (await engine.generate("a", SHORT)).text == "bcd"
            assert engine.rebuilds == 0

    run(main)
    assert [incident["error"][0]["type"] for incident in incidents_of(tmp_path / "kept")] == ["Injected"]


def test_incidents_are_bounded(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = 1e9
    errors = []
    for kind in (ValueError, KeyError):
        try:
            raise kind("a secret")
        except kind as error:
            errors.append(error)
    with LLM(folder, num_blocks=64) as llm:
        incidents = Incidents(tmp_path / "kept", kept=3, clock=lambda: now)
        first = incidents.keep(llm.engine, errors[0])
        assert first is not None
        assert incidents.keep(llm.engine, errors[0]) == first  # one like it, within a minute
        for error in errors * 4:
            now += 61
            assert incidents.keep(llm.engine, error) is not None
        names = sorted(path.name for path in (tmp_path / "kept").iterdir())
        assert len(names) == 3
        assert first.name not in names
        assert all(name.endswith(".json") for name in names)
        (tmp_path / "file").write_text("")
        assert Incidents(tmp_path / "file").keep(llm.engine, errors[0]) is None
        assert "cannot be kept" in caplog.text
        del llm.engine._journal
        broken = Incidents(tmp_path / "broken")
        assert broken.keep(llm.engine, errors[1]) is not None
        (incident,) = incidents_of(tmp_path / "broken")
        assert incident["events"].startswith("not to be had: AttributeError")
        llm.engine._journal = Journal(lambda: 0.0)

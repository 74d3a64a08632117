"""The pool grows and shrinks while requests run: the same answers, and memory is taken and given back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from toy import make_random

from octavo import LLM, AsyncEngine, EngineConfig, SamplingParams
from octavo.engine.outputs import Choice
from octavo.errors import InvalidRequest, NotEnoughMemory

PARAMS = SamplingParams(max_tokens=12, temperature=1.0, seed=3, n=2, logprobs=1, ignore_eos=True)
PROMPTS = [[(at * 7 + index) % 200 for index in range(20)] for at in range(6)] * 5


@pytest.fixture(scope="module", params=[None, 10], ids=["full", "window"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"), window=request.param)


@pytest.mark.parametrize("tiers", [{}, {"host_kv_memory": "64KiB"}], ids=["alone", "host"])
def test_answers_do_not_depend_on_the_pools_size_as_it_changes(
    model: Path, tiers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_CHECK", "3")
    rng = random.Random(0)
    with LLM(model, num_blocks=400, block_size=4, prefix_cache=False) as llm:
        expected = [output.choices for output in llm.generate(PROMPTS, PARAMS, progress=False)]
    with LLM(model, num_blocks=24, block_size=4, max_seqs=6, **tiers) as llm:  # type: ignore[arg-type]
        engine, answers = llm.engine, dict[int, tuple[Choice, ...]]()
        ids = [engine.add(prompt, PARAMS, seed=3) for prompt in PROMPTS]
        while engine.has_work:
            for delta in engine.step():
                if delta.output is not None:
                    answers[delta.request_id] = delta.output.choices
            if rng.random() < 0.3:
                engine.resize(rng.randint(9, 60))
        assert [answers[request] for request in ids] == expected
        assert llm.stats().blocks_used == 0
        assert any(event.kind == "resized" for event in engine.events())


def test_a_pool_that_shrank_gives_its_memory_back(tmp_path: Path) -> None:
    with LLM(make_random(tmp_path), num_blocks=200, block_size=16, prefix_cache=True) as llm:
        llm.generate([[at] * 200 for at in range(30)], SamplingParams(max_tokens=2), progress=False)
        pool = llm.engine._mover._blocks.array  # type: ignore[attr-defined]
        assert pool[150:200].any()
        llm.engine.resize(100)
        assert llm.engine.has_work
        assert llm.engine.step() == []
        assert not llm.engine.has_work
        assert pool[:100].any()
        assert not pool[101:].any()
        assert llm.stats().num_blocks == 100


def test_sizes_that_cannot_be_are_refused_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(make_random(tmp_path), num_blocks=20, block_size=4) as llm:
        llm.engine.add([1] * 40, SamplingParams(max_tokens=10), seed=0)
        for wrong in (12, 161, 0, True, 14.0):
            with pytest.raises(InvalidRequest, match=r"from 13 .* to 160"):
                llm.engine.resize(wrong)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr("octavo.engine.memory.available_bytes", lambda: 1000)
            with pytest.raises(NotEnoughMemory, match=r"more; the machine has 1000B"):
                llm.engine.resize(100)
        assert llm.stats().num_blocks == 20
        llm.engine.resize(13)


def test_from_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncEngine(make_random(tmp_path), EngineConfig(num_blocks=20)) as engine:
            await engine.resize(30)
            with pytest.raises(InvalidRequest, match="num_blocks must be from"):
                await engine.resize(0)
            stats = await engine.stats()
            assert stats is not None
            assert stats.num_blocks == 30

    asyncio.run(asyncio.wait_for(main(), 20))

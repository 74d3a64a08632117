"""Pinned prompts: found again after any traffic, for as long as was said, and never at the price of a deadlock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from toy import make_random

from octavo import LLM, AsyncEngine, EngineConfig, SamplingParams
from octavo.engine.submission import Submission
from octavo.errors import InvalidRequest

SYSTEM = [(index * 37) % 200 for index in range(20)]
OTHERS = [[(index * 11 + each) % 200 for index in range(24)] for each in range(1, 8)]
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"))


@pytest.fixture
def llm(model: Path, monkeypatch: pytest.MonkeyPatch) -> LLM:
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    return LLM(model, num_blocks=14, block_size=4, max_seqs=4)


def cached(llm: LLM) -> int:
    return llm.generate([*SYSTEM, 7], PARAMS)[0].metrics.cached_tokens


@pytest.mark.parametrize("first", [True, False], ids=["computed before", "computed later"])
def test_a_pinned_prompt_outlasts_traffic_until_its_time_is_up(llm: LLM, first: bool) -> None:
    now = [0.0]
    llm.engine.pins._clock = lambda: now[0]
    if first:
        cached(llm)
    pin = llm.pin(SYSTEM, ttl_s=60)
    if not first:
        cached(llm)
    for _ in range(3):
        llm.generate(OTHERS, PARAMS, progress=False)
        assert cached(llm) == 20
    assert llm.stats().blocks_pinned == 5
    now[0] = 60.0
    assert llm.stats().blocks_pinned == 0
    assert not llm.unpin(pin)
    llm.generate(OTHERS, PARAMS, progress=False)
    assert cached(llm) < 20


def test_answers_are_the_same_with_a_pin(llm: LLM, model: Path) -> None:
    with LLM(model, num_blocks=64, block_size=4, prefix_cache=False) as plain:
        expected = [plain.generate(prompt, PARAMS)[0].choices for prompt in [*OTHERS, [*SYSTEM, 7]]]
    llm.pin(SYSTEM, ttl_s=60)
    for _ in range(3):
        answers = llm.generate([*OTHERS, [*SYSTEM, 7]], PARAMS, progress=False)
        assert [output.choices for output in answers] == expected


def test_refusals_have_the_numbers(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="cannot pin 9 blocks more: 0 are pinned and the pool of 14 may have 7"):
        llm.pin(range(36), ttl_s=60)
    with pytest.raises(InvalidRequest, match="3 tokens fill no block of 4"):
        llm.pin(range(3), ttl_s=60)
    for ttl in (0, -1, float("nan")):
        with pytest.raises(InvalidRequest, match="more than 0 seconds"):
            llm.pin(SYSTEM, ttl_s=ttl)
    llm.pin(SYSTEM, ttl_s=60)
    with pytest.raises(
        InvalidRequest, match=r"need 10 KV blocks of 4 tokens and the whole pool has 14, 5 of them pinned"
    ):
        llm.generate(list(range(30)), SamplingParams(max_tokens=10))
    llm.generate(list(range(26)), SamplingParams(max_tokens=10))


def test_what_was_accepted_can_still_be_served(llm: LLM) -> None:
    request = llm.engine.add(list(range(30)), SamplingParams(max_tokens=14, ignore_eos=True), seed=0)
    with pytest.raises(
        InvalidRequest, match="9 of 14 blocks would be left, and a request that was accepted may need 11"
    ):
        llm.pin(SYSTEM, ttl_s=60)
    assert llm.engine.abort(request)
    llm.engine.step()
    assert llm.unpin(llm.pin(SYSTEM, ttl_s=60))


def test_from_asyncio(model: Path) -> None:
    async def main() -> None:
        config = EngineConfig(num_blocks=14, block_size=4, max_seqs=4)
        async with AsyncEngine(model, config) as engine:
            pin = await engine.pin(SYSTEM, 60.0, b"tenant")
            stream = await engine.submit(Submission([*SYSTEM, 7], PARAMS, b"tenant"))
            async for _ in stream:
                pass
            stats = await engine.stats()
            assert stats is not None
            assert stats.blocks_pinned == 5
            with pytest.raises(InvalidRequest, match="fill no block"):
                await engine.pin([1], 60.0)
            assert await engine.wipe(b"tenant") == 6, "its last full block too"
            assert await engine.unpin(pin)
            assert not await engine.unpin(pin)

    asyncio.run(main())

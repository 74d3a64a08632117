"""Embeddings through the engine: transformers' states, the same bits in any company, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import CONTEXT, SPECIALS, make_random
from transformers import AutoModel

from octavo import LLM, AsyncEngine, EngineConfig, SamplingParams
from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.pooling import Vector
from octavo.params import Pooling

POOLINGS: tuple[Pooling, ...] = ("last", "mean")
ROOT = [(index * 37) % 200 for index in range(90)]
PROMPTS = [ROOT[:1], ROOT[:16], ROOT[:33], ROOT[5:70], ROOT[:90], ROOT[:90]]


@pytest.fixture(scope="module", params=[None, 10], ids=["full attention", "window"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("tiny") / "model", window=request.param)


def states(path: Path, tokens: list[int]) -> Any:
    """[tokens, hidden] by transformers, after the last norm."""
    theirs = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return theirs(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].double().numpy()


@pytest.fixture(scope="module")
def alone(tiny: Path) -> dict[Pooling, list[Vector]]:
    """Each prompt by itself, in one piece, nothing cached."""
    with LLM(tiny, num_blocks=100, prefix_cache=False) as llm:
        return {how: [llm.embed(prompt, pooling=how, normalize=False)[0] for prompt in PROMPTS] for how in POOLINGS}


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_what_transformers_computes(tiny: Path, backend: str) -> None:
    with LLM(tiny, num_blocks=100, backend=backend, kv_dtype="float32", max_batched_tokens=64) as llm:
        found = {how: llm.embed(PROMPTS, pooling=how, normalize=False, progress=False) for how in POOLINGS}
    limit = 1e-4 if backend == "numpy" else 3e-2  # native products round activations to bfloat16
    for place, prompt in enumerate(PROMPTS):
        theirs = states(tiny, prompt)
        for how, wanted in (("last", theirs[-1]), ("mean", theirs.mean(0))):
            assert np.abs(found[how][place] - wanted).max() < limit * wanted.std(), (how, place)


@pytest.mark.parametrize(("budget", "block_size"), [(7, 16), (64, 1), (33, 8)])
def test_no_chunking_changes_a_bit(
    tiny: Path, alone: dict[Pooling, list[Vector]], budget: int, block_size: int
) -> None:
    settings = {"max_batched_tokens": budget, "max_seqs": 4, "block_size": block_size}
    with LLM(tiny, num_blocks=1500 // block_size, **settings) as llm:
        for how in POOLINGS:
            assert np.array_equal(llm.embed(PROMPTS, pooling=how, normalize=False, progress=False), alone[how])


def test_preempted_beside_answers(
    tiny: Path, alone: dict[Pooling, list[Vector]], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A pool that is too small for all, half of whose requests generate; what is read again is not added again."""
    monkeypatch.setenv("OCTAVO_CHECK", "3")
    embed = [SamplingParams(max_tokens=0, pooling=how) for how in POOLINGS]
    answer = SamplingParams(max_tokens=30, ignore_eos=True, pooling="mean")
    prompts = [prompt for prompt in PROMPTS for _ in range(3)]
    full = "full" in request.node.callspec.id  # with a window nobody needs to be preempted
    with LLM(tiny, num_blocks=80 if full else 30, block_size=2, max_batched_tokens=24, max_seqs=8) as llm:
        outputs = llm.generate(prompts, [*embed, answer] * len(PROMPTS), progress=False)
        assert (llm.stats().preemptions > 0) == full
        assert llm.stats().blocks_used == 0
    for place, output in enumerate(outputs):
        how: Pooling = "last" if place % 3 == 0 else "mean"
        assert output.embedding is not None
        assert np.array_equal(output.embedding, alone[how][place // 3]), place
        assert len(output.choices[0].tokens) == (30 if place % 3 == 2 else 0)


def test_the_last_state_uses_the_prefix_cache_and_the_mean_does_not(
    tiny: Path, alone: dict[Pooling, list[Vector]]
) -> None:
    with LLM(tiny, num_blocks=100) as llm:
        for how, cached in (("mean", 0), ("last", 80), ("mean", 0)):
            output = llm.generate(ROOT[:90], SamplingParams(max_tokens=0, pooling=how))[0]  # type: ignore[arg-type]
            assert output.metrics.cached_tokens == cached
            assert np.array_equal(output.embedding, alone[how][-1])  # type: ignore[arg-type,index]


def test_unit_length_unless_asked_otherwise(tiny: Path) -> None:
    with LLM(tiny, num_blocks=100) as llm:
        vectors, raw = (llm.embed(PROMPTS, normalize=how, progress=False) for how in (True, False))
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(PROMPTS), 128)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), vectors, rtol=1e-5)


def test_a_text_is_data_and_may_fill_the_context(tiny: Path) -> None:
    """Names of control tokens are spelled out; a prompt as long as the context is one token too long for generate."""
    text = SPECIALS[1] * 3
    with LLM(tiny, num_blocks=100) as llm:
        spelled = llm.tokenizer.encode(text, parse_special=False)
        assert len(spelled) == len(text)
        assert np.array_equal(llm.embed(text), llm.embed([spelled]))
        full = [ROOT[index % 60] for index in range(CONTEXT)]
        assert llm.embed(full).shape == (1, 128)
        for texts, complaint in ((["a", ""], "prompt 1: the prompt is empty"), (["a", [*full, 1]], "prompt 1: the")):
            with pytest.raises(InvalidRequest, match=complaint):
                llm.embed(texts)
        with pytest.raises(InvalidRequest, match='pooling must be "last" or "mean"'):
            llm.embed("a", pooling="first")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="leaves nothing to generate"):
            llm.generate(full, SamplingParams(max_tokens=None, pooling="last"))
        assert llm.stats().waiting == 0


def test_damaged_weights_fail_the_request_and_not_the_engine(tiny: Path) -> None:
    with LLM(tiny, num_blocks=100, backend="numpy") as llm:
        forward = llm.engine._executor._forward

        def damaged(inputs: Any) -> Any:
            output = forward(inputs)
            output.hidden[0, 0] = np.nan
            return output

        llm.engine._executor._forward = damaged
        with pytest.raises(RequestFailed, match="NaN or an infinity as a token's state"):
            llm.embed([ROOT[:5], ROOT[:7]], pooling="mean", progress=False)
        llm.engine._executor._forward = forward
        assert llm.embed(ROOT[:5]).shape == (1, 128)
        assert llm.stats().blocks_used == 0


def test_async_and_aborted(tiny: Path, alone: dict[Pooling, list[Vector]]) -> None:
    async def main() -> None:
        async with AsyncEngine(tiny, EngineConfig(num_blocks=100)) as engine:
            found = await asyncio.gather(*(engine.embed(prompt, "mean", normalize=False) for prompt in PROMPTS))
            assert np.array_equal(found, alone["mean"])
            task = asyncio.create_task(engine.embed(ROOT))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert np.linalg.norm(await engine.embed("again")) == pytest.approx(1)
            stats = await engine.stats()
            assert stats is not None
            assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)

    asyncio.run(main())


def test_nothing_left_of_one_that_was_aborted(tiny: Path) -> None:
    with LLM(tiny, num_blocks=100, max_batched_tokens=8, max_seqs=4) as llm:
        request = llm.engine.add(ROOT, SamplingParams(max_tokens=0, pooling="mean"), seed=0)
        llm.engine.step()
        assert llm.engine.abort(request)
        (delta,) = llm.engine.step()
        assert delta.output is not None
        assert delta.output.embedding is None
        assert not llm.engine._executor._unread

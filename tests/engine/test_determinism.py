"""Equal requests give equal bits whatever runs beside them, however cut, cached or preempted: the real model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.engine.outputs import RequestOutput

TEXT = (
    "The library keeps every key and value in pages of equal size, and a table for each reader says which page holds "
    "what. Two readers who begin alike share their first pages until one of them writes. 记忆被切成同样大小的页。"
    "When the shelves are full, the youngest reader gives her pages back and later reads them again. "
    "def page(position: int) -> int:\n    return position // 16\n"
)
LONG = 40  # tokens of the longest prompt
NEW = 8
Answer = tuple[object, ...]


def answers(outputs: Sequence[RequestOutput]) -> list[Answer]:
    """Tokens and log-probabilities, to the bit."""
    return [tuple((choice.tokens, choice.logprobs) for choice in output.choices) for output in outputs]


@pytest.fixture(scope="module")
def prompts(smollm2: LLM) -> list[list[int]]:
    """64 prompts of 1 to 40 tokens, some alike at the start."""
    tokens = smollm2.tokenizer.encode(TEXT)
    return [tokens[(index % 7) * 3 :][: 1 + (index * 29) % LONG] for index in range(64)]


@pytest.fixture(scope="module")
def params() -> list[SamplingParams]:
    """Greedy and sampled, with penalties and masks."""
    kinds = [
        SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=2),
        SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=2, temperature=0.8, seed=3, top_p=0.95),
        SamplingParams(
            max_tokens=NEW,
            logprobs=1,
            temperature=0.8,
            seed=3,
            presence_penalty=0.7,
            min_tokens=6,
            repetition_penalty=1.2,
        ),
    ]
    return [kinds[index % 3] for index in range(64)]


@pytest.fixture(scope="module")
def together(smollm2: LLM, prompts: list[list[int]], params: list[SamplingParams]) -> list[Answer]:
    """The answers of all 64 at once."""
    return answers(smollm2.generate(prompts, params, progress=False))


SOLO = range(0, 64, 13)


def test_alone_as_in_a_batch_of_64(
    smollm2_path: Path, prompts: list[list[int]], params: list[SamplingParams], together: list[Answer]
) -> None:
    with LLM(smollm2_path, kv_memory="256MiB", prefix_cache=False) as llm:
        for index in SOLO:
            assert answers(llm.generate(prompts[index], params[index])) == [together[index]], index


def test_again_from_a_warm_cache(
    smollm2: LLM, prompts: list[list[int]], params: list[SamplingParams], together: list[Answer]
) -> None:
    """Cases A02 (shorter after longer), M03."""
    picked = [index for index in range(64) if len(prompts[index]) > 32][:8]
    outputs = smollm2.generate([prompts[i] for i in picked], [params[i] for i in picked], progress=False)
    assert all(output.metrics.cached_tokens >= 16 for output in outputs)
    assert answers(outputs) == [together[index] for index in picked]


@pytest.mark.parametrize(("budget", "block_size"), [(7, 16), (33, 8), (64, 1), (2048, 128)])
def test_however_prompts_are_chunked_and_blocks_are_cut(
    smollm2_path: Path,
    prompts: list[list[int]],
    params: list[SamplingParams],
    together: list[Answer],
    budget: int,
    block_size: int,
) -> None:
    picked = list(range(1, 64, 13))
    settings = {"max_batched_tokens": budget, "max_seqs": min(budget, 5), "block_size": block_size}
    with LLM(smollm2_path, kv_memory="256MiB", **settings) as llm:  # type: ignore[arg-type]
        outputs = llm.generate([prompts[i] for i in picked], [params[i] for i in picked], progress=False)
    assert answers(outputs) == [together[index] for index in picked]


@pytest.fixture
def tight(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """A pool that just holds the longest request, in blocks smaller than an answer, checked at every step."""
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    with LLM(smollm2_path, num_blocks=(LONG + NEW) // 2, block_size=2, max_seqs=8, max_batched_tokens=64) as llm:
        yield llm


def test_preempted_in_a_tiny_pool(
    tight: LLM, prompts: list[list[int]], params: list[SamplingParams], together: list[Answer]
) -> None:
    """Cases C02, C03, A18: preemption changes nothing that is seen, and what is read again is no cache hit."""
    short = [index for index in range(64) if len(prompts[index]) in range(8, 24)][:10]
    outputs = tight.generate([prompts[i] for i in short], [params[i] for i in short], progress=False)
    assert sum(output.metrics.preemptions for output in outputs) > 0
    assert answers(outputs) == [together[index] for index in short]
    assert all(output.metrics.cached_tokens <= (output.metrics.prompt_tokens - 1) // 2 * 2 for output in outputs)
    stats = tight.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)


def test_choices_share_the_prompt_and_equal_lone_ones(smollm2: LLM, prompts: list[list[int]]) -> None:
    """Case B02: choice i draws from (seed, i) wherever it runs, choice 0 as n=1 does; the prompt is shared by fork."""
    prompt = max(prompts, key=len)
    params = SamplingParams(max_tokens=NEW, temperature=1.0, seed=11, n=4, logprobs=1, ignore_eos=True)
    one, two = (answers(smollm2.generate(prompt, params)) for _ in range(2))
    assert one == two
    assert len(set(one[0])) == 4
    alone = SamplingParams(max_tokens=NEW, temperature=1.0, seed=11, logprobs=1, ignore_eos=True)
    assert answers(smollm2.generate(prompt, alone))[0][0] == one[0][0]


def test_prompt_logprobs_are_the_same_however_chunked(
    smollm2_path: Path, smollm2: LLM, prompts: list[list[int]]
) -> None:
    """Case J07: and the prefix cache, warm here, takes nothing away."""
    prompt = max(prompts, key=len)
    params = SamplingParams(max_tokens=1, prompt_logprobs=3)
    whole = smollm2.generate(prompt, params)[0].prompt_logprobs
    assert whole is not None
    assert len(whole) == len(prompt)
    with LLM(smollm2_path, kv_memory="64MiB", max_batched_tokens=17, max_seqs=4) as llm:
        crowd = llm.generate(
            [prompt, prompt[:40], prompt], [params, SamplingParams(max_tokens=4), params], progress=False
        )
    assert crowd[0].prompt_logprobs == crowd[2].prompt_logprobs == whole

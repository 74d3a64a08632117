"""Results as people and programs read them: the last line of a run, JSON lines. Computes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.outputs import Choice, EngineStats, RequestOutput

MIB = 1 << 20


def summary(outputs: Sequence[RequestOutput], seconds: float, stats: EngineStats) -> str:
    """One line on a run of `seconds`: rate, blocks, cached tokens, memory."""
    bills = [output.metrics for output in outputs]
    new = sum(bill.output_tokens for bill in bills)
    prompt = sum(bill.prompt_tokens for bill in bills)
    cached = sum(bill.cached_tokens for bill in bills)
    blocks = sum(bill.blocks for bill in bills)
    rate = new / seconds if seconds > 0 else 0.0
    first = f", first after {bills[0].first_token_s:.2f} s" if len(bills) == 1 else f" for {len(bills)} prompts"
    return (
        f"{new} tokens in {seconds:.2f} s{first}: {rate:.1f} tokens/s; {blocks} blocks used of {stats.num_blocks}, "
        f"{cached} of {prompt} prompt tokens cached, {stats.resident_bytes // MIB} MiB resident"
    )


def json_lines(output: RequestOutput, index: int) -> Iterator[str]:
    """One JSON object for each choice of the output of prompt number `index`."""
    for choice in output.choices:
        yield json.dumps(_entry(output, choice, index), ensure_ascii=False)


def _entry(output: RequestOutput, choice: Choice, index: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": index,
        "choice": choice.index,
        "text": choice.text,
        "tokens": list(choice.tokens),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    if choice.cumulative_logprob is not None:
        entry["cumulative_logprob"] = choice.cumulative_logprob
    if choice.logprobs is not None:
        entry["logprobs"] = [asdict(position) for position in choice.logprobs]
    if output.prompt_logprobs is not None:
        entry["prompt_logprobs"] = [
            None if position is None else asdict(position) for position in output.prompt_logprobs
        ]
    if output.error is not None:
        entry["error"] = str(output.error)
    entry["metrics"] = asdict(output.metrics)
    return entry

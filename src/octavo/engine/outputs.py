"""What a caller gets back, as values. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from octavo.errors import OctavoError
from octavo.exec.logprobs import PositionLogprobs
from octavo.exec.pooling import Vector
from octavo.tiers import TierStats

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer. `tokens` counts every sampled token, the one that ended it too. stop_reason: the stop string or
    token id that ended it, None for the model's own end or a length. logprobs: one for each token, when asked for.
    cumulative_logprob: their sum, in nats; beams and `best_of` tell it unasked."""

    index: int
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    logprobs: tuple[PositionLogprobs, ...] | None = None
    cumulative_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The request's bill: times in seconds, counts in tokens, over all its answers or beams.

    queued: arrival to first computed. prefill: first computed to first token. first_token: arrival to first token.
    total: arrival to end. preempted: what its answers waited again after preemptions, added up. cached_tokens: prompt
    tokens found in the prefix cache when first admitted (recomputation after a preemption never counts), which is what
    the cache saved. computed_tokens: all that were computed for it, recomputed_tokens of them more than once. blocks:
    table entries of all answers at their longest. block_seconds: blocks of the pool times how long it held them, a
    block in n tables counted 1/n for each. host_block_seconds, disk_block_seconds: of the blocks brought for it
    from host memory, and from the disk, how long they had been there (0 for those from an earlier run). copies: blocks
    copied on write. fetched_blocks: brought from below the pool."""

    queued_s: float
    prefill_s: float
    first_token_s: float
    total_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    blocks: int
    preempted_s: float = 0.0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    block_seconds: float = 0.0
    host_block_seconds: float = 0.0
    disk_block_seconds: float = 0.0
    copies: int = 0
    fetched_blocks: int = 0

    @property
    def decode_s(self) -> float:
        """First token to end."""
        return self.total_s - self.first_token_s

    @property
    def tokens_per_second(self) -> float:
        """New tokens over the whole time, the prompt's included."""
        return self.output_tokens / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A finished request. prompt_logprobs: entry 0 is None (nothing precedes it), when asked for. embedding: of the
    prompt, float32 [hidden] as the model gave it, not normalised, when `pooling` asked for one (None if the request was
    ended before the prompt was computed). error: what ended it when a choice's finish_reason is "error"."""

    request_id: int
    prompt: str | None
    prompt_tokens: tuple[int, ...]
    choices: tuple[Choice, ...]
    metrics: RequestMetrics
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    embedding: Vector | None = field(default=None, compare=False)
    error: OctavoError | None = None

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text


class Delta(NamedTuple):
    """A piece of a choice as it is made. The last of a choice has finish_reason (and stop_reason, as in `Choice`); the
    last of the request has output. logprobs: of token_ids, when asked for. A named tuple, as one is made every token.
    """

    request_id: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which means nothing here
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    output: RequestOutput | None = None
    logprobs: tuple[PositionLogprobs, ...] = ()
    stop_reason: int | str | None = None


def whole_deltas(output: RequestOutput) -> list[Delta]:
    """The deltas of a request of which nothing could be shown before its end: one a choice."""
    last = len(output.choices) - 1
    return [
        Delta(
            output.request_id,
            choice.index,
            choice.text,
            choice.tokens,
            choice.finish_reason,
            output if place == last else None,
            choice.logprobs or (),
            choice.stop_reason,
        )
        for place, choice in enumerate(output.choices)
    ]


@dataclass(frozen=True, slots=True)
class HitTokens:
    """Prompt tokens found cached when a request was first admitted, by cause.

    prompt: the beginning of another request's prompt. conversation: a beginning that reaches into an answer, so an
    earlier turn. tier: brought from below the pool. restart: so too, stored by an earlier run. recovered: found again
    after a preemption, which is no hit."""

    prompt: int = 0
    conversation: int = 0
    tier: int = 0
    restart: int = 0
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine now; counters since its start.

    Blocks: used are referenced by requests, cached are free and hold a reusable prefix, pinned are not
    evicted. block_utilisation: used blocks
    over all. utilisation: live tokens over the tokens that the used blocks could hold (effective utilisation).
    wasted_bytes: of used blocks, the slots without a live token. sharing_ratio: table entries over the blocks that they
    name, 1.0 where nothing is shared. computed_tokens: also those computed again after preemptions. hits: cached_tokens
    by cause. copies: blocks copied on write. evictions: cached blocks reused. regretted_evictions:
    those of the last 4,096 whose content was asked for again. spilled_bytes, fetched_bytes: offered to
    and asked of the tiers. key_collisions: equal keys with unequal tokens, found by comparing the tokens.
    block_seconds: of used blocks. fetched_blocks: asked of a tier, the ones that it had lost counted. tiers: the memory
    below the pool, the nearest first. watermark: blocks that admission keeps free now, because they ran out lately;
    held_back: how often nobody was let in for these alone. prefill_tokens_per_second, decode_tokens_per_second: as
    measured lately, 0 before; predicted_wait_s: to the first token of one that came now. passed_over: lookups of a
    tier, by its name, that were left out because computing is sooner; kept_out: blocks that were not spilled to it for
    that. preempted: preemptions by manner, `cut` where the tail alone was dropped, else by where the blocks of those
    that were closed come back from soonest: `recompute`, `host`, `disk`; `lost` where a tier failed one. rebuilds:
    engines that took over from one that failed, in an AsyncEngine; the other counters begin anew with each."""

    running: int
    waiting: int
    preemptions: int
    num_blocks: int
    blocks_used: int
    blocks_cached: int
    utilisation: float
    steps: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    resident_bytes: int
    block_utilisation: float = 0.0
    wasted_bytes: int = 0
    sharing_ratio: float = 1.0
    computed_tokens: int = 0
    hits: HitTokens = HitTokens()
    copies: int = 0
    evictions: int = 0
    regretted_evictions: int = 0
    spilled_bytes: int = 0
    fetched_bytes: int = 0
    key_collisions: int = 0
    block_seconds: float = 0.0
    fetched_blocks: int = 0
    tiers: tuple[TierStats, ...] = ()
    watermark: int = 0
    held_back: int = 0
    prefill_tokens_per_second: float = 0.0
    decode_tokens_per_second: float = 0.0
    predicted_wait_s: float = 0.0
    passed_over: Mapping[str, int] = field(default_factory=dict)
    kept_out: Mapping[str, int] = field(default_factory=dict)
    preempted: Mapping[str, int] = field(default_factory=dict)
    blocks_pinned: int = 0
    rebuilds: int = 0

"""What a caller gets back, as values. Computes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from octavo.errors import OctavoError
from octavo.exec.logprobs import PositionLogprobs
from octavo.tiers import TierStats

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer. `tokens` counts every sampled token, the one that ended it too. stop_reason: the stop string or
    token id that ended it, None for the model's own end or a length. logprobs: one for each token, when asked for."""

    index: int
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    logprobs: tuple[PositionLogprobs, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times in seconds, counts in tokens. queued: arrival to first computed. prefill: first computed to first token.
    first_token: arrival to first token. total: arrival to end. cached_tokens: prompt tokens found in the prefix cache
    when first admitted (recomputation after a preemption never counts). blocks: table entries of all answers at
    their longest."""

    queued_s: float
    prefill_s: float
    first_token_s: float
    total_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    blocks: int

    @property
    def tokens_per_second(self) -> float:
        """New tokens over the whole time, the prompt's included."""
        return self.output_tokens / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A finished request. prompt_logprobs: entry 0 is None (nothing precedes it), when asked for.
    error: what ended it when a choice's finish_reason is "error"."""

    request_id: int
    prompt: str | None
    prompt_tokens: tuple[int, ...]
    choices: tuple[Choice, ...]
    metrics: RequestMetrics
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
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


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine now. Blocks: used are referenced by requests, cached are free and hold a reusable prefix.
    utilisation: live tokens over the tokens that the used blocks could hold. fetched_blocks: asked of
    a tier, the ones that it had lost counted. tiers: the memory below the pool, the nearest first."""

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
    fetched_blocks: int = 0
    tiers: tuple[TierStats, ...] = ()

"""One live request: its answers as they grow, their text, their times. Knows no scheduler and no model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace

from octavo.engine.outputs import Choice, FinishReason, RequestMetrics
from octavo.errors import OctavoError
from octavo.exec.logprobs import PositionLogprobs
from octavo.kv import SequenceUsage
from octavo.params import SamplingParams
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_checker import StopChecker


@dataclass(slots=True)
class Answer:
    """One choice in the making. The engine feeds it tokens; it says which text may be shown."""

    index: int
    seq: int
    params: SamplingParams
    end_ids: frozenset[int]
    detokenizer: Detokenizer
    stops: StopChecker
    tokens: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def push(self, token: int, expected: PositionLogprobs | None) -> str:
        """Take one token; the text that it makes showable. Sets `stop_reason` when a stop string is complete."""
        self.tokens.append(token)
        if expected is not None:
            self.logprobs.append(expected)
        # A token that ends the answer is counted and reported, and shown only when asked for.
        if self.at_end_token and not self.params.include_stop:
            return ""
        return self._show(self.detokenizer.push(token))

    @property
    def at_end_token(self) -> bool:
        """Whether the last token ends the answer."""
        return self.tokens[-1] in self.end_ids and len(self.tokens) > self.params.min_tokens

    @property
    def cumulative_logprob(self) -> float | None:
        """Of all tokens, in nats; None where nobody asked for any."""
        known = len(self.logprobs) == len(self.tokens)
        return sum(each.logprob for each in self.logprobs) if known and self.tokens else None

    @property
    def merit(self) -> float:
        """What `best_of` ranks by: log-probability per token. A fault comes first, that it be told."""
        if self.finish_reason == "error":
            return math.inf
        total = self.cumulative_logprob
        return -math.inf if total is None else total / len(self.tokens)

    def fork(self) -> Answer:
        """Another answer that goes on from here."""
        return replace(
            self,
            detokenizer=self.detokenizer.fork(),
            stops=self.stops.fork(),
            tokens=self.tokens.copy(),
            logprobs=self.logprobs.copy(),
            text=self.text.copy(),
        )

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> str:
        """The answer ended: whatever text was held back, unless a stop string ended it."""
        self.finish_reason = reason
        if self.stop_reason is not None:
            return ""
        shown = self._show(self.detokenizer.finish())
        if self.stop_reason is not None:
            self.finish_reason = "stop"  # the last held-back bytes completed a stop string
            return shown
        self.stop_reason = stop_reason
        held = self.stops.flush()
        self.text.append(held)
        return shown + held

    def _show(self, piece: str) -> str:
        if self.params.stop and len(self.tokens) >= self.params.min_tokens:
            piece, hit = self.stops.push(piece)
            if hit is not None:
                self.stop_reason = hit
        if piece:
            self.text.append(piece)
        return piece

    def choice(self) -> Choice:
        """The answer as a value; it must have finished."""
        assert self.finish_reason is not None
        return Choice(
            index=self.index,
            text="".join(self.text),
            tokens=tuple(self.tokens),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=tuple(self.logprobs) if self.params.logprobs is not None else None,
            cumulative_logprob=self.cumulative_logprob,
        )


@dataclass(slots=True)
class Bill:
    """What a request has cost so far, but for what it holds now; the fields are those of `RequestMetrics`."""

    preempted_s: float = 0.0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    block_seconds: float = 0.0
    host_block_seconds: float = 0.0
    disk_block_seconds: float = 0.0
    copies: int = 0
    fetched_blocks: int = 0

    def add_tier(self, tier: str, block_seconds: float) -> None:
        """A block was brought from "host" or "disk", where it had been so long."""
        if tier == "host":
            self.host_block_seconds += block_seconds
        else:
            self.disk_block_seconds += block_seconds

    def add(self, usage: SequenceUsage, reached: int) -> None:
        """What a sequence cost while it was open. reached: how far it had been computed before."""
        self.computed_tokens += usage.committed - usage.opened
        self.recomputed_tokens += max(0, min(reached, usage.committed) - usage.opened)
        self.block_seconds += usage.block_seconds
        self.copies += usage.copies
        self.fetched_blocks += len(usage.fetched)


@dataclass(slots=True)
class LiveRequest:
    """A request between `add` and its last answer. Times are readings of the engine's clock, in seconds. tenant: by
    name."""

    id: int
    prompt: str | None
    prompt_tokens: tuple[int, ...]
    answers: tuple[Answer, ...]
    arrived: float
    tenant: str = ""
    started: float | None = None
    first_token: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    blocks: int = 0
    error: OctavoError | None = None
    bill: Bill = field(default_factory=Bill)

    @property
    def done(self) -> bool:
        """Whether every answer has ended."""
        return all(answer.finish_reason is not None for answer in self.answers)

    @property
    def chooses(self) -> bool:
        """Whether more answers were sampled than will be returned. Beams are no answers before their search is done."""
        return len(self.answers) > self.answers[0].params.n

    def choices(self) -> tuple[Choice, ...]:
        """The answers as values, all having ended; where more than `n` were sampled, the likeliest, best first."""
        if not self.chooses:
            return tuple(answer.choice() for answer in self.answers)
        best = sorted(self.answers, key=lambda answer: answer.merit, reverse=True)[: self.answers[0].params.n]
        return tuple(replace(answer.choice(), index=index) for index, answer in enumerate(best))

    def count(self, cached_tokens: int, preemptions: int) -> None:
        """Add the figures of an answer that ended."""
        self.cached_tokens += cached_tokens
        self.preemptions += preemptions

    def metrics(self, now: float) -> RequestMetrics:
        """The request's bill, `now` being its end."""
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return RequestMetrics(
            queued_s=started - self.arrived,
            prefill_s=first - started,
            first_token_s=first - self.arrived,
            total_s=now - self.arrived,
            prompt_tokens=len(self.prompt_tokens),
            output_tokens=sum(len(answer.tokens) for answer in self.answers),
            cached_tokens=self.cached_tokens,
            preemptions=self.preemptions,
            blocks=self.blocks,
            **asdict(self.bill),
        )

"""One sequence as the scheduler sees it, and how it ended. Knows no blocks, no text and no sampling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octavo.options import Tenant

FinishReason = Literal["stop", "length", "abort"]
Rank = tuple[float, int]  # compared as it is; the smaller goes first


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue. Built by the engine, then owned and changed by the scheduler alone until it has ended.

    id: the sequence's number; `children` are the numbers of the other n - 1 answers. tokens: the prompt, to which the
    output is appended (the same list object for life; others only read it). max_tokens: most new tokens; None is as
    many as context and pool leave, and is replaced by that number at the door; 0 computes the prompt alone.
    min_tokens: new tokens before which no stop id ends it. namespace: joins the prefix cache's keys. use_cache False
    computes every prompt token again. scored: every prompt token has logits. arrival: seconds, by the engine's clock,
    and never less than that of a request added before. priority, tenant: as in `octavo.options`. fetching: blocks are
    being read for it from a lower tier, so that while others run it is not let in yet; the engine's to say. beams: the
    n sequences are those of one search: no step gives them a token, `Scheduler.branch` goes on with all of them.

    Kept by the scheduler: age (order of arrival), rank (by its policy), slot while it runs, cached_tokens at its first
    admission (None before; a child reports 0, its prompt was counted with its parent's), preemptions so far,
    cut_back while it runs without its tail until there is room again.
    """

    id: int
    tokens: list[int]
    max_tokens: int | None = None
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    n: int = 1
    children: tuple[int, ...] = ()
    namespace: bytes = b""
    use_cache: bool = True
    scored: bool = False
    arrival: float = 0.0
    priority: int = 0
    tenant: Tenant = field(default_factory=Tenant)
    fetching: bool = False
    beams: bool = False

    prompt_len: int = field(init=False)
    parent: Request | None = field(init=False, default=None)
    age: int = field(init=False, default=-1)
    rank: Rank = field(init=False, default=(0.0, -1))
    slot: int | None = field(init=False, default=None)
    cached_tokens: int | None = field(init=False, default=None)
    preemptions: int = field(init=False, default=0)
    cut_back: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def total(self) -> int:
        """Tokens of prompt and answer at most; known once the door has fixed `max_tokens`."""
        assert self.max_tokens is not None
        return self.prompt_len + self.max_tokens

    def scores(self, start: int) -> bool:
        """Whether a row from `start` computes positions whose logits tell the prompt's log-probabilities."""
        return self.scored and start < self.prompt_len - 1

    def child(self, seq: int) -> Request:
        """Another answer to the same prompt; call before any output exists."""
        child = Request(
            seq,
            list(self.tokens),
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop_ids=self.stop_ids,
            namespace=self.namespace,
            use_cache=self.use_cache,
            scored=self.scored,
            arrival=self.arrival,
            priority=self.priority,
            tenant=self.tenant,
            beams=self.beams,
        )
        child.parent = self
        return child

    def is_beam_beside(self, other: Request) -> bool:
        """Whether both are beams of one search."""
        return self.beams and self is not other and (self.parent or self) is (other.parent or other)

    def ending(self) -> FinishReason | None:
        """Whether the token just appended ends the sequence: a stop id past `min_tokens`, or no room for another. When
        beams end is for their search to say."""
        if self.beams:
            return None
        if self.output_len > self.min_tokens and self.tokens[-1] in self.stop_ids:
            return "stop"
        return "length" if len(self.tokens) >= self.total else None


@dataclass(frozen=True, slots=True)
class Finished:
    """A sequence that ended by itself in `apply`. stop_token: the stop id that ended it, which is in its tokens.

    cached_tokens, preemptions: its final figures, for the metrics; the scheduler has forgotten it.
    """

    seq: int
    reason: FinishReason
    stop_token: int | None
    cached_tokens: int
    preemptions: int


def rank_of(request: Request) -> Rank:
    """The key by which sequences are sorted."""
    return request.rank

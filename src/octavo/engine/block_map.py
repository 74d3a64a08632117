"""A picture of the pool and of the requests on it, for people to look at. Changes nothing; costs nothing until taken.

Taking one copies; what every block is used for is then worked out by `block_map`, which any thread may call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.engine.live_requests import LiveRequests
from octavo.engine.outputs import EngineStats
from octavo.engine.parts import Parts
from octavo.engine.request import LiveRequest
from octavo.kv import PoolSnapshot
from octavo.sched.request import Request

BlockState = Literal["free", "cached", "used", "shared", "pinned"]
Table = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerPicture:
    """One answer, or one beam, that has not ended: its block table in each layer group, -1 where a window let go;
    () while it waits. tokens: those of prompt and answer whose KV is there."""

    index: int
    tables: tuple[Table, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class RequestPicture:
    """A request that has not ended. tenant: by name. made, most: tokens of its answers so far, and at most. age_s:
    seconds since it arrived."""

    id: int
    tenant: str
    state: Literal["waiting", "running"]
    prompt_tokens: int
    cached_tokens: int
    made: int
    most: int
    age_s: float
    preemptions: int
    answers: tuple[AnswerPicture, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The pool and its requests at one moment, `now` by the clock of `pool.since`. tiers: by block, the tiers below the
    pool that have its content as well; () without tiers. cost_s: the processor time that the taking took."""

    now: float
    pool: PoolSnapshot
    tiers: tuple[tuple[str, ...], ...]
    requests: tuple[RequestPicture, ...]
    stats: EngineStats
    cost_s: float


class PoolView:
    """Takes pictures of one engine, in its thread, between steps."""

    def __init__(self, parts: Parts, requests: LiveRequests) -> None:
        self._kv = parts.kv
        self._scheduler = parts.scheduler
        self._tiers = parts.mover.tiers
        self._clock = parts.clock
        self._requests = requests

    def take(self, stats: Callable[[], EngineStats]) -> Picture:
        """A picture; takes time in proportion to the pool and its requests. stats: of this moment too."""
        began = time.thread_time()
        pool = self._kv.snapshot()
        tiers: tuple[tuple[str, ...], ...] = ()
        if self._tiers is not None:
            holders = self._tiers.holders
            tiers = tuple(() if key is None else holders(key) for key in pool.keys)
        now, figures = self._clock(), stats()
        requests = tuple(self._picture_of(live, seqs, pool, now) for live, seqs in self._requests.sequences())
        return Picture(now, pool, tiers, requests, figures, time.thread_time() - began)

    def _picture_of(self, live: LiveRequest, seqs: Sequence[int], pool: PoolSnapshot, now: float) -> RequestPicture:
        going = {seq: request for seq in seqs if (request := self._scheduled(seq)) is not None}
        requests = going.values()
        ended = sum(len(answer.tokens) for answer in live.answers if answer.finish_reason is not None)
        return RequestPicture(
            id=live.id,
            tenant=live.tenant,
            state="running" if any(request.slot is not None for request in requests) else "waiting",
            prompt_tokens=len(live.prompt_tokens),
            cached_tokens=live.cached_tokens + sum(request.cached_tokens or 0 for request in requests),
            made=ended + sum(request.output_len for request in requests),
            most=ended + sum(request.total - request.prompt_len for request in requests),
            age_s=now - live.arrived,
            preemptions=live.preemptions + sum(request.preemptions for request in requests),
            answers=tuple(
                AnswerPicture(index, pool.tables.get(seq, ()), pool.committed.get(seq, 0))
                for index, seq in enumerate(seqs)
                if seq in going
            ),
        )

    def _scheduled(self, seq: int) -> Request | None:
        """None for a sequence that has ended, while others of its request go on."""
        try:
            return self._scheduler.request(seq)
        except KeyError:
            return None


def block_states(pool: PoolSnapshot) -> list[BlockState]:
    """What each block is used for. shared: by the tables of two sequences or more. used: by one, or by the step that
    runs. pinned: by none, and kept all the same. cached: by none, and matchable until it is reused. free: empty."""
    states: list[BlockState] = [
        "shared" if rows > 1 else "used" if refs else "free" if key is None else "cached"
        for rows, refs, key in zip(block_rows(pool), pool.refs, pool.keys, strict=True)
    ]
    for block in pool.kept:
        if pool.refs[block] == 1:
            states[block] = "pinned"
    return states


def block_rows(pool: PoolSnapshot) -> list[int]:
    """How many tables each block is in."""
    return [refs - pins for refs, pins in zip(pool.refs, pool.pins, strict=True)]


def block_ages(picture: Picture) -> list[int]:
    """How long ago the users of each block last changed, as the length in bits of the whole seconds: 0 is under 1 s, 1
    under 2 s, 2 under 4 s, and so on. -1 where there was never one."""
    now = picture.now
    return [-1 if since == 0.0 else int(max(0.0, now - since)).bit_length() for since in picture.pool.since]

"""GET /pool: a picture of the pool as compact JSON, and how seldom it is taken. Knows no HTTP.

Columns of blocks are runs, a flat list of value, count, value, count, ...; tables and sets of blocks are ranges, a
flat list of first block, count, first block, count, ... A tenant is told of its own requests; of others' blocks only
how they are used.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from itertools import groupby
from typing import Any

from octavo import __version__
from octavo.engine.block_map import AnswerPicture, Picture, RequestPicture, block_ages, block_rows, block_states
from octavo.server.known import KnownRequests
from octavo.server.wire import dump

SHARE = 0.01  # of a core's time, at most, that looking takes
LEAST_S = 0.5  # between two pictures
LISTED = 256  # requests of a tenant that are described; those that run first
FIGURES = (
    *("running", "waiting", "utilisation", "block_utilisation", "sharing_ratio", "generated_tokens", "computed_tokens"),
    *("prompt_tokens", "cached_tokens", "preemptions", "evictions", "predicted_wait_s"),
)


class PoolWatch:
    """One picture for all who look. The next is taken no sooner than 1 / SHARE times what the last one cost, and none
    when nobody looks. cost_s: processor time of the last one and of what was made of it."""

    def __init__(
        self, take: Callable[[], Awaitable[Picture]], known: KnownRequests, model: str, threads: Executor
    ) -> None:
        """take: a new picture. model: the name that clients use. threads: where bodies are made."""
        self._take = take
        self._known = known
        self._model = model
        self._threads = threads
        self._lock = asyncio.Lock()
        self._picture: Picture | None = None
        self._taken = 0.0  # by the event loop's clock
        self._time = 0.0  # the same moment, since 1970
        self.cost_s = 0.0
        self._bodies: dict[str, bytes] = {}  # of this picture, by tenant

    async def body(self, tenant: str) -> bytes:
        """The JSON of the latest picture. EngineUnavailable while there is no engine."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._picture is None or loop.time() >= self._taken + self._interval_s:
                self._picture = await self._take()
                self._taken, self._time, self.cost_s = loop.time(), time.time(), self._picture.cost_s
                self._bodies.clear()
            if tenant not in self._bodies:
                self._bodies[tenant] = await loop.run_in_executor(self._threads, self._render, self._picture, tenant)
            return self._bodies[tenant]

    @property
    def _interval_s(self) -> float:
        return max(LEAST_S, self.cost_s / SHARE)

    def _render(self, picture: Picture, tenant: str) -> bytes:
        began = time.thread_time()
        told = describe(picture, tenant, self._known)
        self.cost_s += time.thread_time() - began
        head = {"object": "pool", "model": self._model, "version": __version__}
        times = {"time": round(self._time, 3), "next_s": round(self._interval_s, 3)}
        return dump(head | times | told)


def describe(picture: Picture, tenant: str, known: KnownRequests) -> dict[str, Any]:
    """The picture as `tenant` may see it."""
    pool, states = picture.pool, block_states(picture.pool)
    figures = {name: getattr(picture.stats, name) for name in FIGURES}
    mine = [request for request in picture.requests if request.tenant == tenant]
    mine.sort(key=lambda request: request.state)  # "running" comes before "waiting"
    return {
        "block_size": pool.block_size,
        "num_blocks": len(states),
        "counts": dict.fromkeys(("free", "cached", "used", "shared", "pinned"), 0) | Counter(states),
        "figures": {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()},
        "tiers": [
            {"name": tier.name, "used": tier.used, "capacity": tier.capacity, "block_bytes": tier.block_bytes}
            for tier in picture.stats.tiers
        ],
        "blocks": {
            "states": runs(states),
            "tables": runs(block_rows(pool)),
            "ages": runs(block_ages(picture)),
            "tiers": runs([" ".join(tiers) for tiers in picture.tiers]),
            "kept": ranges(sorted(pool.kept)),
        },
        "requests": [_request(request, known) for request in mine[:LISTED]],
    }


def _request(request: RequestPicture, known: KnownRequests) -> dict[str, Any]:
    return {
        "id": known.id_of(request.id, request.tenant),
        "state": request.state,
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": request.cached_tokens,
        "made_tokens": request.made,
        "max_tokens": request.most,
        "age_s": round(request.age_s, 3),
        "preemptions": request.preemptions,
        "answers": [_answer(answer) for answer in request.answers],
    }


def _answer(answer: AnswerPicture) -> dict[str, Any]:
    return {"index": answer.index, "tokens": answer.tokens, "tables": [ranges(table) for table in answer.tables]}


def runs(values: Iterable[Any]) -> list[Any]:
    """value, count, value, count, ... of neighbours that are equal."""
    return [part for value, same in groupby(values) for part in (value, len(list(same)))]


def ranges(blocks: Sequence[int]) -> list[int]:
    """first, count, first, count, ... of neighbours that count up by one; those that a window let go are -1, count."""
    found: list[int] = []
    for place, block in enumerate(blocks):
        if place and block == blocks[place - 1] + (block >= 0) and (block >= 0) == (blocks[place - 1] >= 0):
            found[-1] += 1
        else:
            found += (block, 1)
    return found

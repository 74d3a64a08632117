"""GET /requests/ID/explain: why an answer was served as it was, as JSON and in words. Knows no HTTP.

Requests are named by the ids that their clients were given; those of other tenants have none. Nothing is said of what
is cached in other namespaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from octavo.engine.explain import Explanation, HeldBlocks, Preempted, Waited
from octavo.server.known import KnownRequests
from octavo.server.pool import ranges

Object = dict[str, Any]


class Namer:
    """What one tenant knows requests by."""

    def __init__(self, known: KnownRequests, tenant: str) -> None:
        self._known = known
        self._tenant = tenant

    def id_of(self, request: int | None) -> str | None:
        """None for another tenant's, and for none."""
        return None if request is None else self._known.id_of(request, self._tenant)

    def name(self, request: int) -> str:
        """In a sentence."""
        return self.id_of(request) or "another request"


def explanation_body(id: str, explanations: Sequence[Explanation], namer: Namer) -> Object:
    """explanations: of each prompt of the answer `id`."""
    return {
        "id": id,
        "object": "explanation",
        "prompts": [_one(_private(each), namer) for each in explanations],
    }


def _private(each: Explanation) -> Explanation:
    """Who took a block that was evicted is not for other tenants to know."""
    return each if each.missed is None else replace(each, missed=replace(each.missed, by=None))


def _one(each: Explanation, namer: Namer) -> Object:
    miss = each.missed
    return {
        "state": each.state,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "missed": None
        if miss is None
        else {"position": miss.position, "reason": miss.reason, "token": miss.token, "step": miss.step},
        "ahead": each.ahead,
        "held": [_held(held, namer) for held in each.held],
        "waits": [_waited(waited, each.request_id, namer) for waited in each.waits],
        "preemptions": [_preempted(preempted, namer) for preempted in each.preemptions],
        "text": each.told(namer.name),
    }


def _held(held: HeldBlocks, namer: Namer) -> Object:
    shared = [{"request": namer.id_of(request), "blocks": blocks} for request, blocks in held.shared]
    return {"answer": held.index, "tables": [ranges(table) for table in held.blocks], "shared": shared}


def _waited(waited: Waited, request: int, namer: Namer) -> Object:
    why = waited.why
    return {
        "seconds": round(waited.seconds, 6),
        "reason": why.reason,
        "needed": why.needed,
        "available": why.available,
        "head": waited.behind == request,
        "behind": None if waited.behind == request else namer.id_of(waited.behind),
    }


def _preempted(preempted: Preempted, namer: Namer) -> Object:
    return {
        "tokens": preempted.tokens,
        "reason": "lost_block" if preempted.by is None else "gave_way",
        "how": preempted.how,
        "by": namer.id_of(preempted.by),
    }

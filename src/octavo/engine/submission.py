"""Prompts that are submitted together, and how they enter an engine: all of them, or none. Knows no asyncio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.engine.engine import Engine
from octavo.engine.outputs import RequestOutput
from octavo.errors import InvalidRequest, Overloaded
from octavo.options import RequestOptions
from octavo.params import SamplingParams
from octavo.text.token_grammar import TokenGrammar


@dataclass(frozen=True, slots=True)
class Submission:
    """One prompt to answer. namespace: prompts of different ones share no cached blocks. options: how it is treated
    among others. account: told of each output, also of one that nobody reads any more, in the event loop."""

    prompt: str | Sequence[int]
    params: SamplingParams
    namespace: bytes = b""
    options: RequestOptions = field(default_factory=RequestOptions)
    account: Callable[[RequestOutput], None] | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A submission with all that it needs: what its draws are keyed by, its grammar as compiled, if it has one."""

    submission: Submission
    seed: int
    grammar: TokenGrammar | None


def add_all(engine: Engine, ready: Sequence[Ready], most_queued: int) -> list[int]:
    """The ids of all of them as requests; or none is, and the error. most_queued: tokens that may wait, see `Portions`;
    a tenant of which none wait may queue any number."""
    ids: list[int] = []
    tenants = {each.submission.options.tenant for each in ready}
    queued, before = engine.queued.total, {tenant: engine.queued.held(tenant) for tenant in tenants}
    try:
        for each in ready:
            asked = each.submission
            ids.append(
                engine.add(
                    asked.prompt,
                    asked.params,
                    seed=each.seed,
                    namespace=asked.namespace,
                    options=asked.options,
                    grammar=each.grammar,
                )
            )
        if any(waited and engine.queued.beyond(tenant, most_queued) for tenant, waited in before.items()):
            wait = engine.predicted_wait_s()
            own, more = sum(before.values()), engine.queued.total - queued
            raise Overloaded(
                f"{queued} tokens wait, {own} of them this tenant's, and {more} more would pass the limit of "
                f"{most_queued}, or its part of it (a wait of {wait:.1f} s); try again later",
                retry_after_s=max(1, min(60, round(wait))),
                predicted_wait_s=wait,
            )
    except Exception as error:
        abort_all(engine, ids)
        if isinstance(error, InvalidRequest) and len(ready) > 1:
            raise InvalidRequest(f"prompt {len(ids)}: {error}", param=error.param, code=error.code) from error
        raise
    return ids


def abort_all(engine: Engine, ids: Sequence[int]) -> None:
    """End these requests; those that are unknown or have ended are passed over."""
    for id in ids:
        engine.abort(id)

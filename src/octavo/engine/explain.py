"""Why a request was served as it was, as values and as text. Looks at nothing itself: `Journal` fills it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from octavo.kv import Miss
from octavo.sched.cost import CUT, RECOMPUTE
from octavo.sched.observer import Wait


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """What one answer holds now. blocks: its table in each layer group, -1 where a window let go. shared: (request, how
    many of these blocks it holds too), its own request among them for other answers to the same prompt."""

    index: int
    blocks: tuple[tuple[int, ...], ...]
    shared: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds that it waited for one reason, from `since` on by the engine's clock. behind: the request at the head of
    the queue, which was the one that lacked `why`; itself when it was the head."""

    since: float
    seconds: float
    why: Wait
    behind: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """When it gave its blocks away, to which request, how many tokens it had, and in which manner, as in
    `EngineStats.preempted`. by: None when a tier had lost what it was to be resumed from."""

    time: float
    by: int | None
    tokens: int
    how: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request that lives, or that ended lately. ahead: how many sequences waited when it arrived. waits, preemptions:
    the last few. cached_tokens: of its prompt when it was first admitted, None before. missed: why not more,
    for one that waits as it is now, else as it was when first admitted, where only evictions are known.
    """

    request_id: int
    state: Literal["waiting", "running", "ended"]
    prompt_tokens: int
    cached_tokens: int | None
    missed: Miss | None
    ahead: int
    held: tuple[HeldBlocks, ...]
    waits: tuple[Waited, ...]
    preemptions: tuple[Preempted, ...]

    def __str__(self) -> str:
        return self.told(lambda request: f"request {request}")

    def told(self, name: Callable[[int], str]) -> str:
        """A line for each thing; `name` is what a request is called by."""
        lines = [f"{name(self.request_id)}: {self.state}, prompt of {self.prompt_tokens} tokens"]
        if self.cached_tokens is not None:
            lines.append(f"{self.cached_tokens} tokens of the prompt were cached")
        if self.missed is not None:
            lines.append(_missed(self.missed))
        lines += [_held(each, name) for each in self.held]
        if self.ahead:
            lines.append(f"{self.ahead} {'sequence' if self.ahead == 1 else 'sequences'} waited when it arrived")
        lines += [_waited(each, self.request_id, name) for each in self.waits]
        lines += [_preempted(each, name) for each in self.preemptions]
        return "\n".join(lines)


def _missed(miss: Miss) -> str:
    ends = f"the cached beginning ends at token {miss.position}: "
    match miss.reason:
        case "differs":
            return ends + f"the nearest one differs at token {miss.token}"
        case "evicted":
            by = "" if miss.by is None else f", for sequence {miss.by}"
            return ends + f"what follows was evicted in step {miss.step}, at {miss.time:.3f} s{by}"
        case "other_namespace":
            return ends + "it is cached in another namespace"
        case "no_room":
            return ends + "what follows is below the pool, and too few blocks are free"
        case _:
            return ends + "what follows was never seen, or long ago"


def _held(each: HeldBlocks, name: Callable[[int], str]) -> str:
    count = sum(block >= 0 for table in each.blocks for block in table)
    shared = ", ".join(f"{blocks} with {name(request)}" for request, blocks in each.shared)
    return f"answer {each.index} holds {count} blocks" + (f", shared: {shared}" if shared else "")


def _waited(each: Waited, request: int, name: Callable[[int], str]) -> str:
    why = each.why
    reasons = {
        "slots": f"all {why.available} places were taken",
        "tokens": "those that ran took all tokens of the step",
        "blocks": f"{why.needed} blocks were needed and {why.available} were free"
        if why.needed
        else f"a sequence that ran lacked blocks itself ({why.available} were free)",
        "watermark": f"{why.needed} blocks were needed, those kept free counted, and {why.available} were free",
        "prompt": "the prompt that it shares was being computed",
        "tier": "its blocks were being read from a lower tier",
    }
    behind = "" if each.behind == request else f" behind {name(each.behind)}"
    return f"waited {each.seconds:.3f} s{behind}: {reasons[why.reason]}"


def _preempted(each: Preempted, name: Callable[[int], str]) -> str:
    if each.by is None:
        return f"started over with {each.tokens} tokens: a tier had lost a block"
    manners = {
        CUT: "its last blocks alone were dropped",
        RECOMPUTE: "what others then take of its blocks is computed again",
    }
    manner = manners.get(each.how, f"what others then take of its blocks comes back from the {each.how} tier")
    return f"gave way to {name(each.by)} with {each.tokens} tokens: {manner}"

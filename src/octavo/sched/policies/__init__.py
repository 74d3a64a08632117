"""Who goes first: the policies that a scheduler can be given. Each orders the queue; none touches a block."""

from __future__ import annotations

from collections.abc import Callable

from octavo.errors import InvalidRequest
from octavo.sched.policies.base import Policy
from octavo.sched.policies.fair import Fair
from octavo.sched.policies.ranked import AGEING_S, RankedQueue, by_arrival, by_priority

__all__ = ["AGEING_S", "POLICIES", "Fair", "Policy", "RankedQueue", "by_arrival", "by_priority", "make_policy"]

POLICIES = ("fcfs", "priority", "fair")


def make_policy(name: str, blocks_needed: Callable[[int], int]) -> Policy:
    """A fresh policy. blocks_needed: KV blocks of a sequence of so many tokens. Raises InvalidRequest."""
    match name:
        case "fcfs":
            return RankedQueue(by_arrival, overtakes=False)
        case "priority":
            return RankedQueue(by_priority, overtakes=True)
        case "fair":
            return Fair(blocks_needed)
    raise InvalidRequest(f"policy must be one of {', '.join(POLICIES)}, not {name!r}", param="policy")

"""Who is told what the scheduler decides, and why, as it decides it. Decides nothing; knows no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.sched.request import Request

WaitReason = Literal["slots", "tokens", "blocks", "watermark", "prompt", "tier"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the head of the queue was not let in, and the numbers: what it would take, what there was.

    slots: all places are taken. tokens: the step's budget is spent on those that run. blocks: all that run must be able
    to grow (`needed`, of `available` free ones); needed is 0 when a sequence that runs already found too few.
    watermark: likewise, but for the blocks that are kept free while they are short. prompt: it shares the prompt that
    another one is still computing. tier: its blocks are being read from a lower tier.
    """

    reason: WaitReason
    needed: int
    available: int


class Observer:
    """Hears nothing of it; override what you want to hear. Must not call the scheduler; may read."""

    def admitted(self, request: Request) -> None:
        """It runs from now on: its blocks are open, those found in the cache committed, or those left to one that was
        cut back."""

    def waits(self, head: Request, why: Wait) -> None:
        """The step is planned, and `head`, to be let in next, was not. Told in every such step."""

    def preempted(self, victim: Request, by: Request, how: str) -> None:
        """`victim` gives its blocks, which it still has, to `by`; or, cut back, the last of them, which are gone. how:
        see `octavo.sched.victims`."""

    def recalled(self, victim: Request) -> None:
        """What `victim` was opened with is lost, or that of an elder; it waits again."""

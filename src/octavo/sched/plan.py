"""One step in the making: its token budget, its rows, its victims. Knows nothing of blocks or queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.kv import Op
from octavo.sched.limits import Limits
from octavo.sched.request import Request
from octavo.sched.step import Row, Step


class Plan:
    """`budget`: tokens that may still be given to rows; `scored`: those of prompts whose every position has logits.
    `short`: somebody got fewer tokens than the budget had, so nobody behind may come in."""

    def __init__(self, limits: Limits) -> None:
        self.budget = limits.max_batched_tokens
        self.scored = limits.max_scored_tokens or self.budget
        self.short = False
        self.requests: dict[int, Request] = {}
        self.rows: list[Row] = []
        self.preempted: list[int] = []
        self.step: Step | None = None

    def limit(self, request: Request, start: int, behind: int) -> int:
        """Most tokens that a row of `request` from `start` may have when `behind` others are to have one each."""
        budget = self.budget - behind
        return min(budget, self.scored) if request.scores(start) else budget

    def take(self, request: Request, start: int, count: int) -> None:
        """Emit a row; it samples when it reaches the sequence's last token and an answer is wanted."""
        assert request.slot is not None
        sample = start + count == len(request.tokens) and request.max_tokens != 0
        self.rows.append(Row(request.id, request.slot, start, count, sample))
        self.requests[request.id] = request
        self.budget -= count
        if request.scores(start):
            self.scored -= count

    def recall(self, victims: Sequence[Request]) -> Step:
        """The sealed step again, without the rows of `victims`, which are preempted."""
        assert self.step is not None
        gone = {victim.id for victim in victims}
        rows = tuple(row for row in self.step.rows if row.seq not in gone)
        self.step = replace(self.step, rows=rows, preempted=(*self.step.preempted, *gone))
        return self.step

    def seal(self, number: int, ops: tuple[Op, ...], ended: tuple[int, ...]) -> Step:
        """The finished step; single tokens first, then chunks, each in order of rank."""
        rows = tuple(sorted(self.rows, key=lambda row: row.count > 1))
        self.step = Step(number, rows, ops, tuple(self.preempted), ended)
        return self.step

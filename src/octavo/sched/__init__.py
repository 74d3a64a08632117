"""Scheduling: which tokens run next. Plain Python on `octavo.kv`; knows no arrays, no text and no clock."""

from octavo.sched.policy import preemption_bound, running_limit
from octavo.sched.request import Finished, FinishReason, Request
from octavo.sched.scheduler import Scheduler, SchedulerStats
from octavo.sched.step import Row, Step

__all__ = [
    "FinishReason",
    "Finished",
    "Request",
    "Row",
    "Scheduler",
    "SchedulerStats",
    "Step",
    "preemption_bound",
    "running_limit",
]

"""Scheduling: which tokens run next. Plain Python on `octavo.kv`; knows no arrays, no text and no clock."""

from octavo.sched.bounds import preemption_bound, running_limit
from octavo.sched.limits import Limits
from octavo.sched.request import Finished, FinishReason, Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.stats import SchedulerStats
from octavo.sched.step import Row, Step

__all__ = [
    "FinishReason",
    "Finished",
    "Limits",
    "Request",
    "Row",
    "Scheduler",
    "SchedulerStats",
    "Step",
    "preemption_bound",
    "running_limit",
]

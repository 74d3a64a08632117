"""What must hold of a scheduler's queues at all times. Changes nothing; knows no blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from octavo.errors import KVError
from octavo.sched.request import Request


def check_queues(
    running: Sequence[Request], waiting: Sequence[Request], live: Mapping[int, Request], *, overtakes: bool
) -> None:
    """KVError unless all that live run or wait, those that run are in order of rank and nobody is there twice; and,
    where the policy lets no one overtake, those that wait come after them in that order."""
    if {each.id: each for each in (*running, *waiting)} != live:
        raise KVError("scheduler: a live sequence neither runs nor waits")
    if len({id(each) for each in (*running, *waiting)}) < len(running) + len(waiting):
        raise KVError("scheduler: a sequence runs and waits, or is there twice")
    if not _in_order(running if overtakes else (*running, *waiting)):
        raise KVError("scheduler: sequences out of order of rank")


def check_slots(running: Sequence[Request], waiting: Sequence[Request], free: Sequence[int], limit: int) -> None:
    """KVError unless each that runs has a slot, those that wait have none, and the rest of `limit` are free."""
    slots = [each.slot for each in running if each.slot is not None]
    if len(slots) < len(running):
        raise KVError("scheduler: a running sequence has no slot")
    if any(each.slot is not None for each in waiting):
        raise KVError("scheduler: a waiting sequence has a slot")
    if sorted((*slots, *free)) != list(range(limit)):
        raise KVError("scheduler: a slot is lost or shared")


def _in_order(requests: Sequence[Request]) -> bool:
    return all(a.rank < b.rank for a, b in pairwise(requests))

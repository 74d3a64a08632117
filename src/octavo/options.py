"""How one request is to be treated among others, as values. Knows no model, no schedule and no answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

from octavo.errors import InvalidRequest

MAX_PRIORITY = 100
MAX_WEIGHT = 1000.0
MAX_QUOTA = 2**40


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose request it is, for the policy `fair`. Tenants are told apart by name; "" is everybody without one.

    weight: share of the engine beside other tenants, in (0, 1000]. kv_blocks: blocks that its running requests may need
    together at their longest. tokens_a_minute: prompt tokens computed and tokens generated; what a minute leaves over
    is there in the next. None: no quota. hard: beyond a quota its requests wait; otherwise they borrow what nobody
    else wants, and are the first to give it back. Raises InvalidRequest.
    """

    name: str = ""
    weight: float = 1.0
    kv_blocks: int | None = None
    tokens_a_minute: int | None = None
    hard: bool = False

    def __post_init__(self) -> None:
        if not _number(self.weight) or not 0 < self.weight <= MAX_WEIGHT:
            raise _wrong("weight", f"above 0 and at most {MAX_WEIGHT:g}", self.weight)
        for name in ("kv_blocks", "tokens_a_minute"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 1 <= value <= MAX_QUOTA):
                raise _wrong(name, f"a whole number from 1 to {MAX_QUOTA}, or None", value)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """priority: whole number from -100 to 100, the smaller first, for the policy `priority`. tenant: for `fair`.
    deadline_s: seconds from its arrival in which the first token is wanted: a request that is predicted to wait longer
    is refused, and one that still waits then is given up; None waits for ever. Raises InvalidRequest."""

    priority: int = 0
    tenant: Tenant = field(default_factory=Tenant)
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if type(self.priority) is not int or not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise _wrong("priority", f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}", self.priority)
        if self.deadline_s is not None and (not _number(self.deadline_s) or self.deadline_s <= 0):
            raise _wrong("deadline_s", "a number of seconds above 0", self.deadline_s)


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _wrong(name: str, rule: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {rule}, not {value!r}", param=name)

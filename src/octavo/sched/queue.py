"""Those that wait: in a policy's order, their tokens counted, held together for a while when the engine was idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.sched.policies import Policy
from octavo.sched.portions import Portions
from octavo.sched.request import Request


class Queue:
    """policy: who is next. window_s: seconds that the first to come to an idle engine waits for company; not once as
    many wait as `places`, or as many tokens as `batch`. tokens: of all that wait, by tenant."""

    def __init__(self, policy: Policy, window_s: float, places: int, batch: int) -> None:
        self.tokens = Portions()
        self._policy = policy
        self._window_s = window_s
        self._places = places
        self._batch = batch
        self._opened = 0.0  # when the first came

    def gather(self, now: float) -> None:
        """The first comes to an idle engine."""
        self._opened = now

    def push(self, request: Request) -> None:
        """It waits from now on."""
        self._policy.push(request)
        self.tokens.add(request.tenant, len(request.tokens))

    def remove(self, request: Request) -> None:
        """It waits no more."""
        self._policy.remove(request)
        self.tokens.remove(request.tenant, len(request.tokens))

    def rewrite(self, request: Request, tokens: Sequence[int]) -> None:
        """It waits on, with these tokens."""
        self.remove(request)
        request.tokens[:] = tokens
        self.push(request)

    def wait_s(self, now: float) -> float:
        """Seconds until anybody may come in, while nothing runs."""
        held = self._policy.wait_s(now)
        full = len(self) >= self._places or self.tokens.total >= self._batch
        return held if full else max(held, self._opened + self._window_s - now)

    def __len__(self) -> int:
        return len(self._policy)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._policy)

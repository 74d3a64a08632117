"""Which sequences the step in flight let in for the first time, and what they found cached. Lets nobody in."""

from __future__ import annotations

from octavo.sched.request import Request


class Admissions:
    """prompt_tokens, cached_tokens: of all first admissions; later ones only find again what was already paid for."""

    def __init__(self) -> None:
        self.prompt_tokens = self.cached_tokens = 0
        self._in_flight: list[Request] = []

    def note(self, request: Request, cached: int) -> int:
        """It is let in, with so many tokens from the cache; how many tokens of its prompt are left to compute, 0 where
        that was counted before, or with its parent's."""
        if request.cached_tokens is not None:
            return 0
        request.cached_tokens = cached
        self._in_flight.append(request)
        if request.parent is not None:
            return 0
        self.prompt_tokens += request.prompt_len
        self.cached_tokens += cached
        return request.prompt_len - cached

    def in_flight(self, request: Request) -> bool:
        """Whether the step in flight let it in for the first time."""
        return request in self._in_flight

    def undo(self, request: Request) -> int:
        """That came to nothing; what `note` returned."""
        cached, request.cached_tokens = request.cached_tokens or 0, None
        if request.parent is not None:
            return 0
        self.prompt_tokens -= request.prompt_len
        self.cached_tokens -= cached
        return request.prompt_len - cached

    def land(self) -> None:
        """The step in flight has run."""
        self._in_flight.clear()

"""Prompts whose cached blocks are kept for a time: what `octavo.kv` pins, with a clock. Computes nothing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from octavo.errors import InvalidRequest, KVError
from octavo.kv import KVCacheManager
from octavo.sched.scheduler import Scheduler


class PromptPins:
    """Pins by number, each until its time is up. clock: in seconds; `expire` must be called now and then."""

    def __init__(
        self,
        kv: KVCacheManager,
        scheduler: Scheduler,
        encode: Callable[[str | Sequence[int]], list[int]],
        clock: Callable[[], float],
    ) -> None:
        self._kv = kv
        self._scheduler = scheduler
        self._encode = encode
        self._clock = clock
        self._ends: list[tuple[float, int]] = []  # a heap; unpinned ones may still be in it

    def add(self, prompt: str | Sequence[int], ttl_s: float, *, namespace: bytes = b"") -> int:
        """Keep the full blocks of this beginning, a system prompt say, from eviction for `ttl_s` seconds: those
        that are cached and those that will be. The pin's number. What computes them is a request that begins so.

        Raises InvalidRequest, with the numbers, for less than a block, for more than the pool may have pinned, and
        when a request that was accepted could then not be served.
        """
        tokens, reserved = self._encode(prompt), self._scheduler.largest_need
        if not ttl_s > 0:
            raise InvalidRequest(f"a pin lasts for more than 0 seconds, not {ttl_s}", param="ttl_s")
        self.expire()
        try:
            pin = self._kv.pins.add(tokens, namespace)
        except KVError as error:
            raise InvalidRequest(str(error), param="prompt", code="pin_refused") from error
        if self._kv.capacity < reserved:
            left = self._kv.capacity
            self._kv.pins.remove(pin)
            raise InvalidRequest(
                f"cannot pin so much: {left} of {self._kv.num_blocks} blocks would be left, and a request that was"
                f" accepted may need {reserved}; pin a shorter beginning, or later",
                param="prompt",
                code="pin_refused",
            )
        heapq.heappush(self._ends, (self._clock() + ttl_s, pin))
        return pin

    def remove(self, pin: int) -> bool:
        """End a pin early; False when it has ended or never was."""
        self.expire()
        return self._kv.pins.remove(pin)

    def expire(self) -> None:
        """End those whose time is up."""
        while self._ends and self._ends[0][0] <= self._clock():
            self._kv.pins.remove(heapq.heappop(self._ends)[1])

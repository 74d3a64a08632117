"""Requests and tokens a minute of one API key: token buckets in exact arithmetic, and how clients are told. Knows no
endpoint and no engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from octavo.server.errors import ApiError, Failure

MINUTE = 60 * 10**9  # nanoseconds
MAX_RATE = 2**40


@dataclass(frozen=True, slots=True)
class Rate:
    """per_minute: what comes in, evenly. burst: what is there at most, and in the beginning."""

    per_minute: int
    burst: int


class Bucket:
    """Holds up to `rate.burst` and fills by `rate.per_minute`. Times are nanoseconds and must not go back."""

    def __init__(self, rate: Rate, now: int) -> None:
        self.rate = rate
        self._level = rate.burst * MINUTE  # in parts of which MINUTE are one, so that a nanosecond brings whole ones
        self._at = now

    def level(self, now: int) -> int:
        """Whole ones that are there; below 0 where more was charged than there was."""
        self._fill(now)
        return self._level // MINUTE

    def wait(self, count: int, now: int) -> int:
        """Nanoseconds until `count` could be charged if nothing else were; 0: now. What is more than the burst needs a
        full bucket, and leaves a debt."""
        self._fill(now)
        lacking = min(count, self.rate.burst) * MINUTE - self._level
        return max(0, -(-lacking // self.rate.per_minute))

    def charge(self, count: int, now: int) -> None:
        """Take so many out, though they be more than there are; put them back where `count` is below 0."""
        self._fill(now)
        self._level = min(self._level - count * MINUTE, self.rate.burst * MINUTE)

    def until_full(self, now: int) -> int:
        """Nanoseconds until nothing more fits."""
        self._fill(now)
        return -(-(self.rate.burst * MINUTE - self._level) // self.rate.per_minute)

    def _fill(self, now: int) -> None:
        self._level = min(self._level + (now - self._at) * self.rate.per_minute, self.rate.burst * MINUTE)
        self._at = now


class KeyLimits:
    """What one key may ask; None: as much as it likes. clock: nanoseconds. Belongs to one event loop.

    A prompt's tokens are charged when it is let in, an answer's when it has ended, so that a key may then be in debt,
    and waits.
    """

    def __init__(
        self, requests: Rate | None = None, tokens: Rate | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._clock = clock
        self._requests = None if requests is None else Bucket(requests, clock())
        self._tokens = None if tokens is None else Bucket(tokens, clock())

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self._requests is not None or self._tokens is not None

    def take_request(self) -> None:
        """One more request. ApiError 429, which says when there could be one."""
        if self._requests is None:
            return
        now = self._clock()
        if wait := self._requests.wait(1, now):
            raise _refusal("requests", self._requests, 1, wait)
        self._requests.charge(1, now)

    def take_prompt(self, tokens: int) -> None:
        """A prompt of so many tokens. ApiError 429, likewise."""
        if self._tokens is None:
            return
        now = self._clock()
        if wait := self._tokens.wait(tokens, now):
            raise _refusal("tokens", self._tokens, tokens, wait)
        self._tokens.charge(tokens, now)

    def charge(self, tokens: int) -> None:
        """An answer had so many, or, below 0, a prompt was not let in after all."""
        if self._tokens is not None:
            self._tokens.charge(tokens, self._clock())

    def headers(self) -> list[tuple[bytes, bytes]]:
        """How things stand, as OpenAI's protocol tells it."""
        found: list[tuple[bytes, bytes]] = []
        for kind, bucket in ((b"requests", self._requests), (b"tokens", self._tokens)):
            if bucket is not None:
                now = self._clock()
                found += [
                    (b"x-ratelimit-limit-" + kind, b"%d" % bucket.rate.per_minute),
                    (b"x-ratelimit-remaining-" + kind, b"%d" % max(0, bucket.level(now))),
                    (b"x-ratelimit-reset-" + kind, duration(bucket.until_full(now)).encode()),
                ]
        return found


def duration(nanoseconds: int) -> str:
    """Rounded up, as the protocol writes it: 120ms, 3.5s, 6m0s, 2h0m0s."""
    milliseconds = -(-nanoseconds // 10**6)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    minutes, seconds = divmod(-(-milliseconds // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s"


def _refusal(kind: str, bucket: Bucket, asked: int, wait: int) -> ApiError:
    rate = bucket.rate
    message = (
        f"rate limit of this key reached: {rate.per_minute} {kind} a minute, {rate.burst} at once; {asked} asked for, "
        f"try again in {duration(wait)}"
    )
    headers = {"retry-after": str(math.ceil(wait / 10**9)), "retry-after-ms": str(-(-wait // 10**6))}
    return ApiError(Failure(429, message, kind, code="rate_limit_exceeded", headers=headers))

"""How fast this engine works, by the steps that it ran, and how long a wait that makes. Knows no queue and no clock."""

from __future__ import annotations

from octavo.sched.outlook import Outlook

WEIGHT = 0.1  # of the newest of the values that an average is made of
LEAST_SHARE = 0.1  # of a step's time that its chunks count for at least, beside single tokens


class Average:
    """An exponential average; None before the first value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def see(self, value: float) -> None:
        self.value = value if self.value is None else self.value + WEIGHT * (value - self.value)


class Pace:
    """prefill, decode: tokens a second, of prompts and one at a time for all that run. answer: tokens of an answer."""

    def __init__(self) -> None:
        self.prefill = Average()
        self.decode = Average()
        self.answer = Average()

    def see_step(self, seconds: float, chunk_tokens: int, single_tokens: int) -> None:
        """A step took so long, for so many tokens of chunks and rows of one token."""
        if seconds <= 0:
            return
        if not chunk_tokens:
            if single_tokens:
                self.decode.see(single_tokens / seconds)
            return
        singles = single_tokens / self.decode.value if self.decode.value else 0.0
        self.prefill.see(chunk_tokens / max(seconds - singles, seconds * LEAST_SHARE))

    def see_end(self, tokens: int) -> None:
        """An answer of `tokens` ended by itself."""
        self.answer.see(float(tokens))

    @property
    def turn_s(self) -> float:
        """Seconds from one end to the next while all places are taken; 0.0 while nothing is known."""
        if not self.decode.value or self.answer.value is None:
            return 0.0
        return self.answer.value / self.decode.value

    def wait_s(self, outlook: Outlook, uncached: float) -> float:
        """Predicted seconds to the first token. uncached: the part of prompts that is computed, 0 to 1. What has not
        been measured yet counts as no time."""
        prompts = outlook.tokens * uncached / self.prefill.value if self.prefill.value else 0.0
        return prompts + outlook.ends * self.turn_s

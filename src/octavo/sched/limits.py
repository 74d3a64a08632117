"""The sizes that a scheduler keeps to, as a value. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """max_batched_tokens: tokens that a step computes at most. max_seqs: slots; `running_limit` of them are used.
    max_model_len: longest sequence, prompt and answer. max_scored_tokens: tokens a step computes at most of prompts
    whose every position has logits (`Request.scored`), since logits are large; None for no other limit. All at least 1.
    batch_window_s: seconds that the first request of an idle engine waits for company. Raises ValueError.
    """

    max_batched_tokens: int
    max_seqs: int
    max_model_len: int
    max_scored_tokens: int | None = None
    batch_window_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.max_batched_tokens, self.max_seqs, self.max_model_len, self.max_scored_tokens or 1) < 1:
            raise ValueError(f"{self}: all numbers of tokens and sequences must be at least 1")
        if self.batch_window_s < 0:
            raise ValueError(f"{self}: the window cannot be below 0")

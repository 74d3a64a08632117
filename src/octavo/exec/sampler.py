"""The next token of one sequence from one row of logits. Knows no batch, no blocks and no text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.exec.constraints import Constraints
from octavo.exec.logprobs import TokenLogprob, position_logprobs
from octavo.exec.random import Draws
from octavo.exec.selection import Filters, draw, top_token
from octavo.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Sampled:
    """A new token. logprob: the model's own, in nats, None where the request asked for none. top: the likeliest
    tokens, as many as it asked for, descending."""

    token: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


class SequenceSampler:
    """Chooses the tokens of one choice of one request.

    Order: repetition, presence and frequency penalty, logit_bias, masks (bad words, min_tokens), temperature, top_k,
    top_p, min_p, draw. Greedy takes the top token after the masks, the lowest id among equals.

    index: which of the n choices. seed: the request's, settled. vocab_size: ids at or above it are padding of the
    model's output and are neither sampled nor reported. eos_ids, bad_word_ids: see `Constraints`.
    """

    __slots__ = ("_constraints", "_draws", "_filters", "_logprobs", "vocab_size")

    def __init__(
        self,
        params: SamplingParams,
        *,
        index: int,
        seed: int,
        vocab_size: int,
        eos_ids: Collection[int],
        bad_word_ids: Sequence[Sequence[int]] = (),
    ) -> None:
        self._constraints = Constraints(params, vocab_size, eos_ids, bad_word_ids)
        self._draws = Draws(seed, index)
        self._filters = Filters(params.temperature, params.top_k, params.top_p, params.min_p)
        self._logprobs = params.logprobs
        self.vocab_size = vocab_size

    def sample(
        self, logits: NDArray[np.float32], tokens: Sequence[int], prompt_len: int, top: int | None = None
    ) -> Sampled:
        """The token that follows `tokens` (the prompt's `prompt_len`, then the output), from `logits`
        [>= vocab_size], which stay as they are. top: their argmax, where it is known already.

        The answer depends on the arguments alone: calls may be repeated, left out or come in any order. RequestFailed
        where the logits hold a NaN or every token is masked.
        """
        raw = np.ascontiguousarray(logits[: self.vocab_size], dtype=np.float32)
        token = self._choose(raw, tokens, prompt_len, top)
        if self._logprobs is None:
            return Sampled(token)
        expected = position_logprobs(raw, token, self._logprobs)
        return Sampled(token, expected.logprob, expected.top)

    def _choose(self, raw: NDArray[np.float32], tokens: Sequence[int], prompt_len: int, top: int | None) -> int:
        token = top_token(raw, top)
        with np.errstate(over="ignore"):  # logits further apart than float32 reaches: that is a probability of 0
            row = self._constraints.apply(raw, tokens, prompt_len)
            if row is not raw:
                token = top_token(row)
            if self._filters.greedy:
                return token
            return draw(row, self._filters, self._draws.at(len(tokens)))

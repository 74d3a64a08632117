"""The next token of each of many sequences, each from its row of logits. Knows no batch, no blocks and no text."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.errors import OctavoError, RequestFailed
from octavo.exec.constraints import AllowedTokens, Constraints
from octavo.exec.faults import peak_fault
from octavo.exec.logprobs import PositionLogprobs, position_logprobs
from octavo.exec.random import Draws
from octavo.ops.sampling import Filters, Row, RowSampler
from octavo.params import SamplingParams


class SequenceSampler:
    """How the tokens of one choice of one request are chosen.

    Order: repetition, presence and frequency penalty, logit_bias, masks (bad words, min_tokens), temperature, top_k,
    top_p, min_p, draw. Greedy takes the top token after the masks, the lowest id among equals.

    draws: of the request's seed and this choice. vocab_size: ids at or above it are padding of the
    model's output and are neither sampled nor reported. eos_ids, bad_word_ids, grammar: see `Constraints`.

    filters: what shapes a draw. logprobs: how many likely tokens to report, None for no log-probabilities at all.
    plain: whether every token is simply the row's largest.
    """

    __slots__ = ("_constraints", "_draws", "_tries_top", "filters", "logprobs", "plain", "vocab_size")

    def __init__(
        self,
        params: SamplingParams,
        *,
        draws: Draws,
        vocab_size: int,
        eos_ids: Collection[int],
        bad_word_ids: Sequence[Sequence[int]] = (),
        grammar: AllowedTokens | None = None,
    ) -> None:
        self._constraints = Constraints(params, vocab_size, eos_ids, bad_word_ids, grammar)
        self._draws = draws
        self.filters = Filters(params.temperature, params.top_k, params.top_p, params.min_p)
        self.logprobs = params.logprobs
        self.vocab_size = vocab_size
        self._tries_top = self.filters.greedy and self._constraints.grammar_alone
        self.plain = self.filters.greedy and self._constraints.none and self.logprobs is None

    @property
    def has_grammar(self) -> bool:
        """Whether `look_ahead` has anything to do. A greedy one tries its top token first, which mostly may follow."""
        return self._constraints.grammar is not None and not self._tries_top

    def look_ahead(self, tokens: Sequence[int], prompt_len: int) -> None:
        """Work out what may follow `tokens`, so that `constrain` need not. Changes no result; any thread may do it."""
        if self._constraints.grammar is not None:
            with contextlib.suppress(OctavoError):  # `constrain` meets it again, and it is told from there
                self._constraints.grammar.mask(tokens, prompt_len)

    def constrain(self, raw: Row, tokens: Sequence[int], prompt_len: int) -> Row:
        """The logits to draw from after `tokens` (the prompt's `prompt_len`, then the output): `raw` [vocab_size]
        itself, or a changed copy. RequestFailed where the largest of `raw` is not finite."""
        if self._constraints.none:
            return raw
        if self._tries_top and self._top_may_follow(raw, tokens, prompt_len):
            return raw
        # Logits further apart than float32 reaches: that is a probability of 0. Infinite ones are told below.
        with np.errstate(over="ignore", invalid="ignore"):
            row = self._constraints.apply(raw, tokens, prompt_len)
        if row is not raw and not math.isfinite(raw.max()):
            raise peak_fault(raw)
        return row

    def _top_may_follow(self, raw: Row, tokens: Sequence[int], prompt_len: int) -> bool:
        grammar, top = self._constraints.grammar, int(raw.argmax())
        return grammar is not None and grammar.allows(tokens, prompt_len, top)

    def uniform(self, position: int) -> float:
        """What decides the draw at `position`, which depends on nothing else."""
        return 0.0 if self.filters.greedy else self._draws.at(position)


@dataclass(frozen=True, slots=True)
class Choice:
    """One token to choose: after `tokens`, the first `prompt_len` of which are the prompt, from `raw` [vocab_size],
    which stay as they are."""

    sampler: SequenceSampler
    raw: Row
    tokens: Sequence[int]
    prompt_len: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A new token, and what the model expected there where the request asked for it."""

    token: int
    expected: PositionLogprobs | None = None


def choose(choices: Sequence[Choice], rows: RowSampler) -> list[Sampled | OctavoError]:
    """For each choice its token, or why it has none: RequestFailed where the logits hold a NaN or every token is
    masked. Each depends on its own arguments alone: calls may be repeated, left out, split or come in any order."""
    made = [_prepare(choice) for choice in choices]
    found = [(choice, *one) for choice, one in zip(choices, made, strict=True) if not isinstance(one, OctavoError)]
    tokens = rows.draw(
        [row for _, row, _ in found],
        [choice.sampler.filters for choice, _, _ in found],
        [uniform for _, _, uniform in found],
    )
    asked = [choice for choice, _, _ in found if choice.sampler.logprobs is not None]
    expectations = iter(rows.expect([each.raw for each in asked], [each.sampler.logprobs or 0 for each in asked]))
    sampled: list[Sampled | OctavoError] = []
    for (choice, row, _), token in zip(found, tokens, strict=True):
        expected = None if choice.sampler.logprobs is None else next(expectations)
        if token < 0:
            sampled.append(peak_fault(row))
        else:
            told = None if expected is None else position_logprobs(choice.raw, token, expected)
            sampled.append(Sampled(token, told))
    answers = iter(sampled)
    return [one if isinstance(one, OctavoError) else next(answers) for one in made]


def _prepare(choice: Choice) -> tuple[Row, float] | OctavoError:
    """What to draw from, and with."""
    sampler, tokens = choice.sampler, choice.tokens
    try:
        return sampler.constrain(choice.raw, tokens, choice.prompt_len), sampler.uniform(len(tokens))
    except OctavoError as error:
        return error
    except Exception as error:  # a fault in one sequence's sampler is that request's alone
        return RequestFailed(f"sampling failed: {error}")

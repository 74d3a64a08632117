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

    tries: whether a token is drawn as if there were no constraint, and only where that may not follow (`stands`) again,
    from the constrained row and with another random number. Asking a grammar about one token takes a hundredth of the
    time of asking about all, and what is drawn so has the same distribution: of probability a for all that may follow,
    a token of p has p + (1 - a) * p / a = p / a. It takes a grammar that is alone, and filters that see no mask.
    """

    __slots__ = ("_again", "_constraints", "_draws", "_refused", "filters", "logprobs", "plain", "tries", "vocab_size")

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
        self._again = draws.others()
        self._refused = True  # the last try, or there was none
        self.filters = Filters(params.temperature, params.top_k, params.top_p, params.min_p)
        self.logprobs = params.logprobs
        self.vocab_size = vocab_size
        self.tries = self._constraints.grammar_alone and (self.filters.greedy or self.filters.open)
        self.plain = self.filters.greedy and self._constraints.none and self.logprobs is None

    @property
    def has_grammar(self) -> bool:
        """Whether `look_ahead` is worth its time: not where a try will probably do, as the last one did."""
        return self._constraints.grammar is not None and (self._refused or not self.tries)

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
        # Logits further apart than float32 reaches: that is a probability of 0. Infinite ones are told below.
        with np.errstate(over="ignore", invalid="ignore"):
            row = self._constraints.apply(raw, tokens, prompt_len)
        if row is not raw and not math.isfinite(raw.max()):
            raise peak_fault(raw)
        return row

    def stands(self, token: int, tokens: Sequence[int], prompt_len: int) -> bool:
        """Whether a token that was tried may follow."""
        grammar = self._constraints.grammar
        self._refused = grammar is not None and not grammar.allows(tokens, prompt_len, token)
        return not self._refused

    def uniform(self, position: int, *, again: bool = False) -> float:
        """What decides the draw at `position`, which depends on nothing else. again: of one that was refused."""
        return 0.0 if self.filters.greedy else (self._again if again else self._draws).at(position)


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
    """For each choice its token, or why it has none: RequestFailed where the logits hold a NaN, InvalidRequest where
    its settings mask every token. Each depends on its own arguments alone: calls may be repeated, left out, split or
    come in any order."""
    drawn = _draw(choices, [_prepare(choice) for choice in choices], rows)
    refused = [
        place for place, (choice, one) in enumerate(zip(choices, drawn, strict=True)) if _is_refused(choice, one)
    ]
    if refused:
        others = [choices[place] for place in refused]
        again = _draw(others, [_prepare(choice, again=True) for choice in others], rows)
        for place, one in zip(refused, again, strict=True):
            drawn[place] = one
    told = [(choice.raw, choice.sampler.logprobs) for choice in choices if choice.sampler.logprobs is not None]
    expectations = iter(rows.expect([raw for raw, _ in told], [count for _, count in told]))
    sampled: list[Sampled | OctavoError] = []
    for choice, token in zip(choices, drawn, strict=True):
        expected = None if choice.sampler.logprobs is None else next(expectations)
        if isinstance(token, OctavoError):
            sampled.append(token)
        else:
            sampled.append(Sampled(token, None if expected is None else position_logprobs(choice.raw, token, expected)))
    return sampled


Prepared = tuple[Row, float] | OctavoError  # what to draw from, and with


def _draw(choices: Sequence[Choice], prepared: Sequence[Prepared], rows: RowSampler) -> list[int | OctavoError]:
    """A token for each, or why it has none."""
    found = [(choice, *one) for choice, one in zip(choices, prepared, strict=True) if not isinstance(one, OctavoError)]
    tokens = rows.draw(
        [row for _, row, _ in found],
        [choice.sampler.filters for choice, _, _ in found],
        [uniform for _, _, uniform in found],
    )
    drawn = iter(
        [
            peak_fault(row, masked=row is not choice.raw) if token < 0 else token
            for (choice, row, _), token in zip(found, tokens, strict=True)
        ]
    )
    return [one if isinstance(one, OctavoError) else next(drawn) for one in prepared]


def _is_refused(choice: Choice, drawn: int | OctavoError) -> bool:
    """Whether it was a try, and may not follow; what is wrong with its grammar is told when it is drawn again."""
    if isinstance(drawn, OctavoError) or not choice.sampler.tries:
        return False
    try:
        return not choice.sampler.stands(drawn, choice.tokens, choice.prompt_len)
    except Exception:
        return True


def _prepare(choice: Choice, *, again: bool = False) -> Prepared:
    sampler, tokens = choice.sampler, choice.tokens
    try:
        uniform = sampler.uniform(len(tokens), again=again)
        if sampler.tries and not again:
            return choice.raw, uniform
        return sampler.constrain(choice.raw, tokens, choice.prompt_len), uniform
    except OctavoError as error:
        return error
    except Exception as error:  # a fault in one sequence's sampler is that request's alone
        return RequestFailed(f"sampling failed: {error}")

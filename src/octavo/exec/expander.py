"""The likeliest continuations of one beam from one row of logits. Knows no other beams and no scores so far."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from octavo.exec.constraints import Constraints
from octavo.exec.faults import peak_fault
from octavo.exec.logprobs import TokenLogprob, token_logprobs
from octavo.ops.sampling import Row, RowSampler
from octavo.params import SamplingParams

SPARE = 4  # of a beam's continuations that go on, this many times the width: stop strings may end some of them


@dataclass(frozen=True, slots=True)
class Expansion:
    """candidates: continuations of a beam with their log-probabilities, best first, equals by ascending id. top: the
    likeliest tokens, as many as the request asked to be told."""

    candidates: tuple[TokenLogprob, ...]
    top: tuple[TokenLogprob, ...]


class BeamExpander:
    """Expands the beams of one request; it has no state.

    Log-probabilities are the model's own; tokens that bad words or min_tokens forbid are left out. end_ids: tokens that
    end an answer. vocab_size, eos_ids, bad_word_ids: as for `SequenceSampler`.
    """

    __slots__ = ("_constraints", "_ends", "_logprobs", "_width", "plain", "vocab_size")

    def __init__(
        self,
        params: SamplingParams,
        *,
        vocab_size: int,
        eos_ids: Collection[int],
        end_ids: Collection[int],
        bad_word_ids: Sequence[Sequence[int]] = (),
    ) -> None:
        self._constraints = Constraints(params, vocab_size, eos_ids, bad_word_ids)
        self._ends = frozenset(end_ids)
        self._logprobs = params.logprobs or 0
        self._width = params.beam_width
        self.plain = False  # a row's largest is not all that it yields
        self.vocab_size = vocab_size

    def expand(self, raw: Row, tokens: Sequence[int], prompt_len: int, rows: RowSampler) -> Expansion:
        """From `raw` [vocab_size], which stays as it is, after `tokens`: the `width` likeliest, and of those that do
        not end an answer a few times as many. The answer depends on the arguments alone. RequestFailed where the
        logits hold a NaN, InvalidRequest where the settings mask every token."""
        row = self._constraints.apply(raw, tokens, prompt_len)
        enough = max(SPARE * self._width + len(self._ends), self._logprobs)
        (expected,) = rows.expect([raw], [enough if row is raw else self._logprobs])
        top = token_logprobs(raw, expected.top[: self._logprobs], expected)
        likely = expected.top
        if row is not raw:
            (allowed,) = rows.expect([row], [enough])
            if not allowed.total:
                raise peak_fault(row, masked=True)
            likely = [each for each in allowed.top if each[1] > -math.inf]
        wanted = [each for rank, each in enumerate(likely) if rank < self._width or each[0] not in self._ends]
        return Expansion(token_logprobs(raw, wanted[: (SPARE + 1) * self._width], expected), top)

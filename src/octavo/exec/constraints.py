"""What is done to one row of logits before temperature: penalties, biases and masks. Knows no draws and no batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.errors import InvalidRequest
from octavo.exec.penalties import Penalties, TokenCounts
from octavo.ops.sampling import Ids, Row
from octavo.params import SamplingParams


class AllowedTokens(Protocol):
    """A grammar's say in what may follow."""

    def mask(self, tokens: Sequence[int], prompt_len: int) -> NDArray[np.float32]:
        """What to add to the logits [V] after `tokens`, of which the first `prompt_len` are the prompt's: 0 where a
        token may follow, -inf where it may not."""

    def allows(self, tokens: Sequence[int], prompt_len: int, token: int) -> bool:
        """Whether this one may."""


class Constraints:
    """The constraints of one sequence, in this order: penalties, logit_bias, bad words, grammar, min_tokens.

    vocab_size: ids that can be sampled. eos_ids: the model's own end tokens. bad_word_ids: the words as token ids, in
    each form that they can take. A grammar wins over min_tokens: where it allows an end alone, the answer ends.
    InvalidRequest, naming the setting, where an id that the caller gave has no logit.

    none: nothing ever constrains this sequence. grammar_alone: nothing but its grammar does.
    """

    __slots__ = (
        *("_banned", "_bias", "_biased", "_counts", "_ends", "_min_tokens", "_penalties", "_phrases"),
        *("grammar", "grammar_alone", "none"),
    )

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        eos_ids: Collection[int],
        bad_word_ids: Sequence[Sequence[int]],
        grammar: AllowedTokens | None = None,
    ) -> None:
        words = [tuple(word) for word in bad_word_ids]
        if not all(words):
            raise InvalidRequest("bad_words holds a word without any token; leave it out", param="bad_words")
        self._penalties = Penalties(params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        self._counts = TokenCounts(vocab_size)
        self._biased = _ids(params.logit_bias, vocab_size, "logit_bias")
        self._bias = np.array([params.logit_bias[int(token)] for token in self._biased], dtype=np.float32)
        self._banned = _ids({word[0] for word in words if len(word) == 1}, vocab_size, "bad_words")
        self._phrases = [word for word in words if len(word) > 1]
        _ids({token for word in words for token in word}, vocab_size, "bad_words")
        stops = _ids(params.stop_token_ids, vocab_size, "stop_token_ids")
        own = () if params.ignore_eos else tuple(token for token in eos_ids if 0 <= token < vocab_size)
        self._ends = np.union1d(stops, np.array(own, dtype=np.int64))
        self._min_tokens = params.min_tokens if len(self._ends) else 0
        some = len(self._banned), self._phrases, len(self._biased), self._min_tokens
        self.grammar = grammar
        others = not self._penalties.off or any(some)
        self.none = grammar is None and not others
        self.grammar_alone = grammar is not None and not others

    def apply(self, raw: Row, tokens: Sequence[int], prompt_len: int) -> Row:
        """`raw` itself where nothing constrains it now, else a changed copy. Masked tokens get -inf."""
        masks = [
            *([self._banned] if len(self._banned) else []),
            *(np.array([word[-1]]) for word in self._phrases if _is_due(word, tokens, prompt_len)),
        ]
        too_short = len(tokens) - prompt_len < self._min_tokens
        if self._penalties.off and not len(self._biased) and not masks and not too_short and self.grammar is None:
            return raw
        if self.grammar_alone and self.grammar is not None:
            return raw + self.grammar.mask(tokens, prompt_len)
        row = raw.copy()
        if not self._penalties.off:
            self._penalties.apply(row, *self._counts.of(tokens, prompt_len))
        if len(self._biased):
            row[self._biased] += self._bias
        for ids in masks:
            row[ids] = -np.inf
        if self.grammar is not None:
            row += self.grammar.mask(tokens, prompt_len)
        if too_short:
            ends = row[self._ends]
            row[self._ends] = -np.inf
            if self.grammar is not None and row.max() == -np.inf:
                row[self._ends] = ends
        return row


def _is_due(word: tuple[int, ...], tokens: Sequence[int], prompt_len: int) -> bool:
    """Whether the output ends with all of `word` but its last token. The prompt is the caller's and does not count."""
    begun = len(word) - 1
    return len(tokens) - prompt_len >= begun and tuple(tokens[-begun:]) == word[:-1]


def _ids(tokens: Iterable[int], vocab_size: int, param: str) -> Ids:
    ids = sorted(set(tokens))
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"{param} names token {token}; ids go from 0 to {vocab_size - 1}", param=param)
    return np.array(ids, dtype=np.int64)

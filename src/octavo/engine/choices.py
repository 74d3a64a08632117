"""How the answers of one request are made: their texts, their stops, their samplers. Keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.engine.request import Answer
from octavo.exec.expander import BeamExpander
from octavo.exec.random import Draws
from octavo.exec.sampler import SequenceSampler
from octavo.params import SamplingParams
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_checker import StopChecker
from octavo.text.token_grammar import TokenGrammar
from octavo.text.tokenizer import Tokenizer

PROMPT_TAIL = 16  # tokens of the prompt that decide how the answer's text joins it


class AnswerMaker:
    """Makes what one model's answers need. vocab_size: ids that can be sampled. eos_ids: the model's end tokens."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids

    def answers(
        self, seqs: Sequence[int], params: SamplingParams, ends: frozenset[int], prompt: Sequence[int]
    ) -> tuple[Answer, ...]:
        """One for each of `seqs`, or, for beams, the one that all of them begin with."""
        apart = seqs[:1] if params.beam_width > 1 else seqs
        return tuple(
            Answer(
                index,
                seq,
                params,
                ends,
                Detokenizer(
                    self._tokenizer, skip_special=params.skip_special_tokens, prompt_tail=prompt[-PROMPT_TAIL:]
                ),
                StopChecker(params.stop, include=params.include_stop),
            )
            for index, seq in enumerate(apart)
        )

    def sampler(self, answer: Answer, seed: int, grammar: TokenGrammar | None) -> SequenceSampler | BeamExpander:
        """What chooses its tokens. seed: the request's, settled."""
        params = answer.params
        words = [word for bad in params.bad_words for word in (bad, " " + bad)]  # at a start, and after a space
        bad = tuple(tuple(self._tokenizer.encode(word, add_special=False)) for word in words)
        size, eos = self._vocab_size, self._eos_ids
        if params.beam_width > 1:
            return BeamExpander(params, vocab_size=size, eos_ids=eos, end_ids=answer.end_ids, bad_word_ids=bad)
        ranked = params.sequences > params.n and params.logprobs is None
        return SequenceSampler(
            replace(params, logprobs=0) if ranked else params,  # what is ranked by them needs them unasked
            draws=Draws(seed, answer.index),
            vocab_size=size,
            eos_ids=eos,
            bad_word_ids=bad,
            grammar=None if grammar is None else grammar.walk(),
        )

"""Runs one batch: the model, then a token for each row that samples. Decides nothing about order, moves no blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from octavo.errors import OctavoError, RequestFailed
from octavo.exec.batch import NOTHING, Batch, Span, Wanted
from octavo.exec.expander import BeamExpander, Expansion
from octavo.exec.logprobs import PositionLogprobs, prompt_logprobs
from octavo.exec.pooling import PromptPooler, Vector
from octavo.exec.sampler import Choice, SequenceSampler, choose
from octavo.ops.backends import Forward, StepOutput
from octavo.ops.sampling import Row, RowSampler


@dataclass(slots=True)
class SequenceState:
    """What sampling one sequence needs, and the prompt's log-probabilities and embedding as they come in."""

    sampler: SequenceSampler | BeamExpander
    prompt_len: int
    prompt_top: int | None = None
    pooler: PromptPooler | None = None
    prompt_logprobs: list[PositionLogprobs] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """Leading positions whose logits are still wanted for the prompt's log-probabilities."""
        wanted = self.prompt_len - 1
        if self.prompt_top is None or len(self.prompt_logprobs) >= wanted:
            return 0
        return wanted

    @property
    def pooled(self) -> range:
        """Positions whose hidden states are still wanted for the prompt's embedding."""
        return range(0) if self.pooler is None else self.pooler.wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step yielded, by sequence: the token of each that sampled, what the model expected there where that was
    asked for, the continuations of each that is a beam, or the error that ended that sequence alone."""

    tokens: dict[int, int] = field(default_factory=dict)
    expected: dict[int, PositionLogprobs] = field(default_factory=dict)
    expanded: dict[int, Expansion] = field(default_factory=dict)
    failed: dict[int, OctavoError] = field(default_factory=dict)


class Executor:
    """Owns the sequences' sampling state; the pool and the model are the backend's, the tokens the scheduler's.

    forward: the model; where it names each row's top token, that is of as many ids as the samplers sample. rows: draws
    the other tokens. tokens_of: a sequence's tokens so far.
    """

    def __init__(self, forward: Forward, rows: RowSampler, tokens_of: Callable[[int], Sequence[int]]) -> None:
        self._forward = forward
        self._rows = rows
        self._tokens_of = tokens_of
        self._states: dict[int, SequenceState] = {}
        self._unread: set[int] = set()  # those whose prompt's log-probabilities or embedding are not known yet
        self._beside: ThreadPoolExecutor | None = None  # works out what grammars allow while the model runs

    def admit(self, seq: int, state: SequenceState) -> None:
        """Sample `seq` with this state from now on."""
        self._states[seq] = state
        if state.scored or state.pooled:
            self._unread.add(seq)

    def close(self) -> None:
        """Let go of the thread that works beside the model, if there is one."""
        if self._beside is not None:
            self._beside.shutdown()
            self._beside = None

    def release(self, seq: int) -> None:
        """The sequence ended; unknown ones are ignored."""
        self._states.pop(seq, None)
        self._unread.discard(seq)

    def wanted(self, sequences: Sequence[int]) -> Wanted:
        """For BatchEncoder.encode: what is still to be read of the prompts of these sequences."""
        if not self._unread:
            return NOTHING
        unread = [(seq, self._states[seq]) for seq in sequences if seq in self._unread]
        return Wanted(
            {seq: state.scored for seq, state in unread if state.scored},
            {seq: state.pooled for seq, state in unread if state.pooled},
        )

    def prompt_logprobs(self, seq: int) -> list[PositionLogprobs] | None:
        """Of the prompt's tokens after its first, when they were asked for."""
        state = self._states[seq]
        return None if state.prompt_top is None else state.prompt_logprobs

    def embedding(self, seq: int) -> Vector | None:
        """Of the prompt, float32 [hidden], when it was asked for and its last token has been computed."""
        pooler = self._states[seq].pooler
        return None if pooler is None else pooler.vector()

    def run(self, batch: Batch) -> Outcome:
        """The step's block operations have run: now its rows write and sample."""
        ahead = self._look_ahead(batch)
        output = self._forward(batch.inputs)
        if ahead is not None:
            ahead.result()
        outcome = Outcome()
        for read, spans in ((self._score, batch.scored), (self._pool, batch.pooled)):
            for span in spans:
                try:
                    read(span, output)
                except OctavoError as error:
                    outcome.failed[span.seq] = error
                except Exception as error:  # a fault in reading one sequence's prompt is that request's alone
                    outcome.failed[span.seq] = RequestFailed(f"reading the prompt's results failed: {error}")
        self._sample(batch, output, outcome)
        return outcome

    def _look_ahead(self, batch: Batch) -> Future[None] | None:
        """What grammars allow to follow depends on tokens that are known before the model runs."""
        asked = [
            (sampler, self._tokens_of(seq), state.prompt_len)
            for seq in batch.seqs
            if isinstance(sampler := (state := self._states[seq]).sampler, SequenceSampler) and sampler.has_grammar
        ]
        if not asked:
            return None
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, thread_name_prefix="octavo-grammar")

        def work() -> None:
            for sampler, tokens, prompt_len in asked:
                sampler.look_ahead(tokens, prompt_len)

        return self._beside.submit(work)

    def _score(self, span: Span, output: StepOutput) -> None:
        state = self._states[span.seq]
        # After a preemption the first positions come by again: what is known already is skipped.
        known = len(state.prompt_logprobs) - span.start
        assert known >= 0, "a position of the prompt was skipped"
        assert state.prompt_top is not None
        following = self._tokens_of(span.seq)[span.start + 1 + known : span.start + 1 + span.count]
        rows = [self._raw(output, place, state) for place in range(span.first + known, span.first + span.count)]
        state.prompt_logprobs += prompt_logprobs(rows, following, state.prompt_top, self._rows)
        self._settle(span.seq, state)

    def _pool(self, span: Span, output: StepOutput) -> None:
        state = self._states[span.seq]
        assert state.pooler is not None
        assert span.start == state.pooler.next, "a position of the prompt was skipped"
        state.pooler.take(output.hidden[span.first : span.first + span.count])
        self._settle(span.seq, state)

    def _settle(self, seq: int, state: SequenceState) -> None:
        if not (state.scored or state.pooled):
            self._unread.discard(seq)

    def _sample(self, batch: Batch, output: StepOutput, outcome: Outcome) -> None:
        """The top token where that is all there is to it; the others together."""
        top = None if output.top is None else output.top.tolist()
        states, tokens = self._states, outcome.tokens
        others: list[tuple[int, int]] = []
        for seq, place in zip(batch.seqs, batch.sampled, strict=True):
            if top is not None and states[seq].sampler.plain and top[place] >= 0:
                tokens[seq] = top[place]
            else:
                others.append((seq, place))
        if outcome.failed:
            for seq in outcome.failed:
                tokens.pop(seq, None)
            others = [(seq, place) for seq, place in others if seq not in outcome.failed]
        if others:
            self._choose(others, output, outcome)

    def _choose(self, others: Sequence[tuple[int, int]], output: StepOutput, outcome: Outcome) -> None:
        seqs, choices = [], []
        for seq, place in others:
            state = self._states[seq]
            raw = self._raw(output, place, state)
            if isinstance(state.sampler, BeamExpander):
                self._expand(seq, state.sampler, raw, outcome)
                continue
            seqs.append(seq)
            choices.append(Choice(state.sampler, raw, self._tokens_of(seq), state.prompt_len))
        for seq, sampled in zip(seqs, choose(choices, self._rows), strict=True):
            if isinstance(sampled, OctavoError):
                outcome.failed[seq] = sampled
                continue
            outcome.tokens[seq] = sampled.token
            if sampled.expected is not None:
                outcome.expected[seq] = sampled.expected

    def _expand(self, seq: int, beam: BeamExpander, raw: Row, outcome: Outcome) -> None:
        try:
            prompt_len = self._states[seq].prompt_len
            outcome.expanded[seq] = beam.expand(raw, self._tokens_of(seq), prompt_len, self._rows)
        except OctavoError as error:
            outcome.failed[seq] = error
        except Exception as error:  # a fault in one sequence is that request's alone
            outcome.failed[seq] = RequestFailed(f"expanding a beam failed: {error}")

    def _raw(self, output: StepOutput, place: int, state: SequenceState) -> Row:
        return np.ascontiguousarray(output.logits[place, : state.sampler.vocab_size], dtype=np.float32)

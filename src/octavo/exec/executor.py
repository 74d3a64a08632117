"""Runs one batch: block operations, the model, then a token for each row that samples. Decides nothing about order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.errors import OctavoError, RequestFailed
from octavo.exec.batch import Batch, LogitSpan
from octavo.exec.logprobs import PositionLogprobs, prompt_logprobs
from octavo.exec.sampler import Sampled, SequenceSampler
from octavo.kv import Copy, Op
from octavo.ops.backends import Forward

Logits = npt.NDArray[np.float32]


class BlockStore(Protocol):
    """The device's side of block operations."""

    def copy_block(self, src: int, dst: int) -> None:
        """Copy every layer's keys and values of one block onto another."""
        ...


@dataclass(slots=True)
class SequenceState:
    """What sampling one sequence needs, and the prompt's log-probabilities as they come in."""

    sampler: SequenceSampler
    prompt_len: int
    prompt_top: int | None = None
    prompt_logprobs: list[PositionLogprobs] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """Leading positions whose logits are still wanted for the prompt's log-probabilities."""
        wanted = self.prompt_len - 1
        if self.prompt_top is None or len(self.prompt_logprobs) >= wanted:
            return 0
        return wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step yielded: a token for each sequence that sampled, or the error that ended that sequence alone."""

    sampled: dict[int, Sampled]
    failed: dict[int, OctavoError]


class Executor:
    """Owns the sequences' sampling state; the pool and the model are the backend's, the tokens the scheduler's.

    forward: the model; where it names each row's top token, that is of as many ids as the samplers sample. tokens_of: a
    sequence's tokens so far.
    """

    def __init__(self, forward: Forward, blocks: BlockStore, tokens_of: Callable[[int], Sequence[int]]) -> None:
        self._forward = forward
        self._blocks = blocks
        self._tokens_of = tokens_of
        self._states: dict[int, SequenceState] = {}

    def admit(self, seq: int, state: SequenceState) -> None:
        """Sample `seq` with this state from now on."""
        self._states[seq] = state

    def release(self, seq: int) -> None:
        """The sequence ended; unknown ones are ignored."""
        self._states.pop(seq, None)

    def scored(self, sequences: Sequence[int]) -> dict[int, int]:
        """For BatchEncoder.encode: how many leading positions of each sequence are to be scored, zeros left out."""
        return {seq: count for seq in sequences if (count := self._states[seq].scored)}

    def prompt_logprobs(self, seq: int) -> list[PositionLogprobs] | None:
        """Of the prompt's tokens after its first, when they were asked for."""
        state = self._states[seq]
        return None if state.prompt_top is None else state.prompt_logprobs

    def run_ops(self, ops: Sequence[Op]) -> None:
        """Block operations alone, in order of phase."""
        for op in ops:
            if not isinstance(op, Copy):
                raise TypeError(f"{op} needs a lower tier and this executor has none")
            self._blocks.copy_block(op.src, op.dst)

    def run(self, batch: Batch) -> Outcome:
        """Phases in the order that the block manager's pins assume: spill, copy, fetch, then writes."""
        self.run_ops(batch.ops)
        output = self._forward(batch.inputs)
        outcome = Outcome({}, {})
        for span in batch.spans:
            try:
                last = span.first + span.count
                top = None if output.top is None else int(output.top[last - 1])
                self._read(span, output.logits[span.first : last], top, outcome)
            except OctavoError as error:
                outcome.failed[span.seq] = error
            except Exception as error:  # a fault in one sequence's sampler is that request's alone
                outcome.failed[span.seq] = RequestFailed(f"sampling failed: {error}")
        return outcome

    def _read(self, span: LogitSpan, logits: Logits, top: int | None, outcome: Outcome) -> None:
        state = self._states[span.seq]
        tokens = self._tokens_of(span.seq)
        if span.sample:
            outcome.sampled[span.seq] = state.sampler.sample(logits[-1], tokens, state.prompt_len, top)
            logits = logits[:-1]
        if len(logits) and state.prompt_top is not None:
            # After a preemption the first positions come by again: what is known already is skipped.
            known = len(state.prompt_logprobs) - span.start
            assert known >= 0, "a position of the prompt was skipped"
            following = tokens[span.start + 1 : span.start + 1 + len(logits)]
            vocab_size = state.sampler.vocab_size
            state.prompt_logprobs += prompt_logprobs(logits[known:], following[known:], state.prompt_top, vocab_size)

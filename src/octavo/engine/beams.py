"""A beam search in flight: which sequence computes which beam, and the beams' texts. Moves no blocks."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.engine.outputs import FinishReason
from octavo.engine.request import Answer
from octavo.exec.beams import BeamRules, BeamSearch
from octavo.exec.expander import Expansion
from octavo.exec.logprobs import PositionLogprobs, TokenLogprob

Branches = dict[int, tuple[int, int]]  # sequence -> whose tokens it goes on with, and the next one


class BeamGroup:
    """The beams of one request. seqs: the sequences that compute them; root: the answer before its first token, whose
    sequence is the first. max_tokens: as settled at the door."""

    def __init__(self, seqs: Sequence[int], root: Answer, max_tokens: int) -> None:
        params = root.params
        rules = BeamRules(params.beam_width, params.length_penalty, params.early_stopping, max_tokens)
        self.seqs = tuple(seqs)
        self.computing = self.seqs  # less those that have no beam any more
        self._max_tokens = max_tokens
        self._lines = [root.seq]  # the sequence of each running beam, the best first
        self._landed: dict[int, Expansion] = {}
        self._search = BeamSearch(rules, root, self._grow)

    @property
    def done(self) -> bool:
        """Whether the search has ended."""
        return self._search.done

    def land(self, seq: int, expansion: Expansion) -> Branches | None:
        """A beam's row has yielded this. When all beams have landed, one round of the search: what every sequence that
        is left goes on with. Sequences that are not among the keys have no beam any more."""
        self._landed[seq] = expansion
        return self._advance() if all(line in self._landed for line in self._lines) else None

    def best(self, count: int, reason: FinishReason) -> tuple[Answer, ...]:
        """The best `count` answers, in order. Where the search was broken off, this is the reason why some end."""
        answers = self._search.best(count)
        for index, answer in enumerate(answers):
            answer.index = index
            if answer.finish_reason is None:
                answer.finish(reason)
        return tuple(answers)

    def _advance(self) -> Branches:
        before = self._lines
        sources = self._search.advance([self._landed[seq] for seq in before])
        self._landed.clear()
        lines = [before[source] if source not in sources[:place] else -1 for place, source in enumerate(sources)]
        spare = [seq for seq in self.computing if seq not in lines]
        self._lines = [line if line >= 0 else spare.pop(0) for line in lines]
        self.computing = tuple(self._lines)
        return {
            seq: (before[source], beam.content.tokens[-1])
            for seq, source, beam in zip(self._lines, sources, self._search.running, strict=True)
        }

    def _grow(self, beam: Answer, candidate: TokenLogprob, expansion: Expansion) -> tuple[Answer, bool]:
        answer = beam.fork()
        answer.push(candidate.token, PositionLogprobs(candidate.token, candidate.logprob, expansion.top))
        if answer.stop_reason is not None:
            answer.finish("stop")
        elif answer.at_end_token:
            answer.finish("stop", candidate.token if candidate.token in answer.params.stop_token_ids else None)
        elif len(answer.tokens) == self._max_tokens:
            answer.finish("length")
        return answer, answer.finish_reason is not None

"""The requests being answered: what a step's rows come to for them, and how each of them ends. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.engine.beams import BeamGroup
from octavo.engine.outputs import Delta, FinishReason, RequestOutput, whole_deltas
from octavo.engine.pace import Pace
from octavo.engine.parts import Parts
from octavo.engine.request import Answer, LiveRequest
from octavo.engine.tiers import Prefetcher
from octavo.errors import OctavoError
from octavo.exec.expander import Expansion
from octavo.exec.logprobs import PositionLogprobs
from octavo.sched.request import Finished, Request


class LiveRequests:
    """Belongs to one engine. A sequence is here from `admit` until all answers of its request have ended; whatever ends
    an answer takes its sequence out of the scheduler, the executor and the prefetcher.

    generated_tokens: since the start.
    """

    def __init__(self, parts: Parts, prefetcher: Prefetcher, pace: Pace) -> None:
        self.by_id: dict[int, LiveRequest] = {}
        self.generated_tokens = 0
        self._kv = parts.kv
        self._scheduler = parts.scheduler
        self._executor = parts.executor
        self._journal = parts.journal
        self._clock = parts.clock
        self._prefetcher = prefetcher
        self._pace = pace
        self._answers: dict[int, tuple[LiveRequest, Answer]] = {}  # by sequence
        self._beams: dict[int, BeamGroup] = {}  # by request

    def __contains__(self, seq: object) -> bool:
        """Whether a sequence belongs to a request that is still here."""
        return seq in self._answers

    def sequences(self) -> Iterator[tuple[LiveRequest, Sequence[int]]]:
        """Each request and all its sequences, those that have ended too."""
        seqs: dict[int, list[int]] = {}
        for seq, (live, _) in self._answers.items():
            seqs.setdefault(live.id, []).append(seq)
        return ((self.by_id[id], each) for id, each in seqs.items())

    def admit(self, live: LiveRequest, request: Request) -> None:
        """A request came, and is scheduled as the sequences of `request`."""
        seqs = (request.id, *request.children)
        self.by_id[live.id] = live
        for place, seq in enumerate(seqs):
            self._answers[seq] = (live, live.answers[min(place, len(live.answers) - 1)])
        if request.beams:
            self._beams[live.id] = BeamGroup(seqs, live.answers[0], request.total - len(live.prompt_tokens))

    def land(self, seq: int, token: int, expected: PositionLogprobs | None, ended: Finished | None) -> Delta:
        """What a row with a new token came to: that token, and perhaps an end."""
        live, answer = self._answers[seq]
        if live.first_token is None:
            live.first_token = self._clock()
        self.generated_tokens += 1
        text = answer.push(token, expected)
        if ended is not None:
            live.count(ended.cached_tokens, ended.preemptions)
        elif answer.stop_reason is not None:
            self._drop(live, seq)
        if answer.stop_reason is not None:
            return self._end(live, answer, "stop", text, token)
        if ended is None:
            return Delta(live.id, answer.index, text, (token,), logprobs=() if expected is None else (expected,))
        named = ended.stop_token in answer.params.stop_token_ids
        return self._end(live, answer, ended.reason, text, token, ended.stop_token if named else None)

    def land_empty(self, ended: Finished) -> Delta:
        """A prompt that was to be computed and not continued."""
        live, answer = self._answers[ended.seq]
        live.first_token = live.first_token or self._clock()
        live.count(ended.cached_tokens, ended.preemptions)
        return self._end(live, answer, "length")

    def land_beam(self, seq: int, expansion: Expansion) -> list[Delta]:
        """One beam's row of an applied step. Nothing of a search is shown before it is done."""
        if seq not in self._answers:
            return []  # another beam failed
        live, _ = self._answers[seq]
        live.first_token = live.first_token or self._clock()
        group = self._beams[live.id]
        before, branches = group.computing, group.land(seq, expansion)
        if branches is None:
            return []  # some are still to come
        self.generated_tokens += len(before)
        for left in set(before) - set(branches):
            self._drop(live, left)
        if not group.done:
            self._scheduler.branch(branches)
        return self._end_beams(live, "length") if group.done else []

    def _end_beams(self, live: LiveRequest, reason: FinishReason) -> list[Delta]:
        """The search is done, or is broken off for this reason: its best answers, each as one delta."""
        group = self._beams.pop(live.id)
        for seq in group.computing:
            self._drop(live, seq)
        live.answers = group.best(live.answers[0].params.n, reason)
        lengths = [len(live.prompt_tokens) + len(answer.tokens) for answer in live.answers]
        live.blocks = sum(self._kv.blocks_needed(length) for length in lengths)
        return whole_deltas(self._close(live, group.seqs))

    def break_off(self, live: LiveRequest, reason: FinishReason) -> list[Delta]:
        """End all of a request that has not ended."""
        if live.id in self._beams:
            return self._end_beams(live, reason)
        going = [answer for answer in live.answers if answer.finish_reason is None]
        for answer in going:
            self._drop(live, answer.seq)
        return [self._end(live, answer, reason) for answer in going]

    def fail(self, seq: int, error: OctavoError) -> list[Delta]:
        """What ended one sequence ends its answer; if it is a beam, the search."""
        if seq not in self._answers:
            return []  # another beam failed first
        live, answer = self._answers[seq]
        live.error = error
        if live.id in self._beams:
            return self._end_beams(live, "error")
        self._drop(live, seq)
        return [self._end(live, answer, "error")]

    def _drop(self, live: LiveRequest, seq: int) -> None:
        """Take a sequence that the engine ends out of the scheduler, keeping its figures."""
        request = self._scheduler.request(seq)
        live.count(request.cached_tokens or 0, request.preemptions)
        self._prefetcher.drop(seq)
        self._scheduler.abort(seq)

    def _end(
        self,
        live: LiveRequest,
        answer: Answer,
        reason: FinishReason,
        text: str = "",
        last: int | None = None,
        stop_reason: int | None = None,
    ) -> Delta:
        text += answer.finish(reason, stop_reason)
        if reason in ("stop", "length") and answer.tokens:
            self._pace.see_end(len(answer.tokens))
        live.blocks += self._kv.blocks_needed(len(live.prompt_tokens) + len(answer.tokens))
        self._prefetcher.drop(answer.seq)
        output = self._close(live, [each.seq for each in live.answers]) if live.done else None
        tokens, logprobs = ((), ()) if last is None else ((last,), tuple(answer.logprobs[-1:]))
        return Delta(live.id, answer.index, text, tokens, answer.finish_reason, output, logprobs, answer.stop_reason)

    def _close(self, live: LiveRequest, seqs: Sequence[int]) -> RequestOutput:
        """All answers have ended: forget the request and its sequences."""
        self._journal.ended(live)
        scored, embedding = self._executor.prompt_logprobs(seqs[0]), self._executor.embedding(seqs[0])
        del self.by_id[live.id]
        for seq in seqs:
            del self._answers[seq]
            self._executor.release(seq)
        return RequestOutput(
            request_id=live.id,
            prompt=live.prompt,
            prompt_tokens=live.prompt_tokens,
            choices=live.choices(),
            metrics=live.metrics(self._clock()),
            prompt_logprobs=None if scored is None else (None, *scored),
            embedding=embedding,
            error=live.error,
        )

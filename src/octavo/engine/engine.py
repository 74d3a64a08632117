"""Requests in, tokens out: the one loop. One thread calls it; it owns scheduler, KV manager and executor."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from octavo.config import EngineConfig
from octavo.engine.admission import check_request, encode_prompt, end_ids
from octavo.engine.best_of import HeldBack
from octavo.engine.block_map import Picture, PoolView
from octavo.engine.choices import AnswerMaker
from octavo.engine.events import Event
from octavo.engine.explain import Explanation
from octavo.engine.live_requests import LiveRequests
from octavo.engine.outputs import Delta, EngineStats
from octavo.engine.pace import Pace
from octavo.engine.parts import Parts
from octavo.engine.pins import PromptPins
from octavo.engine.pool_size import PoolSize
from octavo.engine.request import Answer, LiveRequest
from octavo.engine.stats import Sources, engine_stats
from octavo.engine.tiers import Prefetcher
from octavo.engine.waiting_room import WaitingRoom
from octavo.errors import InvalidRequest, KVError, OctavoError, RequestFailed
from octavo.exec.executor import Outcome, SequenceState
from octavo.exec.pooling import PromptPooler
from octavo.kv import Fetch
from octavo.options import RequestOptions
from octavo.params import SamplingParams
from octavo.sched.portions import Portions
from octavo.sched.request import Request
from octavo.sched.step import Step
from octavo.text.token_grammar import TokenGrammar

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Coming:
    """A request that was read and is not here yet. text: the prompt, where it came as one. states: of its sequences."""

    request: Request
    text: str | None
    answers: tuple[Answer, ...]
    states: list[SequenceState]


class Engine:
    """Serves many requests at once on one paged pool. Not thread-safe: one thread owns it.

    `add` a request, call `step` while `has_work`, read the deltas. An error of one request ends that request; an error
    of a whole step ends the requests of that step; the engine goes on.
    """

    def __init__(self, parts: Parts, config: EngineConfig) -> None:
        self.config = config
        self.tokenizer = parts.tokenizer
        self.max_model_len = parts.max_model_len
        self.hidden_size = parts.hidden_size
        self.vocab_size = parts.vocab_size
        self.grammars = parts.grammars  # for any thread
        self._parts = parts
        self._kv = parts.kv
        self._scheduler = parts.scheduler
        self._executor = parts.executor
        self._mover = parts.mover
        self._journal = parts.journal
        encode = partial(encode_prompt, tokenizer=self.tokenizer, max_model_len=self.max_model_len)
        self.pins = PromptPins(parts.kv, parts.scheduler, encode, parts.clock)
        pace = Pace()
        self._prefetcher = Prefetcher(parts.kv, parts.scheduler, parts.mover.tiers)
        self._requests = LiveRequests(parts, self._prefetcher, pace)
        self._waiting_room = WaitingRoom(parts.scheduler, self._requests.by_id, pace)
        self._sequence_ids = itertools.count()
        self._held_back = HeldBack()
        self._make = AnswerMaker(parts.tokenizer, parts.vocab_size, parts.eos_ids)
        self._pending: list[Delta] = []  # made outside a step, handed out by the next one
        self._fault: Exception | None = None
        self.planned: Step | None = None  # the last step
        self._pool_size = PoolSize(parts.kv, parts.scheduler, parts.mover, parts.max_blocks, parts.block_bytes)
        self._view = PoolView(parts, self._requests)

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do or to hand out."""
        return bool(self._requests.by_id) or bool(self._pending) or self._pool_size.shrinking

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        seed: int,
        namespace: bytes = b"",
        options: RequestOptions | None = None,
        grammar: TokenGrammar | None = None,
    ) -> int:
        """Queue a request; its id. seed: what the draws are keyed by. namespace: keeps its cached blocks apart.
        options: how it is treated among others. grammar: the compiled form of `params.grammar`, where somebody made it
        already, elsewhere and in peace.

        Raises InvalidRequest, with nothing changed, for an empty or too long prompt, ids outside the vocabulary, or a
        request that the whole pool could not hold; Overloaded for one that would begin after its deadline.
        """
        options = options or RequestOptions()
        try:
            coming = self._read(prompt, params, seed, namespace, options, grammar)
            return self._take_in(coming, options)
        except InvalidRequest:
            self._journal.refused(len(prompt))
            raise

    def _read(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        seed: int,
        namespace: bytes,
        options: RequestOptions,
        grammar: TokenGrammar | None,
    ) -> _Coming:
        """What can go wrong with one request alone, before anything is changed for it."""
        try:
            tokens = encode_prompt(prompt, self.tokenizer, self.max_model_len)
            check_request(tokens, params, self._parts.vocab_size)
            ends = end_ids(params, self.tokenizer, self._parts.eos_ids)
            if params.grammar is not None and grammar is None:
                grammar = self.grammars.compile(params.grammar)
            seqs = [next(self._sequence_ids) for _ in range(params.sequences)]
            request = Request(
                seqs[0],
                list(tokens),
                max_tokens=params.max_tokens,
                min_tokens=0 if grammar is not None else params.min_tokens,  # the sampler holds them up, it wins
                stop_ids=ends,
                n=params.sequences,
                children=tuple(seqs[1:]),
                namespace=namespace,
                use_cache=params.prompt_logprobs is None and params.pooling != "mean",  # these look at every token
                scored=params.prompt_logprobs is not None,
                arrival=self._parts.clock(),
                priority=options.priority,
                tenant=options.tenant,
                beams=params.beam_width > 1,
            )
            answers = self._make.answers(seqs, params, ends, tokens)
            states = [
                SequenceState(self._make.sampler(answers[min(place, len(answers) - 1)], seed, grammar), len(tokens))
                for place in range(len(seqs))
            ]
            states[0].prompt_top = params.prompt_logprobs
            states[0].pooler = None if params.pooling is None else PromptPooler(params.pooling, len(tokens))
        except OctavoError:
            raise
        except Exception as error:
            raise RequestFailed(f"the request could not be read: {type(error).__name__}") from error
        return _Coming(request, prompt if isinstance(prompt, str) else None, answers, states)

    def _take_in(self, coming: _Coming, options: RequestOptions) -> int:
        """Refuse it with nothing changed, or let it in. Any other fault leaves the engine in doubt."""
        request, ahead = coming.request, self._scheduler.waiting
        self._waiting_room.screen(request, options.deadline_s)
        self._scheduler.add(request)
        self._prefetcher.watch(request)
        tokens, tenant = tuple(request.tokens), options.tenant.name
        live = LiveRequest(next(self._parts.ids), coming.text, tokens, coming.answers, request.arrival, tenant)
        self._requests.admit(live, request)
        self._held_back.watch(live)
        for seq, state in zip((request.id, *request.children), coming.states, strict=True):
            self._executor.admit(seq, state)
        self._journal.arrived(live, request, ahead)
        if options.deadline_s is not None:
            self._waiting_room.watch(live.id, request.arrival + options.deadline_s)
        return live.id

    def abort(self, request_id: int) -> bool:
        """End a request now; its blocks are free at once. False when it is unknown or has ended."""
        live = self._requests.by_id.get(request_id)
        if live is None:
            return False
        self._pending.extend(self._requests.break_off(live, "abort"))
        return True

    def step(self) -> list[Delta]:
        """One iteration: schedule, encode, run, apply. What it made showable, in row order."""
        deltas, self._pending = self._pending, []
        self.pins.expire()
        self._prefetcher.poll()
        now = self._parts.clock()
        deltas.extend(self._give_up_overdue(now))
        if self._scheduler.wait_s(now) > 0:
            return self._held_back.pass_on(deltas)
        self.planned = self._scheduler.schedule(now)
        step, outcome = self._run(self.planned)
        for seq, error in outcome.failed.items():
            deltas.extend(self._requests.fail(seq, error))
        ended = {finished.seq: finished for finished in self._scheduler.apply(step, outcome.tokens)}
        for row in step.rows:
            seq = row.seq
            if seq in outcome.tokens:
                deltas.append(self._requests.land(seq, outcome.tokens[seq], outcome.expected.get(seq), ended.get(seq)))
            elif seq in ended:
                deltas.append(self._requests.land_empty(ended[seq]))
        for seq, expansion in outcome.expanded.items():
            deltas.extend(self._requests.land_beam(seq, expansion))
        self._kv.end_step()
        self._waiting_room.saw(step, self._parts.clock() - now, self._mover.tiers)
        self._prefetcher.watch_again([seq for seq in step.preempted if seq in self._requests])
        self._pool_size.settle()
        self._check()
        return self._held_back.pass_on(deltas)

    def resize(self, num_blocks: int) -> None:
        """Let the pool have `num_blocks` blocks from now on, while requests run.

        It takes memory as its new blocks are used, and gives it back, in `step`, once nobody holds a block beyond its
        end. Raises InvalidRequest for more than there is address space for or fewer than a live request may need, and
        NotEnoughMemory; nothing has changed then.
        """
        self._pool_size.change(num_blocks)
        self._journal.log.note("resized", None, num_blocks)

    def wait_s(self) -> float:
        """Seconds in which `step` has nothing to do: all requests wait for company, or for their quota."""
        now = self._parts.clock()
        return 0.0 if self._pending else min(self._scheduler.wait_s(now), self._waiting_room.until_deadline_s(now))

    def predicted_wait_s(self) -> float:
        """Seconds, as measured lately, until a request of one token that came now would begin."""
        return self._waiting_room.predict(Request(-1, [0], arrival=self._parts.clock()))

    @property
    def queued(self) -> Portions:
        """Tokens of the prompts that wait, and of what was made before a preemption."""
        return self._scheduler.queued

    def wipe(self, namespace: bytes) -> int:
        """Nothing that was computed in `namespace` is reused from now on, and what tiers hold of it is overwritten:
        how many blocks that were. TierError: the disk refused, and may still hold some."""
        forgotten = self._kv.forget(namespace)
        return forgotten + (0 if self._mover.tiers is None else self._mover.tiers.wipe(namespace))

    def close(self) -> None:
        """End every request, whose outputs are lost; keep the prefix cache in the disk tier, if there is one."""
        for request in tuple(self._requests.by_id):
            self.abort(request)
        self._pending.clear()
        self._executor.close()
        if self._mover.tiers is not None:
            self._mover.save(self._kv.matchable())
            self._mover.tiers.close()

    def abandon(self) -> None:
        """Let go of threads and files, after a fault that left the rest in doubt: nothing is ended, told or saved."""
        try:
            self._executor.close()
        finally:
            if self._mover.tiers is not None:
                self._mover.tiers.close()

    @property
    def live(self) -> Mapping[int, LiveRequest]:
        """The requests that have not ended, by id; to read."""
        return self._requests.by_id

    @property
    def num_blocks(self) -> int:
        """Blocks that the pool has, as `resize` left it."""
        return self._kv.num_blocks

    def take_fault(self) -> Exception | None:
        """The fault of a step that ended its requests, once; for whoever keeps such things."""
        fault, self._fault = self._fault, None
        return fault

    def events(self) -> tuple[Event, ...]:
        """What happened lately, the oldest first: some thousand events, without any text."""
        return self._journal.log.events()

    def explain(self, request_id: int, *, operator: bool = True) -> Explanation | None:
        """Which blocks a request holds and with whom, why it waited, why it was preempted. None for one that is unknown
        or ended long ago. operator: for one who may know what is cached in other namespaces."""
        return self._journal.explain(request_id, operator=operator)

    def stats(self) -> EngineStats:
        """Counters and gauges now. Takes time in proportion to the pool."""
        self.pins.expire()
        sources = Sources(
            self._kv.stats(), self._scheduler.stats(), self._mover, self._journal, self._waiting_room.pace
        )
        return engine_stats(sources, self._parts.block_bytes, self._requests.generated_tokens, self.predicted_wait_s())

    def picture(self) -> Picture:
        """What every block is used for and how far every request is, for people to look at. Takes time in proportion
        to the pool."""
        return self._view.take(self.stats)

    def _give_up_overdue(self, now: float) -> list[Delta]:
        """End the requests whose deadline has passed and of which nothing was computed."""
        deltas = []
        for request_id in self._waiting_room.overdue(now):
            live = self._requests.by_id[request_id]
            live.error = self._waiting_room.too_late(now - live.arrived, self.predicted_wait_s())
            deltas.extend(self._requests.break_off(live, "error"))
        return deltas

    def _run(self, step: Step) -> tuple[Step, Outcome]:
        """The step that ran: without the rows of sequences that a tier failed. And what it yielded."""
        try:
            lost = self._mover.run(step.ops)
        except Exception as error:
            fetched = [op.block for op in step.ops if isinstance(op, Fetch)]
            self._note_moved(step, fetched)
            step = self._recall(fetched, spare={row.seq for row in step.rows})
            return step, self._fail(step, error)
        self._note_moved(step, lost)
        if lost:
            step = self._recall(lost, spare=set())
        return step, self._run_rows(step)

    def _note_moved(self, step: Step, lost: Sequence[int]) -> None:
        self._journal.moved(step.ops, len(lost))
        if self._parts.canary is not None:
            self._parts.canary.moved(step.ops, lost)

    def _recall(self, lost: Sequence[int], spare: set[int]) -> Step:
        """Blocks did not get their content: nobody finds them any more, and whoever has one starts over, but for
        `spare`. The step that is left."""
        holders = {seq for block in lost for seq in self._kv.lost(block)}
        return self._scheduler.recall(sorted(holders - spare))

    def _run_rows(self, step: Step) -> Outcome:
        rows = [row.seq for row in step.rows]
        try:
            if not rows:
                self._parts.encoder.forget(step)
                return Outcome()
            batch = self._parts.encoder.encode(step, self._executor.wanted(rows))
            if self._parts.canary is not None:
                self._parts.canary.check(step.rows, batch.inputs, self._scheduler.request)
            return self._executor.run(batch)
        except Exception as error:
            return self._fail(step, error)

    def _fail(self, step: Step, error: Exception) -> Outcome:
        """A fault of the whole step is the fault of its requests, not of the engine."""
        rows = [row.seq for row in step.rows]
        log.error("step %d failed; its %d requests end with an error", step.id, len(rows), exc_info=error)
        self._fault = error
        cause = error if isinstance(error, OctavoError) else RequestFailed(f"the step failed: {error}")
        return Outcome(failed=dict.fromkeys(rows, cause))

    def _check(self) -> None:
        idle = not self._requests.by_id
        if self._parts.check >= 2 or (self._parts.check >= 1 and idle):
            self._kv.check()
            self._scheduler.check()
        held = self._kv.num_blocks - self._kv.num_free - len(self._kv.pins) if self._parts.check and idle else 0
        if held:
            raise KVError(f"idle, yet {held} blocks are held: please report this")

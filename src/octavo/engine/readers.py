"""Which stream each live request's deltas go to, and what it gives back at its end. Knows no engine and no thread.

Everything here belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.engine.outputs import Delta, RequestOutput
from octavo.engine.places import Claim, Places
from octavo.engine.streams import Stream
from octavo.engine.submission import Submission
from octavo.errors import OctavoError


@dataclass(slots=True)
class _Live:
    """A request that runs. stream: None once nobody reads it. claim: the places that it takes. open: choices without
    their last delta."""

    stream: Stream | None
    place: int
    claim: Claim
    open: set[int]
    account: Callable[[RequestOutput], None] | None


class Readers:
    """The streams of the requests that live, by request. observe: called with the deltas of every step, also of
    requests that nobody reads any more. places: get back what requests took.
    """

    def __init__(self, places: Places, observe: Callable[[Sequence[Delta]], None] | None = None) -> None:
        self._places = places
        self.observe = observe
        self._live: dict[int, _Live] = {}

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    def add(self, stream: Stream, requests: Sequence[tuple[int, Submission]]) -> None:
        """Requests that were submitted together have these ids; their places are taken already."""
        for place, (id, submission) in enumerate(requests):
            params = submission.params
            claim = submission.options.tenant, params.sequences
            self._live[id] = _Live(stream, place, claim, set(range(params.n)), submission.account)
        stream.request_ids = tuple(id for id, _ in requests)

    def deliver(self, deltas: Sequence[Delta]) -> None:
        """Hand out what a step made, in one go, so that the event loop wakes once for all streams."""
        known, touched = [], []
        for delta in deltas:
            live = self._live.get(delta.request_id)
            if live is None:  # of several prompts of which a later one was refused: they never were requests
                continue
            known.append(delta)
            if delta.finish_reason is not None:
                live.open.discard(delta.index)
            if delta.output is not None:
                del self._live[delta.request_id]
                self._places.ended(live.claim)
                if live.account is not None:
                    live.account(delta.output)
            if live.stream is not None and live.stream.push(live.place, delta):
                touched.append(live.stream)
        if self.observe is not None:
            self.observe(known)
        for stream in touched:
            stream.deliver()

    def leave(self, stream: Stream) -> list[int]:
        """Nobody reads `stream` any more: its requests, which are to be ended."""
        ids = [id for id, live in self._live.items() if live.stream is stream]
        for id in ids:
            self._live[id].stream = None
        return ids

    def abort(self, error: OctavoError) -> None:
        """End every stream; whoever reads one gets `error`."""
        for stream in {live.stream for live in self._live.values() if live.stream is not None}:
            stream.abort(error)

    def lose(self, error: OctavoError) -> None:
        """No request that lives will have another delta. Each choice that had not ended counts as one with an error."""
        lost, self._live = self._live, {}
        for id, live in lost.items():
            self._places.give_back([live.claim])
            if self.observe is not None:
                self.observe([Delta(id, index, "", (), "error") for index in sorted(live.open)])
        for stream in {live.stream for live in lost.values() if live.stream is not None}:
            stream.abort(error)

"""Requests that sample more answers than they return: what is shown of them, and when. Knows no scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.engine.outputs import Delta, whole_deltas
from octavo.engine.request import LiveRequest


class HeldBack:
    """Which answers are the best is known when all have ended: until then nothing of such a request is handed out."""

    def __init__(self) -> None:
        self._requests: set[int] = set()  # live ones that will choose among their answers

    def watch(self, live: LiveRequest) -> None:
        """A request came."""
        if live.chooses:
            self._requests.add(live.id)

    def pass_on(self, deltas: list[Delta]) -> list[Delta]:
        """Of these, what may be shown: the chosen answers, each as one delta, in place of the last one to end."""
        return [shown for delta in deltas for shown in self._shown(delta)] if self._requests else deltas

    def _shown(self, delta: Delta) -> Iterable[Delta]:
        if delta.request_id not in self._requests:
            return (delta,)
        if delta.output is None:
            return ()
        self._requests.discard(delta.request_id)
        return whole_deltas(delta.output)

"""Finds stop strings in a growing text. Knows neither tokens nor when an answer is long enough to be stopped."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from octavo.text.surrogates import replace_surrogates
from octavo.text.tokenizer import Tokenizer


class StopChecker:
    """Cuts one answer's text at the first stop string, wherever the pieces that it comes in begin and end.

    The match that is complete first wins, of several complete at once the longest: so the pieces do not matter.
    Text is held back only while it is the beginning of a stop string. Text before the least length of an answer is
    not to be pushed, as it must not count towards a match. A step costs a constant time for each stop string and
    character, however long the strings are (Knuth, Morris and Pratt 1977).
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """stops: none of them empty. include: the stop string stays part of the text."""
        self._automata = [_Automaton(stop) for stop in stops]
        self._first_chars = {stop[0] for stop in stops}
        self._include = include
        self._held = ""
        self._hit: str | None = None

    def fork(self) -> StopChecker:
        """Another one that goes on from here."""
        twin = copy.copy(self)
        twin._automata = [copy.copy(automaton) for automaton in self._automata]
        return twin

    @property
    def hit(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._hit

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text; returns the text that is now certain, and the stop string found, if any. After one: ("", it)."""
        if self._hit is not None:
            return "", self._hit
        if not self._held and self._first_chars.isdisjoint(text):
            return text, None
        before = len(self._held)
        self._held += text
        for position, char in enumerate(text, before + 1):
            # Every automaton moves, even after one has matched.
            found = [automaton.stop for automaton in self._automata if automaton.advance(char)]
            if found:
                self._hit = max(found, key=len)
                end = position if self._include else position - len(self._hit)
                emit, self._held = self._held[:end], ""
                return emit, self._hit
        keep = max(automaton.matched for automaton in self._automata)
        emit = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return emit, None

    def flush(self) -> str:
        """The answer ended otherwise: what was held back is text after all."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """How much of the beginning of one stop string the text ends with."""

    __slots__ = ("_fallback", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback = [0]  # [i]: length of the longest proper prefix of stop[:i+1] that is its suffix; grows on use

    def advance(self, char: str) -> bool:
        """Take one character; True if the text now ends with the whole stop string, after which it must not be used."""
        self.matched = self._extended(self.matched, char)
        return self.matched == len(self.stop)

    def _extended(self, matched: int, char: str) -> int:
        while matched and self.stop[matched] != char:
            matched = self._longest_border(matched)
        return matched + 1 if self.stop[matched] == char else 0

    def _longest_border(self, length: int) -> int:
        """Only as much of the table is made as the text has matched: a long stop string costs nothing up front."""
        fallback = self._fallback
        while len(fallback) < length:
            end = len(fallback)
            border = fallback[end - 1]
            while border and self.stop[border] != self.stop[end]:
                border = fallback[border - 1]
            fallback.append(border + 1 if self.stop[border] == self.stop[end] else 0)
        return fallback[length - 1]


def stop_ids(stops: Sequence[str], tokenizer: Tokenizer) -> Mapping[int, str]:
    """Control tokens whose name is one of the stop strings, by id: they end an answer though they show no text."""
    found = {}
    for stop in stops:
        pieces = tokenizer.split_special(replace_surrogates(stop)) if stop else []
        if len(pieces) == 1 and isinstance(pieces[0], int):
            found[pieces[0]] = stop
    return found

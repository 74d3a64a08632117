"""The arithmetic of beam search: which beams go on, which are finished, when to stop. Knows no blocks, no text and no
model: a beam is whatever its caller makes of it.

The rules are those of transformers' `generate(num_beams=width)`, which tests compare with. In each round the likeliest
continuations of all beams are ranked by cumulative log-probability. Those among the first `width` that end an answer
are finished; the first `width` of those that do not go on. A finished one scores its cumulative log-probability over
its length (new tokens) to the power of `length_penalty`, and the best `width` are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from octavo.exec.expander import Expansion
from octavo.exec.logprobs import TokenLogprob

T = TypeVar("T")
EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True)
class BeamRules:
    """width: beams that run, and finished ones that are kept. length_penalty: above 0 favours long answers, below 0
    short ones. max_tokens: new tokens with which every answer ends.

    early_stopping, once `width` are finished: True stops; False stops where the best that runs would, at its length
    now, not beat the worst of them; "never" likewise, at the length that favours it most.
    """

    width: int
    length_penalty: float
    early_stopping: EarlyStopping
    max_tokens: int

    def score(self, total: float, length: int) -> float:
        """What a beam of `length` new tokens and that cumulative log-probability counts."""
        return float(total / length**self.length_penalty)


@dataclass(frozen=True, slots=True)
class Beam(Generic[T]):
    """total: cumulative log-probability in nats."""

    total: float
    content: T


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """A beam that ended, and what it counts."""

    score: float
    content: T


class BeamSearch(Generic[T]):
    """`advance` it with what the running beams' rows yielded until it is `done`.

    grow: a beam's content and a continuation of it -> the content with it, and whether that ends the answer. Called
    once for each continuation that is looked at, the best first.
    """

    def __init__(self, rules: BeamRules, root: T, grow: Callable[[T, TokenLogprob, Expansion], tuple[T, bool]]) -> None:
        self.running: list[Beam[T]] = [Beam(0.0, root)]  # best first
        self.finished: list[Finished[T]] = []  # best first
        self.length = 0  # new tokens of those that run
        self._rules = rules
        self._grow = grow

    @property
    def done(self) -> bool:
        """Whether nothing that could still come would be kept."""
        rules = self._rules
        if not self.running:
            return True
        if len(self.finished) < rules.width:
            return False
        if rules.early_stopping is True:
            return True
        favoured = rules.early_stopping == "never" and rules.length_penalty > 0
        length = rules.max_tokens if favoured else self.length
        return rules.score(self.running[0].total, length) <= self.finished[-1].score

    def advance(self, expansions: Sequence[Expansion]) -> list[int]:
        """One round. expansions: of each running beam, in order. Returns, for each beam that runs now, the place of the
        one that it continues. Fewer than `width` run where too few continuations go on."""
        width = self._rules.width
        ranked = sorted(
            (-(beam.total + each.logprob), place, each.token, each)
            for place, (beam, expansion) in enumerate(zip(self.running, expansions, strict=True))
            for each in expansion.candidates
        )
        self.length += 1
        if self.length == self._rules.max_tokens:
            del ranked[width:]  # no more than these can count: all of them end
        before, self.running, sources = self.running, [], []
        for rank, (cost, place, _, candidate) in enumerate(ranked):
            if len(self.running) == width:
                break
            content, ended = self._grow(before[place].content, candidate, expansions[place])
            if not ended:
                self.running.append(Beam(-cost, content))
                sources.append(place)
            elif rank < width:
                self.finished.append(Finished(self._rules.score(-cost, self.length), content))
        self.finished.sort(key=lambda each: -each.score)  # stable: of equals, the earlier one
        del self.finished[width:]
        return sources

    def best(self, count: int) -> list[T]:
        """The best `count` contents: finished ones, then, where the search is broken off, those that run."""
        return [*(each.content for each in self.finished), *(each.content for each in self.running)][:count]

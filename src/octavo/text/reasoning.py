"""Thinking that a model does before it answers: which tags mark it, and telling it from the answer as it comes.

Knows no protocol and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.text.overlap import overlap
from octavo.text.tokenizer import Tokenizer

Part = Literal["reasoning", "content"]
TAIL = 16  # tokens of a prompt that tell whether it has begun the thinking


@dataclass(frozen=True, slots=True)
class Thinking:
    """opening, closing: the tags around it. begun: the prompt ends with the opening one, so that the answer does not
    begin with it."""

    opening: str
    closing: str
    begun: bool = False


_KNOWN = (Thinking("<think>", "</think>"), Thinking("[THINK]", "[/THINK]"))


def thinking_of(template: str) -> Thinking | None:
    """The tags by which a chat template marks thinking, if it does."""
    return next((each for each in _KNOWN if each.closing in template), None)


def begins_thinking(prompt: Sequence[int], thinking: Thinking, tokenizer: Tokenizer) -> bool:
    """Whether the thinking has begun where the prompt ends."""
    return tokenizer.decode(list(prompt[-TAIL:]), skip_special=False).rstrip().endswith(thinking.opening)


def count_reasoning(tokens: Sequence[int], thinking: Thinking, tokenizer: Tokenizer) -> int:
    """How many of an answer's tokens are thinking, its tags included."""
    spelled = [tokenizer.token_bytes(token) for token in tokens]
    text = b"".join(spelled)
    if not (thinking.begun or text.lstrip().startswith(thinking.opening.encode())):
        return 0
    closing = thinking.closing.encode()
    end = text.find(closing)
    if end < 0:
        return len(tokens)
    left, count = end + len(closing), 0
    while left > 0:
        left, count = left - len(spelled[count]), count + 1
    return count


class ReasoningReader:
    """Tells the thinking of one answer from what it says. Feed it with `push`, then `finish` once.

    Thinking is what comes first, to its closing tag or to the end: tags elsewhere are text. White space around it
    belongs to nobody. An answer without thinking comes out as it went in.
    """

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._state: Literal["start", "inside", "content"] = "start"
        self._held = ""  # what may yet turn out to be the beginning of a tag, or white space at an edge
        self._fresh = False  # nothing but white space since the last tag

    def push(self, text: str) -> Iterator[tuple[Part, str]]:
        """What `text` makes known."""
        self._held += text
        if self._state == "start":
            self._begin(last=False)
        if self._state == "inside":
            yield from self._inside()
        if self._state == "content":
            yield from self._give("content", len(self._held))

    def finish(self) -> Iterator[tuple[Part, str]]:
        """The answer is over. One that ends while it thinks has said nothing."""
        if self._state == "start":
            self._begin(last=True)
        if self._state == "inside":
            yield from self._inside()
            self._held = self._held.rstrip()
        yield from self._give("reasoning" if self._state == "inside" else "content", len(self._held))

    def _begin(self, *, last: bool) -> None:
        opening, seen = self._thinking.opening, self._held.lstrip()
        if seen.startswith(opening):
            self._held, self._state, self._fresh = seen.removeprefix(opening), "inside", True
        elif last or not opening.startswith(seen):
            self._state = "inside" if self._thinking.begun else "content"
            self._fresh = self._thinking.begun

    def _inside(self) -> Iterator[tuple[Part, str]]:
        before, tag, after = self._held.partition(self._thinking.closing)
        if tag:
            self._held = before.rstrip()
            yield from self._give("reasoning", len(self._held))
            self._held, self._state, self._fresh = after, "content", True
        else:
            safe = self._held[: len(self._held) - overlap(self._held, self._thinking.closing)]
            yield from self._give("reasoning", len(safe.rstrip()))

    def _give(self, part: Part, count: int) -> Iterator[tuple[Part, str]]:
        """The first `count` characters that are held, without white space before the first of its part."""
        text, self._held = self._held[:count], self._held[count:]
        if self._fresh:
            text = text.lstrip()
            self._fresh = not text
        if text:
            yield part, text

"""Finds control tokens in text. Knows neither what they mean nor how the text between them is encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Engine


class MarkerFinder:
    """Finds the leftmost longest occurrences of fixed strings, in time linear in the text."""

    def __init__(self, ids: Mapping[str, int], tokens: Sequence[AddedToken]) -> None:
        """`tokens`: what to look for, with the white space that each swallows; `ids`: the id of each by its text."""
        self._ids = ids
        self._engine = Engine(models.BPE())  # an empty vocabulary: it yields the added tokens and nothing else
        self._engine.add_special_tokens(list(tokens))

    def split(self, text: str, seen_as: str | None = None) -> list[str | int]:
        """`text` in order: the id of each marker, and what lies between them, never empty. No lone surrogates.

        seen_as: a text of the same length in which to look for the markers instead.
        """
        pieces: list[str | int] = []
        end = 0
        found = self._engine.encode(text if seen_as is None else seen_as, add_special_tokens=False)
        for name, (start, stop) in zip(found.tokens, found.offsets, strict=True):
            if start > end:
                pieces.append(text[end:start])
            pieces.append(self._ids[name])
            end = stop
        if end < len(text):
            pieces.append(text[end:])
        return pieces

    @property
    def names(self) -> tuple[str, ...]:
        """What is looked for."""
        return tuple(self._ids)

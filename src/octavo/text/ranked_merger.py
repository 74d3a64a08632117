"""Byte-pair merging as SentencePiece does it: by the rank of the token that a merge makes. Knows no file format.

The vocabulary itself is the table of merges: two neighbours merge if together they are a token. So nothing has to be
derived from it at the start, where a list of merges for 262,144 tokens takes seconds to make and to load. Source: Kudo
and Richardson 2018; equal to the merges that transformers derives from the same vocabularies.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tokenizers import AddedToken

from octavo.text.markers import MarkerFinder
from octavo.text.vocabulary import METASPACE

_NEVER = 1 << 62
_LONG = 192  # from about this many characters a heap is faster than looking at all pairs again
_CACHED_WORDS = 1 << 14
_UNKNOWN = "\0\0"  # before a character without a token: no token begins so, hence it never merges


class RankedMerger:
    """Encodes text without control tokens, in which spaces are already spelled U+2581."""

    def __init__(
        self, ids: Mapping[str, int], order: Iterable[str], byte_ids: Mapping[int, int], unk_id: int | None
    ) -> None:
        """ids: text to id, of single characters at least. order: the tokens that merging may make, best first.

        byte_ids: what a character without a token falls back on; where a byte has no token either, it is unk_id.
        """
        self._ids = ids
        self._byte_ids = byte_ids
        self._unk_id = unk_id
        products = [text for text in order if len(text) > 1]
        self._step = max(map(len, products), default=1) + 1
        # Lowest first: rank of the product, then the longer left part; the place in the text decides between equals.
        self._ranks = {text: rank * self._step for rank, text in enumerate(products, 1)}
        self._words = _word_pattern(products)
        # Words repeat, and their merging depends on nothing else. Bounded, and of no influence on the result.
        self._encode_word = lru_cache(_CACHED_WORDS)(self._merge_word)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; of a text with one character n times in a time that grows as n log n."""
        ids: list[int] = []
        for word in self._words.split(text):
            ids.extend(self._encode_word(word) if len(word) < _LONG else self._merge_word(word))
        return ids

    def _merge_word(self, word: str) -> tuple[int, ...]:
        parts = [char if char in self._ids else _UNKNOWN + char for char in word]
        parts = self._merge_few(parts) if len(parts) < _LONG else self._merge_many(parts)
        return tuple(self._to_ids(parts))

    def _rank(self, left: str, right: str) -> int:
        rank = self._ranks.get(left + right)
        return _NEVER if rank is None else rank - len(left)

    def _merge_few(self, parts: list[str]) -> list[str]:
        ranks = [self._rank(left, right) for left, right in itertools.pairwise(parts)]
        while ranks and (best := min(ranks)) < _NEVER:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at:
                ranks[at - 1] = self._rank(parts[at - 1], parts[at])
            if at < len(ranks):
                ranks[at] = self._rank(parts[at], parts[at + 1])
        return parts

    def _merge_many(self, parts: list[str]) -> list[str]:
        """The same with a heap. A part lies where its first character was; "" where there is none any more."""
        end = len(parts)
        before, after = [*range(-1, end - 1)], [*range(1, end + 1)]
        ranks = [self._rank(left, right) for left, right in itertools.pairwise(parts)] + [_NEVER]
        heap = [(rank, at) for at, rank in enumerate(ranks) if rank < _NEVER]
        heapq.heapify(heap)
        while heap:
            rank, at = heapq.heappop(heap)
            if ranks[at] != rank:
                continue  # one of the two has merged with another since
            gone = after[at]
            parts[at] += parts[gone]
            parts[gone], ranks[gone] = "", _NEVER
            after[at] = after[gone]
            if after[at] < end:
                before[after[at]] = at
            for left in (before[at], at):
                if left >= 0:
                    right = after[left]
                    ranks[left] = self._rank(parts[left], parts[right]) if right < end else _NEVER
                    if ranks[left] < _NEVER:
                        heapq.heappush(heap, (ranks[left], left))
        return [part for part in parts if part]

    def _to_ids(self, parts: list[str]) -> list[int]:
        ids: list[int] = []
        unknown_before = False
        for part in parts:
            token = self._ids.get(part)
            if token is not None:
                ids.append(token)
                unknown_before = False
                continue
            spelled = [self._byte_ids.get(byte) for byte in part.removeprefix(_UNKNOWN).encode()]
            if None not in spelled:
                ids.extend(byte for byte in spelled if byte is not None)
            elif self._unk_id is not None and not unknown_before:
                ids.append(self._unk_id)
            unknown_before = None in spelled
        return ids


class SentencePieceEncoder:
    """Merging, with user-defined tokens matched whole wherever they stand, and spaces spelled U+2581."""

    def __init__(self, merger: RankedMerger, user_defined: Mapping[str, int]) -> None:
        """user_defined: text as a user would type it to id."""
        self._merger = merger
        self._finder = MarkerFinder(user_defined, [AddedToken(name, normalized=False) for name in user_defined])
        self._has_user_defined = bool(user_defined)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        if not self._has_user_defined:
            return self._merger.encode(text.replace(" ", METASPACE))
        ids: list[int] = []
        for piece in self._finder.split(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids.extend(self._merger.encode(piece.replace(" ", METASPACE)))
        return ids


def _word_pattern(products: Iterable[str]) -> re.Pattern[str]:
    """Where text can be cut without cutting through a possible token: before spaces, save behind some characters."""
    glued = {
        before
        for text in products
        if METASPACE in text[1:]
        for before, char in itertools.pairwise(text)
        if char == METASPACE
    }
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(glued | {METASPACE})))}])(?={METASPACE})")

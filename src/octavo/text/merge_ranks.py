"""Derives byte-pair merges from a ranked vocabulary, as SentencePiece files leave them out. Knows no file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def merges_by_rank(ids: Mapping[str, int], ranks: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a token, in the order to merge them: by rank of the token that is made.

    ids: text to id; ranks: by id, lowest first. Of several pairs that make one token, the longest left part is first.
    """
    merges = [
        (ranks[token], -cut, token, text[:cut], text[cut:])
        for text, token in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    merges.sort()
    return [(left, right) for _, _, _, left, right in merges]

"""Tokens that are whole characters by themselves, as text. Knows no order of tokens and no vocabulary."""

from __future__ import annotations

from collections.abc import Callable


class WholeTexts(dict[int, str | None]):
    """Of each token its text, None where its bytes are no text by themselves. An entry is made when it is first asked
    for, once and for all, so threads may share the mapping. data_of: a token's bytes; what it raises passes through.
    """

    def __init__(self, data_of: Callable[[int], bytes]) -> None:
        super().__init__()
        self._data_of = data_of

    def __missing__(self, token: int) -> str | None:
        try:
            text: str | None = self._data_of(token).decode()
        except UnicodeDecodeError:
            text = None
        self[token] = text
        return text

"""Log-probabilities in the protocol's two forms: chat's list of entries, completions' parallel lists. Computes none."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from octavo.exec.logprobs import PositionLogprobs
from octavo.text.tokenizer import Tokenizer


class TokenSpelling:
    """Tokens as texts and bytes, one answer's way of showing control tokens considered."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special

    def name(self, token: int) -> str:
        """The token's text; of one that is part of a character only, its bytes: bytes:\\xe2\\x82."""
        if token in self._tokenizer.special_ids:
            return self._tokenizer.token_text(token)
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def shown(self, token: int) -> bytes:
        """What the token adds to the answer's text."""
        return self._tokenizer.visible_bytes(token, skip_special=self._skip_special)


def chat_logprobs(positions: Sequence[PositionLogprobs], spelling: TokenSpelling, *, hide_last: bool) -> dict[str, Any]:
    """Entries with their exact bytes: joined, those of the answer's text. hide_last: the last token ended the answer
    and is no part of its text."""
    entries = []
    for place, position in enumerate(positions):
        hidden = hide_last and place == len(positions) - 1
        entries.append(
            {
                **_entry(position.token, position.logprob, spelling, hidden=hidden),
                "top_logprobs": [_entry(each.token, each.logprob, spelling) for each in position.top],
            }
        )
    return {"content": entries, "refusal": None}


class CompletionLogprobs:
    """Completions' form, for the pieces of one choice in order: `text_offset` counts characters over all of them."""

    def __init__(self, spelling: TokenSpelling, top: int) -> None:
        self._spelling = spelling
        self._top = top
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def piece(self, positions: Iterable[PositionLogprobs | None], tokens: Sequence[int]) -> dict[str, Any]:
        """Of the next `tokens`; None where nothing precedes the token. The chosen token is always among the top, which
        is null when none were asked for."""
        lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for position, token in zip(positions, tokens, strict=True):
            lists["tokens"].append(self._spelling.name(token))
            lists["token_logprobs"].append(None if position is None else position.logprob)
            lists["top_logprobs"].append(None if position is None else self._alternatives(position))
            lists["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(self._spelling.shown(token)))
        return {**lists, "top_logprobs": lists["top_logprobs"] if self._top else None}

    def _alternatives(self, position: PositionLogprobs) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in position.top[: self._top]:
            found.setdefault(self._spelling.name(each.token), each.logprob)
        found.setdefault(self._spelling.name(position.token), position.logprob)
        return found


def prompt_logprobs(
    positions: Sequence[PositionLogprobs | None], top: int, spelling: TokenSpelling
) -> list[dict[str, dict[str, Any]] | None]:
    """One entry a prompt token, by token id: the prompt's own token first, then the `top` likeliest."""
    return [
        None
        if position is None
        else {
            str(token): {"logprob": logprob, "decoded_token": spelling.name(token)}
            for token, logprob in (
                (position.token, position.logprob),
                *((each.token, each.logprob) for each in position.top[:top]),
            )
        }
        for position in positions
    ]


def _entry(token: int, logprob: float, spelling: TokenSpelling, *, hidden: bool = False) -> dict[str, Any]:
    return {
        "token": spelling.name(token),
        "logprob": logprob,
        "bytes": [] if hidden else list(spelling.shown(token)),
    }

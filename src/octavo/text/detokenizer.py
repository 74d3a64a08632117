"""Token ids to text as they come, never a broken character. Knows one sequence and no stop rules."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Iterable

from octavo.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns the tokens of one answer into text.

    What all calls return, joined, is `decode(prompt + answer)` without `decode(prompt)`: spaces at the seam are the
    model's, a character that prompt and answer share appears once it is whole, and the bytes of a character that the
    answer leaves unfinished are dropped.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, prompt_tail: Iterable[int] = ()) -> None:
        """prompt_tail: the prompt's last tokens. A few do, as long as they are all of it or have text among them."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._whole = tokenizer.whole_texts(skip_special=skip_special)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.strips_space
        self._between = not self._at_start  # between two characters, where a token's text does not depend on others
        for token in prompt_tail:
            self.push(token)

    def fork(self) -> Detokenizer:
        """Another one that goes on from here."""
        twin = copy.copy(self)
        twin._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        twin._decoder.setstate(self._decoder.getstate())
        return twin

    def push(self, token: int) -> str:
        """The text that this token completes; often its own, sometimes "" or that of the tokens before it as well."""
        if self._between and (text := self._whole[token]) is not None:
            return text
        data = self._tokenizer.visible_bytes(token, skip_special=self._skip_special)
        if self._at_start and data:
            self._at_start = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        self._between = not self._at_start and not self._decoder.getstate()[0]
        return text

    def finish(self) -> str:
        """End the answer: nothing is held back but bytes of an unfinished character, and these are dropped."""
        self._decoder.reset()
        self._between = not self._at_start
        return ""

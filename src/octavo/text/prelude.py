"""Free text before the part of an answer that a grammar holds: which tokens may follow until its end is reached.

The grammar begins between two tokens. White space after the end counts as part of it; a token that would write the end
and more than white space after it is not allowed, since the more would be held to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.text.tokenizer import Tokenizer


class Prelude:
    """Any text up to `end`. Immutable; each answer goes through it with a `PreludeWalk` of its own.

    vocab_size: ids that can be sampled. ends: tokens that end an answer, which it may not do within.
    """

    def __init__(self, end: str, tokenizer: Tokenizer, vocab_size: int, ends: Sequence[int]) -> None:
        self.end = end.encode("utf-8", "replace")
        self._tokenizer = tokenizer
        self.ends = frozenset(ends)
        self.free = np.zeros(vocab_size, np.float32)
        self.free[[token for token in ends if token < vocab_size]] = -np.inf
        # Tokens after which the end may be complete, with what they write.
        self.closing = {
            token: spelled for token in range(vocab_size) if self.end[-1:] in (spelled := tokenizer.token_bytes(token))
        }

    def spelled(self, token: int) -> bytes:
        """What a token writes."""
        return self._tokenizer.token_bytes(token)


class PreludeWalk:
    """One answer's place in a prelude: how much of the end it has just written."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude
        self._tail = b""  # the last bytes, one fewer than the end has

    def ends_with(self, token: int) -> bool:
        """Take one more token; whether it has written the end."""
        text = self._tail + self._prelude.spelled(token)
        self._tail = text[max(0, len(text) - len(self._prelude.end) + 1) :]
        return self._prelude.end in text

    def allows(self, token: int) -> bool:
        """Whether this one may follow."""
        return token not in self._prelude.ends and not self._writes_more(self._prelude.closing.get(token, b""))

    def mask(self) -> NDArray[np.float32]:
        """What to add to logits [vocab_size]: 0 for tokens that may follow, -inf for the others. Not to be changed."""
        wrong = [token for token, spelled in self._prelude.closing.items() if self._writes_more(spelled)]
        if not wrong:
            return self._prelude.free
        mask = self._prelude.free.copy()
        mask[wrong] = -np.inf
        return mask

    def _writes_more(self, spelled: bytes) -> bool:
        _, end, after = (self._tail + spelled).partition(self._prelude.end)
        return bool(end and after.strip())

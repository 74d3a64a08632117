"""Makes any Python text one that has a UTF-8 form. Knows nothing else."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for every lone surrogate; two that make a pair become the character that they stand for."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

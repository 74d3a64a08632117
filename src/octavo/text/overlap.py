"""How much of a tag a text may end with. Knows no tag."""

from __future__ import annotations


def overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`, and are not all of it."""
    longest = min(len(text), len(tag) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(tag[:count])), 0)

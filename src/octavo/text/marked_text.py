"""Text that remembers, character by character, that a user wrote it. Knows nothing of templates or tokens.

A user's characters are swapped one for one for lone surrogates, which no text that came in may contain. Whatever a
template does with such a string (joining, slicing, formatting), its characters stay recognisable in the result, so a
control token that a user typed, whole or in part, cannot be taken for one that the template wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from octavo.text.surrogates import replace_surrogates

_SURROGATE = re.compile("[\ud800-\udfff]")
_FIRST, _COUNT = 0xD800, 0x800
_NOT_IN_CONTROL_TOKENS = "\uffff"


class Marks:
    """The swap: each character that occurs in a control token, white space excepted, has a surrogate of its own."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        alphabet = sorted({char for token in control_tokens for char in token if not char.isspace()})[:_COUNT]
        self._mark = {ord(char): _FIRST + i for i, char in enumerate(alphabet)}
        self._unmark = {surrogate: char for char, surrogate in self._mark.items()}

    def mark(self, value: Any) -> Any:
        """`value`, of dicts, lists, texts and plain values, with every text in it marked; lone surrogates: U+FFFD."""
        if isinstance(value, str):
            return self.marked(replace_surrogates(value))
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(each) for each in value]
        return value

    def marked(self, plain: str) -> MarkedText:
        """One text, every character of it a user's."""
        return MarkedText(plain.translate(self._mark), self, plain)

    def plain(self, value: Any) -> Any:
        """`value` with every mark in it taken off again; plain types only."""
        if isinstance(value, MarkedText):
            return value._plain
        if isinstance(value, str):
            return value if value.isascii() else value.translate(self._unmark)
        if isinstance(value, Mapping):
            return {self.plain(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in value]
        return value

    @staticmethod
    def mask(text: str) -> str:
        """`text`, as long as before, with every marked character replaced by one that is in no control token."""
        return _SURROGATE.sub(_NOT_IN_CONTROL_TOKENS, text)


class MarkedText(str):
    """Characters, some of them marked, that compare, search and split as if none were.

    Python's own functions see the marks, and keep them. Methods that cut keep the marks of each part; methods that
    rewrite (replace, upper, ...) give a text that counts as the user's as a whole.
    """

    __slots__ = ("_marks", "_plain")
    _marks: Marks
    _plain: str

    def __new__(cls, raw: str, marks: Marks, plain: str) -> MarkedText:
        """raw, plain: the same text with and without the marks, of one length."""
        self = super().__new__(cls, raw)
        self._marks = marks
        self._plain = plain
        return self

    def __str__(self) -> str:
        return self

    def __hash__(self) -> int:
        return hash(self._plain)

    def __eq__(self, other: object) -> bool:
        return bool(self._plain == self._marks.plain(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: str) -> bool:
        return self._plain < str(self._marks.plain(other))

    def __le__(self, other: str) -> bool:
        return self._plain <= str(self._marks.plain(other))

    def __gt__(self, other: str) -> bool:
        return self._plain > str(self._marks.plain(other))

    def __ge__(self, other: str) -> bool:
        return self._plain >= str(self._marks.plain(other))

    def __contains__(self, part: str) -> bool:  # type: ignore[override]
        return self._marks.plain(part) in self._plain

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        return MarkedText(str.__getitem__(self, index), self._marks, self._plain[index])

    def __add__(self, other: str) -> str:
        return MarkedText(str.__add__(self, other), self._marks, self._plain + str(self._marks.plain(other)))

    def __radd__(self, other: str) -> str:
        return MarkedText(str.__add__(other, self), self._marks, str(self._marks.plain(other)) + self._plain)

    def __mul__(self, times: SupportsIndex) -> str:
        return MarkedText(str.__mul__(self, times), self._marks, self._plain * times)

    __rmul__ = __mul__

    def __mod__(self, value: Any) -> str:
        raise TypeError("a text from a message is no format")

    def format(self, *args: Any, **named: Any) -> str:
        """Refused: what a user wrote is never a pattern."""
        raise TypeError("a text from a message is no format")

    def format_map(self, mapping: Any) -> str:
        """Refused, as `format`."""
        raise TypeError("a text from a message is no format")

    def _cut(self, parts: Iterable[str], skip: int = 0) -> list[str]:
        """The stretches of this text that `parts`, in the order of the text and `skip` apart, are the plain form of."""
        found, position = [], 0
        for part in parts:
            start = self._plain.index(part, position)
            found.append(self[start : start + len(part)])
            position = start + len(part) + skip
        return found


def _asks(name: str) -> Callable[..., Any]:
    def method(self: MarkedText, *args: Any, **named: Any) -> Any:
        return getattr(self._plain, name)(*map(_bare(self), args), **named)

    return method


def _cuts(name: str) -> Callable[..., Any]:
    def method(self: MarkedText, *args: Any, **named: Any) -> Any:
        arguments = [*map(_bare(self), args)]
        result = getattr(self._plain, name)(*arguments, **named)
        if isinstance(result, str):
            return self._cut([result])[0]
        separator = arguments[0] if arguments and name in ("split", "rsplit") else named.get("sep")
        return type(result)(self._cut(result, skip=len(separator or "")))

    return method


def _rewrites(name: str) -> Callable[..., Any]:
    def method(self: MarkedText, *args: Any, **named: Any) -> Any:
        return self._marks.marked(getattr(self._plain, name)(*map(_bare(self), args), **named))

    return method


def _bare(text: MarkedText) -> Callable[[Any], Any]:
    """Arguments without marks; a tuple (of prefixes) stays one."""
    plain = text._marks.plain
    return lambda value: tuple(plain(value)) if isinstance(value, tuple) else plain(value)


_ASKING = "startswith endswith find rfind index rindex count encode isalnum isalpha isascii isdecimal isdigit islower"
_ASKING += " isnumeric isspace istitle isupper isidentifier isprintable"
_CUTTING = "split rsplit splitlines partition rpartition strip lstrip rstrip removeprefix removesuffix"
_REWRITING = "replace upper lower title capitalize casefold swapcase translate join zfill"
_REWRITING += " ljust rjust center expandtabs"
for _names, _make in ((_ASKING, _asks), (_CUTTING, _cuts), (_REWRITING, _rewrites)):
    for _name in _names.split():
        _method = _make(_name)
        _method.__name__ = _name
        setattr(MarkedText, _name, _method)

"""What an answer must look like, as a value: a JSON schema, a regular expression, a grammar. Compiles nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from octavo.errors import InvalidRequest

MAX_SOURCE = 1 << 20  # characters


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that the whole answer must be a sentence of; make one with the class methods.

    source: the JSON schema as JSON, the regular expression (Rust's syntax, over the whole answer), or the grammar in
    the syntax of Lark or of GBNF. after: any text that ends with this one comes first, and the sentence follows that.
    Raises InvalidRequest for a source that is empty or of more than a million
    characters; whether it makes sense is checked when it is compiled.
    """

    kind: Literal["json_schema", "regex", "lark"]
    source: str
    after: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "regex", "lark"):
            raise InvalidRequest(f"grammar is of kind json_schema, regex or lark, not {self.kind!r}", param="grammar")
        if not isinstance(self.source, str) or not 0 < len(self.source) <= MAX_SOURCE:
            raise InvalidRequest(
                f"the source of a grammar must be text of 1 to {MAX_SOURCE} characters", param="grammar"
            )

    def following(self, text: str) -> Grammar:
        """The same, once the answer has come to this text: whatever it says before that is free."""
        return replace(self, after=text)

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> Grammar:
        """JSON of this schema (a dict, or its JSON text), written as `json.dumps` does: one space after , and :."""
        if isinstance(schema, str):
            return cls("json_schema", schema)
        try:
            source = json.dumps(schema, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"the JSON schema is no JSON: {error}", param="grammar") from error
        return cls("json_schema", source)

    @classmethod
    def json_object(cls) -> Grammar:
        """Any JSON object."""
        return cls("json_schema", '{"type": "object"}')

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Text that the whole pattern matches."""
        return cls("regex", pattern)

    @classmethod
    def choice(cls, texts: Sequence[str]) -> Grammar:
        """One of these texts."""
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise InvalidRequest("a choice needs a list of texts that are not empty", param="grammar")
        return cls("regex", "|".join(map(re.escape, texts)))

    @classmethod
    def lark(cls, source: str) -> Grammar:
        """A sentence of this grammar, whose first rule is `start` (in GBNF `root`)."""
        return cls("lark", source)

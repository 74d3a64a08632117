"""Grammars as people type them: `json`, `regex:PATTERN`, `schema:FILE`, `lark:FILE`. Compiles none."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import InvalidRequest
from octavo.grammar import Grammar

FORMS = "json, regex:PATTERN, schema:FILE or lark:FILE"


def parse_grammar(text: str) -> Grammar:
    """The grammar that `text` names. Raises InvalidRequest, also for a file that cannot be read."""
    kind, _, source = text.partition(":")
    if text == "json":
        return Grammar.json_object()
    if kind == "regex":
        return Grammar.regex(source)
    if kind in ("schema", "lark"):
        try:
            read = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"the grammar {source} cannot be read: {error}", param="grammar") from error
        return Grammar.json_schema(read) if kind == "schema" else Grammar.lark(read)
    raise InvalidRequest(f"grammar must be {FORMS}, not {text[:60]!r}", param="grammar")

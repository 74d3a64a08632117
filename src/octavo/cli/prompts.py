"""Prompts from arguments, standard input and JSON lines, each with its own settings. Runs nothing."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from octavo.cli.flags import NOT_TYPED
from octavo.cli.grammars import parse_grammar
from octavo.errors import InvalidRequest
from octavo.grammar import Grammar
from octavo.params import SamplingParams


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One prompt, text or token ids, and how to answer it. place: where it came from, for messages."""

    prompt: str | list[int]
    params: SamplingParams
    place: str


def from_arguments(prompts: list[str], settings: Mapping[str, Any]) -> Iterator[PromptLine]:
    """The prompts of a command line; "-" is all of standard input. settings: of every one of them."""
    for place, text in enumerate(prompts):
        prompt = _read_stdin() if text == "-" else text
        yield PromptLine(prompt, SamplingParams(**settings), f"prompt {place}")


def from_file(path: str, settings: Mapping[str, Any]) -> Iterator[PromptLine]:
    """The prompts of a file of JSON lines, "-" being standard input; empty lines are skipped.

    A line is an object with "prompt", a text or a list of token ids, and any fields of SamplingParams, which go over
    `settings`. Raises InvalidRequest that names file and line.
    """
    try:
        text = _read_stdin() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}", param="file") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text (at byte {error.start})", param="file") from error
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: JSON strings may hold U+2028
        if line.strip():
            place = f"{'standard input' if path == '-' else path}:{number}"
            try:
                yield _parse(line, settings, place)
            except InvalidRequest as error:
                raise InvalidRequest(f"{place}: {error}", param=error.param, code=error.code) from error


def _parse(line: str, settings: Mapping[str, Any], place: str) -> PromptLine:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"not JSON ({error})", param="file") from None
    if not isinstance(entry, dict) or "prompt" not in entry:
        raise InvalidRequest('must be an object with "prompt"', param="file")
    prompt = entry.pop("prompt")
    ids = isinstance(prompt, list) and all(isinstance(token, int) and not isinstance(token, bool) for token in prompt)
    if not isinstance(prompt, str) and not ids:
        raise InvalidRequest('"prompt" must be a text or a list of token ids', param="prompt")
    return PromptLine(prompt, SamplingParams(**{**settings, **_own_settings(entry)}), place)


def _own_settings(entry: dict[str, Any]) -> dict[str, Any]:
    """A line's sampling settings as SamplingParams takes them: JSON has no tuples and no whole-number keys."""
    names = [setting.name for setting in fields(SamplingParams) if setting.name not in NOT_TYPED]
    for name, value in entry.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(names)}"
            raise InvalidRequest(f"there is no setting {name!r}; {hint}", param=name)
        if name == "logit_bias" and isinstance(value, dict):
            try:
                entry[name] = {int(token): bias for token, bias in value.items()}
            except ValueError:
                raise InvalidRequest("the keys of logit_bias must be token ids", param=name) from None
        elif name == "grammar" and value is not None:
            entry[name] = parse_grammar(value) if isinstance(value, str) else Grammar.json_schema(value)
        elif isinstance(value, list):
            entry[name] = tuple(value)
        elif name in ("stop", "bad_words") and isinstance(value, str):
            entry[name] = (value,)
    return entry


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8") if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"standard input is not UTF-8 text (at byte {error.start})", param="prompt") from error

"""The server's log: one JSON object a line, whatever is said."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from octavo.server.logs import PLAIN, JsonLines


def record(name: str, message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, logging.ERROR, __file__, 1, message, arguments, info)


@pytest.mark.parametrize("message", ["plain", "two\nlines", '"quoted" \x00\x1b[31m', "é\ud800"])
def test_a_line_is_an_object(message: str) -> None:
    line = JsonLines().format(record("octavo.x", "%s", message))
    assert "\n" not in line
    assert line.isascii()
    entry = json.loads(line)
    assert set(entry) == {"time", "level", "logger", "message"}
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "octavo.x", message)


def test_an_exception_has_its_traceback() -> None:
    try:
        1 // 0  # noqa: B018
    except ZeroDivisionError:
        error = sys.exception()
    line = JsonLines().format(record("octavo.x", "it failed", error=error))
    assert "\n" not in line
    assert json.loads(line)["traceback"].endswith("ZeroDivisionError: integer division or modulo by zero")


def test_lines_about_requests_are_as_they_are() -> None:
    assert JsonLines().format(record(PLAIN, '{"status": 200}')) == '{"status": 200}'

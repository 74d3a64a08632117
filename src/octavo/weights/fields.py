"""Typed reads of a model's settings, GGUF metadata and JSON alike. Knows no key by name."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from octavo.errors import ModelFormatError, ModelNotFound

MAX_JSON_BYTES = 4 << 20
_LIMIT = 2**31 - 1
_log = logging.getLogger(__name__)


class _Required:
    """Type of the default that says: the key must be there."""


REQUIRED: Final = _Required()


class Fields:
    """A mapping of settings whose readers check type and range; a failure names the key and the file.

    A key whose value is None counts as missing (JSON null). `prefix` is put before every key.
    """

    def __init__(self, values: Mapping[str, object], where: str, prefix: str = "") -> None:
        self._values = values
        self._where = where
        self._prefix = prefix

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> object:
        """The raw value, None where missing."""
        return self._values.get(self._prefix + key)

    def integer(self, key: str, default: int | _Required = REQUIRED, *, low: int = 1, high: int = _LIMIT) -> int:
        """An int in [low, high]."""
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        if not low <= value <= high:
            raise self._wrong(key, value, f"in {low} to {high}")
        return value

    def number(self, key: str, default: float | _Required = REQUIRED, *, positive: bool = True) -> float:
        """A finite float, above 0 unless `positive` is False."""
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e30 or math.isnan(value):
            raise self._wrong(key, value, "a finite number")
        if positive and value <= 0:
            raise self._wrong(key, value, "above 0")
        return float(value)

    def text(self, key: str, default: str | _Required = REQUIRED) -> str:
        """A string."""
        value = self._present(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """A boolean."""
        value = self._present(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def optional_number(self, key: str) -> float | None:
        """A finite float above 0, or None where the key is missing."""
        return self.number(key) if key in self else None

    def optional_integer(self, key: str) -> int | None:
        """An int of at least 1, or None where the key is missing."""
        return self.integer(key) if key in self else None

    def child(self, key: str) -> Fields:
        """The object under `key`; empty where it is missing."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return Fields(value, f"{self._where}: {key}")

    def having(self, key: str, value: object) -> Fields:
        """The same with `key` set."""
        return Fields({**self._values, self._prefix + key: value}, self._where, self._prefix)

    def assumed(self, key: str, value: float) -> float:
        """The number under `key`, else `value`, which is then told in the log because it is a guess."""
        if key not in self:
            _log.warning("%s: %s%s is missing, %s is assumed", self._where, self._prefix, key, value)
        return self.number(key, value)

    def fail(self, what: str) -> ModelFormatError:
        """An error about several fields at once, to be raised."""
        return ModelFormatError(f"{self._where}: {what}")

    def _present(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is not None:
            return value
        if isinstance(default, _Required):
            raise ModelFormatError(f"{self._where}: {self._prefix}{key} is missing")
        return default

    def _wrong(self, key: str, value: object, wanted: str) -> ModelFormatError:
        shown = type(value).__name__ if hasattr(value, "__len__") and not isinstance(value, str) else repr(value)[:80]
        return ModelFormatError(f"{self._where}: {self._prefix}{key} is {shown}, not {wanted}")


def parse_json(raw: bytes, where: str, *, offset: int | None = None) -> dict[str, Any]:
    """A JSON object without repeated keys from at most 4 MiB of UTF-8; ModelFormatError otherwise."""
    if len(raw) > MAX_JSON_BYTES:
        raise ModelFormatError(f"{where}: {len(raw)} bytes of JSON, the limit is {MAX_JSON_BYTES}", offset=offset)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a key appears twice in one object")
        return table

    try:
        value = json.loads(raw, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "not JSON"
        raise ModelFormatError(f"{where}: not valid JSON: {reason}", offset=offset) from None
    if not isinstance(value, dict):
        raise ModelFormatError(f"{where}: JSON {type(value).__name__} where an object is expected", offset=offset)
    return value


def load_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises ModelNotFound or ModelFormatError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_json(raw, path.name)

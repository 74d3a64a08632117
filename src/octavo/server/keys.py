"""API keys -> who asks, and how they are treated. Holds hashes only; knows no endpoint."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from octavo.errors import InvalidRequest
from octavo.options import MAX_PRIORITY, RequestOptions, Tenant
from octavo.server.errors import ApiError, Failure
from octavo.server.rates import MAX_RATE, KeyLimits, Rate

_KEY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([0-9a-f]{64})")
_SETTING = re.compile(r"([a-z_]+)=(\S+)")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key it was. best_priority: the smallest number that requests with this key may ask for. limits: what it may
    ask in a minute."""

    tenant: Tenant = field(default_factory=Tenant)
    best_priority: int = -MAX_PRIORITY
    limits: KeyLimits = field(default_factory=KeyLimits)


class ApiKeys:
    """Who may ask. Without a file everybody may, as one tenant without a name."""

    def __init__(self, callers: dict[bytes, Caller] | None = None) -> None:
        """callers: by the SHA-256 of their key; None lets everybody in."""
        self._callers = callers

    @classmethod
    def read(cls, given: str) -> ApiKeys:
        """The path of a file, or its lines themselves, with ; or line ends between, as an environment can hold them."""
        if _KEY.match(given.lstrip()):
            return cls._from_lines(given.replace(";", "\n").splitlines(), "the setting")
        return cls.from_file(given)

    @classmethod
    def from_file(cls, path: str) -> ApiKeys:
        """A line for each key: `tenant:sha256`, and after it, if any, settings `name=value` with a space between.

        priority: the smallest number that the key may ask for. rpm, tpm: requests and tokens a minute of the key;
        rpm_burst, tpm_burst: of these at most at once, a minute's unless given. weight, kv_blocks, tokens_a_minute,
        quota (hard or soft): see `octavo.options.Tenant`; they are the tenant's, so all lines of one say the same or
        nothing. Empty lines and those that begin with # do not count. Raises InvalidRequest that names the line, never
        its content.
        """
        try:
            lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidRequest(f"api_keys: {path} cannot be read: {reason}", param="api_keys") from error
        return cls._from_lines(lines, path)

    @classmethod
    def _from_lines(cls, lines: list[str], path: str) -> ApiKeys:
        callers: dict[bytes, Caller] = {}
        tenants: dict[str, Tenant] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"api_keys: line {number} of {path}"
            digest, caller, says_more = _read(line.split(), where)
            name = caller.tenant.name
            if says_more and tenants.setdefault(name, caller.tenant) != caller.tenant:
                raise InvalidRequest(f"{where} treats its tenant in another way than a line before", param="api_keys")
            callers[digest] = caller
        if not callers:
            raise InvalidRequest(f"api_keys: {path} has no keys; nobody could ask", param="api_keys")
        return cls(
            {key: replace(each, tenant=tenants.get(each.tenant.name, each.tenant)) for key, each in callers.items()}
        )

    @property
    def needed(self) -> bool:
        """Whether only those with a key are let in."""
        return self._callers is not None

    def caller(self, authorization: str | None) -> Caller:
        """Whose key the header carries. ApiError 401 for none and for an unknown one, in the same time for all."""
        if self._callers is None:
            return Caller()
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _refusal("an API key is needed: send it as 'Authorization: Bearer KEY'")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).digest()
        found = None
        for known, caller in self._callers.items():
            if hmac.compare_digest(known, given):
                found = caller
        if found is None:
            raise _refusal("the API key is not valid here")
        return found


def _read(words: list[str], where: str) -> tuple[bytes, Caller, bool]:
    """A line's key, whose it is, and whether it says how the tenant is treated."""
    key = _KEY.fullmatch(words[0])
    if key is None:
        raise InvalidRequest(f"{where} is not tenant:sha256 (64 hexadecimal digits, lower case)", param="api_keys")
    settings: dict[str, Any] = {}
    best = -MAX_PRIORITY
    for word in words[1:]:
        setting = _SETTING.fullmatch(word)
        name, text = ("", "") if setting is None else setting.groups()
        if setting is None or name not in _SETTINGS or name in settings:
            raise InvalidRequest(f"{where}: each setting is one of {', '.join(_SETTINGS)}, once", param="api_keys")
        try:
            settings[name] = _SETTINGS[name](text)
        except ValueError:
            raise InvalidRequest(f"{where}: {name} is not {_RULES[name]}", param="api_keys") from None
    try:
        best = RequestOptions(settings.pop("priority", best)).priority
        limits = KeyLimits(_rate("rpm", settings), _rate("tpm", settings))
        hard = settings.pop("quota", False)
        says_more = bool(settings) or hard
        return bytes.fromhex(key[2]), Caller(Tenant(key[1], hard=hard, **settings), best, limits), says_more
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}", param="api_keys") from None


def _rate(name: str, settings: dict[str, Any]) -> Rate | None:
    """Takes it out of the settings; None where they do not name one."""
    per_minute, burst = settings.pop(name, None), settings.pop(f"{name}_burst", None)
    if per_minute is None and burst is None:
        return None
    if per_minute is None:
        raise InvalidRequest(f"{name}_burst goes with {name}", param=name)
    burst = per_minute if burst is None else burst
    if not all(1 <= each <= MAX_RATE for each in (per_minute, burst)):
        raise InvalidRequest(f"{name} and {name}_burst must be from 1 to {MAX_RATE}", param=name)
    return Rate(per_minute, burst)


def _quota(text: str) -> bool:
    return ("soft", "hard").index(text) == 1


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "priority": int,
    "weight": float,
    "kv_blocks": int,
    "tokens_a_minute": int,
    "quota": _quota,
    "rpm": int,
    "rpm_burst": int,
    "tpm": int,
    "tpm_burst": int,
}
_RULES = {
    "priority": "a whole number",
    "weight": "a number",
    "kv_blocks": "a whole number",
    "tokens_a_minute": "a whole number",
    "quota": "hard or soft",
    **dict.fromkeys(("rpm", "rpm_burst", "tpm", "tpm_burst"), "a whole number"),
}


def _refusal(message: str) -> ApiError:
    headers = {"www-authenticate": "Bearer"}
    return ApiError(Failure(401, message, "authentication_error", code="invalid_api_key", headers=headers))

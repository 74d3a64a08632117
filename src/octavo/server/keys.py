"""API keys -> tenants. Holds hashes only; knows no endpoint."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from octavo.errors import InvalidRequest
from octavo.server.errors import ApiError, Failure

_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([0-9a-f]{64})")


class ApiKeys:
    """Who may ask. Without a file everybody may, as one tenant without a name."""

    def __init__(self, hashes: dict[bytes, str] | None = None) -> None:
        """hashes: SHA-256 of a key -> the tenant's name; None lets everybody in."""
        self._hashes = hashes

    @classmethod
    def from_file(cls, path: str) -> ApiKeys:
        """One `tenant:sha256` a line; empty lines and those that begin with # do not count. A tenant may have several
        keys. Raises InvalidRequest that names the line, never its content."""
        try:
            lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidRequest(f"api_keys: {path} cannot be read: {reason}", param="api_keys") from error
        hashes = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise InvalidRequest(
                    f"api_keys: line {number} of {path} is not tenant:sha256 (64 hexadecimal digits, lower case)",
                    param="api_keys",
                )
            hashes[bytes.fromhex(match[2])] = match[1]
        if not hashes:
            raise InvalidRequest(f"api_keys: {path} has no keys; nobody could ask", param="api_keys")
        return cls(hashes)

    def tenant(self, authorization: str | None) -> str:
        """Whose key the header carries. ApiError 401 for none and for an unknown one, in the same time for all."""
        if self._hashes is None:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _refusal("an API key is needed: send it as 'Authorization: Bearer KEY'")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).digest()
        found = None
        for known, tenant in self._hashes.items():
            if hmac.compare_digest(known, given):
                found = tenant
        if found is None:
            raise _refusal("the API key is not valid here")
        return found


def _refusal(message: str) -> ApiError:
    headers = {"www-authenticate": "Bearer"}
    return ApiError(Failure(401, message, "authentication_error", code="invalid_api_key", headers=headers))

"""Bytes to JSON objects and back, strictly and within limits. Knows no field of any body."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from octavo.errors import InvalidRequest
from octavo.server.errors import ApiError, Failure, client_gone, invalid
from octavo.text.surrogates import replace_surrogates

_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

MAX_DEPTH = 128


async def read_body(request: Request, most: int) -> bytes:
    """The request's body, at most `most` bytes. ApiError 413 for more, known by its header if it has one; 415 when it
    says that it is something else than JSON, or that it is packed: what it unpacks to could be of any size."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(Failure(415, "the body must be JSON: send content-type: application/json", code="wrong_type"))
    if request.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise ApiError(Failure(415, "the body must come as it is: send no content-encoding", code="wrong_encoding"))
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _too_large(most)
            parts.append(part)
    except ClientDisconnect:
        raise client_gone() from None
    return b"".join(parts)


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. InvalidRequest for anything else; NaN and infinities are not JSON.

    Within MAX_DEPTH, so that whatever handles a part of it later, repeating it or telling of it, can.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8 (at byte {error.start})", code="invalid_json") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # JSON's own errors, and integers of thousands of digits
        raise invalid(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(f"the body must be a JSON object, not {_json_type(value)}", code="invalid_json")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise _too_deep()
    return value


def dump(value: Any) -> bytes:
    """`value` as strict JSON in UTF-8."""
    text = encode_basestring(value) if isinstance(value, str) else _STRICT.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text).encode()


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    named = b"" if name is None else b"event: " + name.encode() + b"\n"
    return named + b"data: " + dump(value) + b"\n\n"


class JsonResponse(Response):
    """A whole JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return dump(content)


def _deeper(value: Any, most: int) -> bool:
    """Whether objects and arrays are within each other to more than that, counting this one."""
    level = [value]
    for _ in range(most):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for container in inner for each in container if isinstance(each, (dict, list))]
    return bool(level)


def _too_deep() -> InvalidRequest:
    return invalid(f"the body is nested more than {MAX_DEPTH} deep", code="invalid_json")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _too_large(most: int) -> ApiError:
    # The connection stays: closed with bytes coming in it is reset, and its client may never read this.
    return ApiError(Failure(413, f"the body has more than {most} bytes", code="body_too_large"))


def _json_type(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")

"""Every failure as OpenAI's error object and the right status. Knows no endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.errors import (
    EngineUnavailable,
    InvalidRequest,
    OctavoError,
    Overloaded,
    ReaderTooSlow,
)

CLIENT_GONE = 499  # nobody reads this answer; it is for the log


class ApiError(OctavoError):
    """A failure that HTTP has a status for and the engine does not know of."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Failure:
    """What a client is told."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The error object of OpenAI's protocol."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def failure_of(error: BaseException) -> Failure:
    """What to tell a client of `error`. Of one that is not octavo's own, nothing: its text may hold anything."""
    message = " ".join(str(error).split())
    match error:
        case ApiError():
            return error.failure
        case InvalidRequest():
            return Failure(400, message, param=error.param, code=error.code)
        case Overloaded():
            return Failure(
                429, message, "rate_limit_error", code=error.code, headers={"retry-after": str(error.retry_after_s)}
            )
        case EngineUnavailable():
            return Failure(503, message, "server_error", code="unavailable", headers={"retry-after": "5"})
        case ReaderTooSlow():
            return Failure(CLIENT_GONE, message, code="reader_too_slow")
        case TimeoutError():
            return Failure(408, "the request took longer than the server allows", "timeout_error", code="timeout")
        case OctavoError():
            return Failure(500, message, "server_error", code="request_failed")
    return Failure(500, "the server failed on this request; its log tells more", "server_error", code="internal_error")


def client_gone() -> ApiError:
    """The client closed its connection before it had its answer."""
    return ApiError(Failure(CLIENT_GONE, "the client closed the connection", code="client_gone"))


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> InvalidRequest:
    """A field of the body that cannot be served."""
    return InvalidRequest(message, param=param, code=code)


def shown(value: object) -> str:
    """A client's value within a message: short, on one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints; what is deeper than it goes
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."

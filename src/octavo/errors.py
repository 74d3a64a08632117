"""The closed set of errors that octavo raises. Knows nothing of who raises them.

Every message says what happened, with the numbers, and what to do about it, in one line: the command
line prints it as it is and exits with 2, a server turns it into an error body.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Base of every error that octavo raises on purpose."""


class InvalidRequest(OctavoError, ValueError):
    """A prompt or a setting that this engine cannot serve. Nothing was started, or what the settings ask for turned out
    on the way to be impossible; to ask again is no use.

    `param` names the offending setting (or None), `code` is a stable machine-readable word
    (`context_length_exceeded`, `pool_too_small`, `invalid_value`, ...).
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ModelNotFound(OctavoError, FileNotFoundError):
    """MODEL names nothing that is here or that can be fetched."""


class ModelFormatError(OctavoError, ValueError):
    """A model file is truncated, corrupt or lies about itself. `offset` is the byte where it was seen, if known."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} (at byte {offset})")
        self.offset = offset


class UnsupportedModel(OctavoError):
    """A sound file of an architecture or with a feature that octavo does not have; the message lists what it has."""


class NotEnoughMemory(OctavoError, MemoryError):
    """The plan does not fit the machine; the message has the arithmetic and the nearest settings that fit."""


class KVError(OctavoError):
    """A verb of `octavo.kv` was misused (unknown sequence, double close, past the reservation): nothing changed."""


class RequestFailed(OctavoError):
    """One request failed while it ran (damaged logits, a fault in its sampler); its neighbours go on."""


class TierError(OctavoError):
    """A tier's directory cannot be used (another engine has it, it is not octavo's, or it is of another model)."""


class Overloaded(OctavoError):
    """There is too much to do; nothing was started. `retry_after_s`: whole seconds after which a place, or an answer in
    time, is likely. `predicted_wait_s`: from now to the first token, had it been taken. `code`: "queue_full", or
    "deadline" when it could not begin in time, or did not."""

    def __init__(
        self, message: str, *, retry_after_s: int, predicted_wait_s: float = 0.0, code: str = "queue_full"
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.predicted_wait_s = predicted_wait_s
        self.code = code


class EngineUnavailable(OctavoError):
    """The engine is loading, stopping, stopped or broken: what was asked of it has not been, or not all, done."""


class ReaderTooSlow(OctavoError):
    """A stream was not read, its buffer was full, and so its requests were ended."""

"""The server's settings: one frozen value, from which the flags of `octavo serve` are made. Opens and reads nothing."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import check_settings, declare
from octavo.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of one server; `octavo serve --help` prints what each means. Raises InvalidRequest.

    Times are whole seconds.
    """

    host: str = declare("127.0.0.1", "address to listen on; 0.0.0.0 is every one of this machine")
    port: int = declare(8000, "port to listen on; 0 picks a free one", least=0, most=65535)
    served_model_name: str | None = declare(None, "name that clients use for the model; by default MODEL")
    api_keys: str | None = declare(
        None, "file of API keys, a line each: tenant:sha256-of-the-key, or such lines, with ; between; else all may ask"
    )
    tls_cert: str | None = declare(None, "file of the certificate (chain), in PEM: serve https; goes with tls_key")
    tls_key: str | None = declare(None, "file of the certificate's private key, in PEM, without a password")
    max_queue: int = declare(256, "answers that wait beyond those that run; more get status 429", least=1, most=2**20)
    max_queued_tokens: int = declare(
        1 << 20, "tokens of prompts that may wait; more get status 429", least=1, most=2**40
    )
    max_body: int = declare(16 << 20, "bytes of a request's body at most", least=1024, most=2**31 - 1)
    stream_buffer: int = declare(
        4096, "pieces of a stream that wait for a slow reader before it is cut off", least=1, most=2**20
    )
    request_timeout: int = declare(600, "seconds that one request may take in all", least=1, most=86400)
    client_timeout: int = declare(
        30,
        "seconds in which a client must send a request's headers; a body has one more every 4 KiB",
        least=1,
        most=3600,
    )
    stall_timeout: int = declare(30, "seconds after which a step counts as hanging (health 503)", least=1, most=86400)
    drain: int = declare(30, "seconds that running requests have to finish after SIGTERM", least=0, most=86400)
    incident_dir: str | None = declare(
        None, "directory where faults of the engine are kept; by default octavo/incidents where the user's state is"
    )
    incident_prompts: bool = declare(False, "keep prompts and answers with them, too")
    access_log: bool = declare(True, "log requests, a JSON line each on standard error")

    def __post_init__(self) -> None:
        check_settings(self)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise InvalidRequest(f"{missing} is missing: https needs a certificate and its key", param=missing)

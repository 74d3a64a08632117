"""The engine's settings: one frozen value, the source of the Python arguments and of the command line's flags.

Each field carries its help text, its range and its choices, so that Python, the command line and the environment
(`OCTAVO_` and the name in capitals) cannot drift apart. Knows no machine and no model: what fits is the engine's say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from octavo.errors import InvalidRequest

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def parse_bytes(value: int | str, *, param: str | None = None) -> int:
    """Bytes from a number or from text such as "2GiB", "512 MiB", "1.5GB"; decimal and binary units, any case.

    Raises InvalidRequest for anything else, and for sizes below one byte.
    """
    size = 0
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)) and match[2].lower() in _UNITS:
        whole, _, fraction = match[1].partition(".")
        unit = _UNITS[match[2].lower()]
        size = int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    if size < 1:
        name = param or "a size"
        raise InvalidRequest(
            f'{name} must be bytes, at least 1, such as 500000000 or "2GiB", not {value!r}', param=param
        )
    return size


def declare(
    default: Any,
    text: str,
    *,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
    kind: str | None = None,
) -> Any:
    """A field of a class of settings: bool, int or str, or one of these or None. text: its help. kind: how a text is
    to be understood, "SIZE" (bytes) or "DIR"; None for what the type says."""
    return field(
        default=default, metadata={"help": text, "least": least, "most": most, "choices": choices, "kind": kind}
    )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine; `octavo generate --help` prints what each of them means. Raises InvalidRequest.

    Each has the same name in Python, with dashes on the command line, and with OCTAVO_ before it in the environment.
    """

    block_size: int = declare(16, "tokens in one KV block", least=1, most=1024)
    kv_memory: int | str | None = declare(
        None, "memory for the KV pool in bytes or as text such as 2GiB; by default sized from the machine", kind="SIZE"
    )
    num_blocks: int | None = declare(
        None, "size the KV pool in blocks instead; wins over kv_memory", least=1, most=2**31 - 1
    )
    max_seqs: int = declare(64, "sequences that run at once", least=1, most=65536)
    max_batched_tokens: int = declare(2048, "tokens that one step computes at most", least=1, most=2**20)
    max_model_len: int | None = declare(
        None, "longest sequence in tokens, prompt and answer; by default the model's own", least=1, most=2**31 - 1
    )
    threads: int | None = declare(None, "threads that compute; by default every core it may use", least=1, most=1024)
    dtype: str = declare("float32", "number format of the computation", choices=("float32",))
    kv_dtype: str = declare(
        "auto", "number format of the KV cache; auto is the backend's own", choices=("auto", "bfloat16", "float32")
    )
    prefix_cache: bool = declare(True, "reuse the blocks of prompts that begin alike")
    host_kv_memory: int | str | None = declare(
        None, "memory for KV blocks that left the pool, as kv_memory; by default they are lost", kind="SIZE"
    )
    disk_kv: str | None = declare(
        None, "a directory of its own for KV blocks that left the pool; they outlive the engine", kind="DIR"
    )
    disk_kv_size: int | str = declare("8GiB", "disk space that disk_kv takes at most, all files counted", kind="SIZE")
    disk_kv_key: str | None = declare(
        None, "a file of keys that encrypt disk_kv: 64 hexadecimal digits a line, the first encrypts", kind="FILE"
    )
    policy: str = declare(
        "fcfs", "who goes first: by arrival, by priority, or fair to tenants", choices=("fcfs", "priority", "fair")
    )
    batch_window: int = declare(
        0, "milliseconds that the first request of an idle engine waits for company", least=0, most=100
    )
    seed: int | None = declare(None, "seed for requests without one of their own", least=0, most=2**64 - 1)
    backend: str = declare("native", "what computes; numpy is slow and exact", choices=("native", "numpy"))

    def __post_init__(self) -> None:
        check_settings(self)
        if self.max_batched_tokens < self.max_seqs:
            raise InvalidRequest(
                f"max_batched_tokens ({self.max_batched_tokens}) must be at least max_seqs ({self.max_seqs}): "
                "each running sequence needs one token a step; raise the first or lower the second",
                param="max_batched_tokens",
            )
        if self.disk_kv_key is not None and self.disk_kv is None:
            raise InvalidRequest("disk_kv_key encrypts disk_kv: give that directory too", param="disk_kv_key")
        if not self.prefix_cache and (self.host_kv_memory is not None or self.disk_kv is not None):
            raise InvalidRequest(
                "host_kv_memory and disk_kv keep blocks of the prefix cache: turn prefix_cache on",
                param="prefix_cache",
            )


def setting_type(setting: Field[Any]) -> type:
    """The field's plain type, without None: bool, int or str (str for "an int or text")."""
    options = {option.strip() for option in str(setting.type).split("|")}  # annotations are texts here
    return str if "str" in options else int if "int" in options else bool


def parse_setting(setting: Field[Any], text: str) -> bool | int | str:
    """The field's value from what somebody typed. Raises InvalidRequest when it is not of the field's type."""
    kind = setting_type(setting)
    if kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise _wrong(setting, f"must be one of {', '.join(_TRUE + _FALSE)}", text)
        return text.lower() in _TRUE
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise _wrong(setting, "must be a whole number", text) from None
    return text


def from_environment(environment: Mapping[str, str], of: type[Any] = EngineConfig) -> dict[str, bool | int | str]:
    """The settings of the class `of` that the environment gives, by field name; an empty variable counts as absent."""
    found = {}
    for setting in fields(of):
        variable = f"OCTAVO_{setting.name.upper()}"
        if text := environment.get(variable):
            try:
                found[setting.name] = parse_setting(setting, text)
            except InvalidRequest as error:
                raise InvalidRequest(f"{variable}: {error}", param=setting.name) from error
    return found


def check_settings(settings: Any) -> None:
    """Raise InvalidRequest unless each field of the dataclass is of its type, in its range, one of its choices."""
    for each in fields(settings):
        _check(each, getattr(settings, each.name))


def _check(setting: Field[Any], value: object) -> None:
    limits = setting.metadata
    if value is None and setting.default is None:
        return
    if limits["kind"] == "SIZE":
        parse_bytes(value, param=setting.name)  # type: ignore[arg-type]  # it refuses other types itself
        return
    kind = setting_type(setting)
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", str: "text"}
        raise _wrong(setting, f"must be {names[kind]}", value)
    if limits["choices"] and value not in limits["choices"]:
        raise _wrong(setting, f"must be one of {', '.join(limits['choices'])}", value)
    if isinstance(value, int) and not isinstance(value, bool) and not limits["least"] <= value <= limits["most"]:
        raise _wrong(setting, f"must be from {limits['least']} to {limits['most']}", value)


def _wrong(setting: Field[Any], rule: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"{setting.name} {rule}, not {value!r}", param=setting.name)

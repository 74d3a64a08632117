"""The fields of a body: read, checked, refused. null counts as absent. Knows no engine.

Fields that nobody knows, and those that cannot change an answer (`user`, `metadata`, `store`, ...), are ignored. Those
that would change it and are not supported are refused: an answer that ignored them would be wrong without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidRequest
from octavo.options import RequestOptions
from octavo.params import MAX_LOGPROBS, SamplingParams
from octavo.server.errors import invalid, shown
from octavo.server.keys import Caller

_TOKEN_ID = re.compile(r"-?[0-9]{1,18}")

# As in SamplingParams, and of the same name there.
_SAMPLING = (
    *("min_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("bad_words", "stop", "stop_token_ids", "ignore_eos", "seed", "n", "skip_special_tokens", "prompt_logprobs"),
)
_SEARCH = ("best_of", "beam_width", "length_penalty", "early_stopping")  # of completions alone
_RENAMED = {"include_stop_str_in_output": "include_stop"}
# Preparing these takes the engine's own time, and so everybody's.
_MOST_ITEMS = {"bad_words": 256, "stop_token_ids": 20_000, "logit_bias": 20_000}
MAX_TEXTS = 20_000  # characters of all stop strings, or of all bad words
DEFAULT_TEMPERATURE = 1.0  # the protocol's, not the library's

# Not supported, and what it may say all the same because it then asks for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "truncate_prompt_tokens": (),
    "typical_p": (1, 1.0),
    "mirostat": (0,),
    "xtc_probability": (0, 0.0),
    "dry_multiplier": (0, 0.0),
    "prompt_embeds": (),
    "documents": ([],),
    "return_tokens_as_token_ids": (False,),
}
_UNSUPPORTED_COMPLETION = {"suffix": ("",)}
_UNSUPPORTED_CHAT: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "chat_template": (),
    "echo": (False,),
    "add_special_tokens": (False,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "beam_width": (1,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
}


class Fields:
    """A body's fields. Every method raises InvalidRequest that names the field."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    def get(self, name: str) -> Any:
        """The field as it came; None when absent or null."""
        return self._body.get(name)

    def others(self, *names: str) -> dict[str, Any]:
        """All fields but these."""
        return {name: value for name, value in self._body.items() if name not in names}

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(f"{name} must be true or false, not {shown(value)}", name)
        return value

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid(f"{name} must be a string, not {shown(value)}", name)
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; {} when absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise invalid(f"{name} must be an object, not {shown(value)}", name)
        return value or {}

    def count(self, name: str, most: int) -> int | None:
        """A whole number from 0 to `most`; true is none."""
        value = self.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise invalid(f"{name} must be a whole number from 0 to {most}, not {shown(value)}", name)
        return value

    def refuse(self, unsupported: Mapping[str, tuple[Any, ...]]) -> None:
        """Raise for the first of these fields that asks for something."""
        for name, harmless in unsupported.items():
            value = self.get(name)
            if value is not None and not any(value == each and type(value) is type(each) for each in harmless):
                raise invalid(f"{name} is not supported by this server; leave it out", name, code="unsupported")


def completion_params(fields: Fields) -> SamplingParams:
    """What /v1/completions asks of each prompt. `logprobs` is a number there."""
    fields.refuse({**_UNSUPPORTED, **_UNSUPPORTED_COMPLETION})
    max_tokens = fields.get("max_tokens")
    echo = fields.flag("echo")
    logprobs = fields.count("logprobs", MAX_LOGPROBS)
    of_prompt = fields.count("prompt_logprobs", MAX_LOGPROBS)
    settings = _sampling(fields) | _search(fields) | {"max_tokens": max_tokens, "logprobs": logprobs}
    if type(max_tokens) is int and max_tokens == 0 and not echo:
        raise invalid("max_tokens 0 asks for nothing without echo; ask for at least 1", "max_tokens")
    if echo and logprobs is not None:
        settings["prompt_logprobs"] = max(logprobs, of_prompt or 0)
    elif max_tokens == 0:
        settings.setdefault("prompt_logprobs", 0)
    return _checked(settings)


def chat_params(fields: Fields) -> SamplingParams:
    """What /v1/chat/completions asks. `logprobs` is a switch there, and the number is `top_logprobs`."""
    fields.refuse({**_UNSUPPORTED, **_UNSUPPORTED_CHAT})
    wanted = fields.flag("logprobs")
    top = fields.count("top_logprobs", MAX_LOGPROBS)
    if top is not None and not wanted:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    settings = _sampling(fields) | {"max_tokens": _chat_max_tokens(fields)}
    if wanted:
        settings["logprobs"] = top or 0
    return _checked(settings)


def stream_usage(fields: Fields) -> bool:
    """Whether a stream is to end with its usage."""
    options = fields.mapping("stream_options")
    if options and not fields.flag("stream"):
        raise invalid("stream_options goes with stream: true only", "stream_options")
    usage = options.get("include_usage")
    if usage is not None and not isinstance(usage, bool):
        raise invalid(f"stream_options.include_usage must be true or false, not {shown(usage)}", "stream_options")
    return bool(usage)


def cache_salt(fields: Fields) -> str:
    """What keeps this caller's cached blocks from those without it; "" when absent."""
    salt = fields.text("cache_salt")
    if salt == "":
        raise invalid("cache_salt is empty; give a text, or leave it out", "cache_salt")
    return salt or ""


def request_options(fields: Fields, caller: Caller) -> RequestOptions:
    """How the body's requests are treated among others. Without `priority` it is 0, or the best that the key allows."""
    best, priority = caller.best_priority, fields.get("priority")
    wanted = max(0, best) if priority is None else priority
    try:
        options = RequestOptions(wanted, caller.tenant, deadline_s=fields.get("deadline"))
    except InvalidRequest as error:
        name = "deadline" if error.param == "deadline_s" else error.param
        raise invalid(str(error).replace("deadline_s", "deadline"), name) from None
    if options.priority < best:
        message = f"priority {options.priority} is not for this API key; its best is {best}"
        raise invalid(message, "priority", code="priority_not_allowed")
    return options


def _sampling(fields: Fields) -> dict[str, Any]:
    settings = {"temperature": DEFAULT_TEMPERATURE, "logit_bias": _logit_bias(fields)}
    settings |= {name: value for name in _SAMPLING if (value := fields.get(name)) is not None}
    for name, most in _MOST_ITEMS.items():
        value = fields.get(name)
        if isinstance(value, (list, dict)) and len(value) > most:
            raise invalid(f"{name} has {len(value)} entries; the most is {most}", name)
    settings |= {mine: value for name, mine in _RENAMED.items() if (value := fields.get(name)) is not None}
    return settings


def _search(fields: Fields) -> dict[str, Any]:
    """Beams and best_of. `use_beam_search` alone makes as many beams as best_of says, or n, which is what it meant when
    servers first had it. Beams do not draw, so their temperature is 0 unless given."""
    found = {name: value for name in _SEARCH if (value := fields.get(name)) is not None}
    if fields.get("use_beam_search") is None and found.get("beam_width", 1) == 1:
        return found
    if fields.flag("use_beam_search", default=True):
        if "beam_width" not in found:
            found["beam_width"] = found.pop("best_of", fields.get("n"))
        if found["beam_width"] in (None, 1):
            raise invalid("use_beam_search needs a beam_width of at least 2", "beam_width")
        return found if fields.get("temperature") is not None else found | {"temperature": 0.0}
    if found.get("beam_width", 1) != 1:
        raise invalid("use_beam_search false and a beam_width contradict each other; send one", "use_beam_search")
    return found


def _checked(settings: dict[str, Any]) -> SamplingParams:
    try:
        params = SamplingParams(**settings)
        for name, texts in (("stop", params.stop), ("bad_words", params.bad_words)):
            if (size := sum(map(len, texts))) > MAX_TEXTS:
                raise invalid(f"{name} has {size} characters in all; the most is {MAX_TEXTS}", name)
        return params
    except InvalidRequest as error:
        theirs = {mine: name for name, mine in _RENAMED.items()}
        raise InvalidRequest(str(error), param=theirs.get(error.param or "", error.param), code=error.code) from None


def _logit_bias(fields: Fields) -> dict[int, float]:
    """JSON's keys are texts, so token ids come as such."""
    found = {}
    for key, bias in fields.mapping("logit_bias").items():
        if _TOKEN_ID.fullmatch(key) is None:
            raise invalid(f"logit_bias: {shown(key)} is no token id", "logit_bias")
        found[int(key)] = bias
    return found


def _chat_max_tokens(fields: Fields) -> Any:
    newer, older = fields.get("max_completion_tokens"), fields.get("max_tokens")
    name = "max_tokens" if newer is None else "max_completion_tokens"
    if newer is not None and older is not None and newer != older:
        raise invalid(
            f"max_completion_tokens {shown(newer)} and max_tokens {shown(older)} contradict each other; send the first",
            name,
        )
    value = older if newer is None else newer
    if value is not None and (type(value) is not int or not 1 <= value < 2**31):
        raise invalid(f"{name} must be a whole number from 1 to {2**31 - 1}, not {shown(value)}", name)
    return value

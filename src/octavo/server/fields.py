"""The fields of a body that has been checked against its declaration: what they ask for together. Knows no engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidRequest
from octavo.options import RequestOptions
from octavo.params import SamplingParams
from octavo.server.bodies import Body
from octavo.server.errors import invalid
from octavo.server.keys import Caller
from octavo.text.chat_template import ChatTemplate

# As in SamplingParams, and of the same name there.
_SAMPLING = (
    *("min_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("bad_words", "stop", "stop_token_ids", "ignore_eos", "seed", "n", "skip_special_tokens", "prompt_logprobs"),
)
_SEARCH = ("best_of", "beam_width", "length_penalty", "early_stopping")  # of completions alone
_RENAMED = {"include_stop_str_in_output": "include_stop"}
MAX_TEXTS = 20_000  # characters of all stop strings, or of all bad words
DEFAULT_TEMPERATURE = 1.0  # the protocol's, not the library's


class Fields:
    """A body's fields, each as its declaration says. To ask for one that is not declared is a mistake."""

    def __init__(self, declared: Body, body: Mapping[str, Any]) -> None:
        """Raises InvalidRequest that names the first field that is not as declared."""
        declared.check(body)
        self._declared = declared
        self._body = body

    def get(self, name: str) -> Any:
        """The field as it came; None when absent or null."""
        if name not in self._declared.fields:
            raise KeyError(f"{self._declared.name} declares no {name}")
        return self._body.get(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.get(name)
        return default if value is None else bool(value)


def completion_params(fields: Fields) -> SamplingParams:
    """What /v1/completions asks of each prompt. `logprobs` is a number there."""
    max_tokens, echo, logprobs = fields.get("max_tokens"), fields.flag("echo"), fields.get("logprobs")
    of_prompt = fields.get("prompt_logprobs")
    settings = _sampling(fields) | _search(fields) | {"max_tokens": max_tokens, "logprobs": logprobs}
    if max_tokens == 0 and not echo:
        raise invalid("max_tokens 0 asks for nothing without echo; ask for at least 1", "max_tokens")
    if echo and logprobs is not None:
        settings["prompt_logprobs"] = max(logprobs, of_prompt or 0)
    elif max_tokens == 0:
        settings.setdefault("prompt_logprobs", 0)
    return _checked(settings)


def chat_params(fields: Fields) -> SamplingParams:
    """What /v1/chat/completions asks. `logprobs` is a switch there, and the number is `top_logprobs`."""
    wanted, top = fields.flag("logprobs"), fields.get("top_logprobs")
    if top and not wanted:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    settings = _sampling(fields) | {"max_tokens": _chat_max_tokens(fields)}
    if wanted:
        settings["logprobs"] = top or 0
    return _checked(settings)


def template_variables(fields: Fields, template: ChatTemplate) -> dict[str, Any]:
    """What the chat template is given besides messages and tools. `chat_template_kwargs` are first; a wish about
    thinking that the template cannot be told is refused where it is plain, while an effort is a hint."""
    given: dict[str, Any] = fields.get("chat_template_kwargs") or {}
    asked: dict[str, Any] = {}
    effort, thinks = fields.get("reasoning_effort"), fields.get("enable_thinking")
    if effort is not None and template.takes("reasoning_effort"):
        asked["reasoning_effort"] = effort
    if effort == "none" and thinks is None and template.takes("enable_thinking"):
        asked["enable_thinking"] = False
    if thinks is not None:
        if not template.takes("enable_thinking") and thinks != (template.thinking is not None):
            raise invalid(
                f"this model's chat template has no enable_thinking, so {str(thinks).lower()} cannot be had",
                "enable_thinking",
                code="unsupported",
            )
        asked["enable_thinking"] = thinks
    return asked | given


def stream_usage(fields: Fields) -> bool:
    """Whether a stream is to end with its usage."""
    options = fields.get("stream_options")
    if options and not fields.flag("stream"):
        raise invalid("stream_options goes with stream: true only", "stream_options")
    return bool(options and options.get("include_usage"))


def request_options(fields: Fields, caller: Caller) -> RequestOptions:
    """How the body's requests are treated among others. Without `priority` it is 0, or the best that the key allows."""
    best, priority = caller.best_priority, fields.get("priority")
    wanted = max(0, best) if priority is None else priority
    options = RequestOptions(wanted, caller.tenant, deadline_s=fields.get("deadline"))
    if options.priority < best:
        message = f"priority {options.priority} is not for this API key; its best is {best}"
        raise invalid(message, "priority", code="priority_not_allowed")
    return options


def _sampling(fields: Fields) -> dict[str, Any]:
    bias = {int(token): value for token, value in (fields.get("logit_bias") or {}).items()}  # JSON's keys are texts
    settings = {"temperature": DEFAULT_TEMPERATURE, "logit_bias": bias}
    settings |= {name: value for name in _SAMPLING if (value := fields.get(name)) is not None}
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


def _chat_max_tokens(fields: Fields) -> Any:
    newer, older = fields.get("max_completion_tokens"), fields.get("max_tokens")
    if newer is not None and older is not None and newer != older:
        raise invalid(
            f"max_completion_tokens {newer} and max_tokens {older} contradict each other; send the first",
            "max_completion_tokens",
        )
    return older if newer is None else newer

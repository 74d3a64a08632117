"""The official client's types as a judge of answers: strict, all required fields, nothing unknown but on purpose."""

from __future__ import annotations

import json
import typing
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

# What octavo says beyond the protocol.
BEYOND = {"stop_reason", "cumulative_logprob", "prompt_logprobs", "max_model_len", "store", "reasoning_content"}
_EVENTS = {
    typing.get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in typing.get_args(typing.get_args(ResponseStreamEvent)[0])
}


def check(kind: type[BaseModel], answer: dict[str, Any]) -> BaseModel:
    """The answer as the client's own object; what it does not know is on purpose."""
    found = TypeAdapter(kind).validate_json(json.dumps(answer), strict=True)
    assert unknown(found) <= BEYOND
    return found


def unknown(value: object) -> set[str]:
    """Fields, at any depth, that the type of their object does not have."""
    if isinstance(value, BaseModel):
        inside = [unknown(getattr(value, name)) for name in type(value).model_fields]
        return set(value.model_extra or ()).union(*inside)
    return set().union(*map(unknown, value)) if isinstance(value, list) else set()


def check_event(event: dict[str, Any]) -> None:
    """One event of a stream of /v1/responses."""
    check(_EVENTS[event["type"]], event)

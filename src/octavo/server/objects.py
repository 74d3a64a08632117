"""What the endpoints answer, as declarations: the OpenAPI document is made of them, and tests hold answers to them.

Makes no answer; those are made in `answers`, `responses` and `app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from octavo.engine.async_engine import Health
from octavo.engine.block_map import BlockState
from octavo.server.shapes import (
    Shape,
    anything,
    array,
    either,
    flag,
    nullable,
    number,
    one_of,
    record,
    table,
    text,
    whole,
)

_COUNT = whole(0, 2**53)
_LOGPROB = number(-1e6, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of object. name: of its schema in the document."""

    name: str
    shape: Shape


def exactly(fields: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """An object with all of these fields, perhaps some optional ones, and no others."""
    return record({**fields, **(optional or {})}, tuple(fields), closed=True)


ERROR = Answer(
    "Error",
    exactly(
        {
            "error": exactly(
                {"message": text(least=1), "type": text(least=1), "param": nullable(text()), "code": nullable(text())}
            )
        }
    ),
)

_USAGE = exactly(
    {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": exactly({"cached_tokens": _COUNT}),
    },
    {"completion_tokens_details": exactly({"reasoning_tokens": _COUNT}).about("Where the model thinks.")},
)
_PROMPT_LOGPROBS = array(nullable(table(exactly({"logprob": _LOGPROB, "decoded_token": text()}), keys="[0-9]+"))).about(
    "By token id; the prompt's own token first."
)


def _head(kind: str) -> dict[str, Shape]:
    return {
        "id": text(least=1),
        "object": one_of(kind),
        "created": _COUNT,
        "model": text(),
        "system_fingerprint": text(),
    }


_STOP_REASON = nullable(either(_COUNT, text())).about("The stop string, or the token id, that ended the answer.")
_LISTS = exactly(
    {
        "tokens": array(text()),
        "token_logprobs": array(nullable(_LOGPROB)),
        "top_logprobs": nullable(array(nullable(table(_LOGPROB)))),
        "text_offset": array(_COUNT),
    }
)
_REASON = one_of("stop", "length")


def _completion_choice(reason: Shape) -> Shape:
    fields = {
        "index": _COUNT,
        "text": text(),
        "logprobs": nullable(_LISTS),
        "finish_reason": reason,
        "stop_reason": _STOP_REASON,
    }
    return exactly(fields, {"cumulative_logprob": number(-1e12, 0), "prompt_logprobs": _PROMPT_LOGPROBS})


COMPLETION = Answer(
    "Completion",
    exactly({**_head("text_completion"), "choices": array(_completion_choice(_REASON), least=1), "usage": _USAGE}),
)
COMPLETION_CHUNK = Answer(
    "CompletionChunk",
    exactly(
        {**_head("text_completion"), "choices": array(_completion_choice(nullable(_REASON)))},
        {"usage": nullable(_USAGE)},
    ),
)

_ENTRY = {"token": text(), "logprob": _LOGPROB, "bytes": array(whole(0, 255))}
_CHAT_LOGPROBS = exactly(
    {
        "content": array(exactly({**_ENTRY, "top_logprobs": array(exactly(_ENTRY))})),
        "refusal": one_of(None),
    }
)
_FUNCTION = exactly({"name": text(least=1), "arguments": text()})
_CALL = exactly({"id": text(least=1), "type": one_of("function"), "function": _FUNCTION})
_CALL_DELTA = either(
    exactly({"index": _COUNT, "id": text(least=1), "type": one_of("function"), "function": _FUNCTION}),
    exactly({"index": _COUNT, "function": exactly({"arguments": text()})}),
)
_CHAT_REASON = one_of("stop", "length", "tool_calls")
_ASSISTANT = {"role": one_of("assistant"), "content": nullable(text()), "refusal": one_of(None)}
CHAT = Answer(
    "ChatCompletion",
    exactly(
        {
            **_head("chat.completion"),
            "choices": array(
                exactly(
                    {
                        "index": _COUNT,
                        "message": exactly(
                            _ASSISTANT, {"reasoning_content": text(least=1), "tool_calls": array(_CALL, least=1)}
                        ),
                        "logprobs": nullable(_CHAT_LOGPROBS),
                        "finish_reason": _CHAT_REASON,
                        "stop_reason": _STOP_REASON,
                    }
                ),
                least=1,
            ),
            "usage": _USAGE,
        },
        {"prompt_logprobs": _PROMPT_LOGPROBS},
    ),
)
CHAT_CHUNK = Answer(
    "ChatCompletionChunk",
    exactly(
        {
            **_head("chat.completion.chunk"),
            "choices": array(
                exactly(
                    {
                        "index": _COUNT,
                        "delta": exactly(
                            {},
                            {
                                "role": one_of("assistant"),
                                "content": text(),
                                "reasoning_content": text(least=1),
                                "tool_calls": array(_CALL_DELTA),
                            },
                        ),
                        "logprobs": nullable(_CHAT_LOGPROBS),
                        "finish_reason": nullable(_CHAT_REASON),
                    }
                )
            ),
        },
        {"usage": nullable(_USAGE)},
    ),
)

_STATUSES = ("in_progress", "completed", "incomplete", "failed")
_STATUS = one_of(*_STATUSES)
_OUTPUT_TEXT = exactly(
    {
        "type": one_of("output_text"),
        "text": text(),
        "annotations": array(anything(), most=0),
        "logprobs": array(anything(), most=0),
    }
)
_REASONING_TEXT = exactly({"type": one_of("reasoning_text"), "text": text()})
_ITEM = either(
    exactly(
        {
            "id": text(least=1),
            "type": one_of("reasoning"),
            "summary": array(anything(), most=0),
            "status": _STATUS,
            "content": array(_REASONING_TEXT),
        }
    ),
    exactly(
        {
            "id": text(least=1),
            "type": one_of("message"),
            "role": one_of("assistant"),
            "status": _STATUS,
            "content": array(_OUTPUT_TEXT),
        }
    ),
    exactly(
        {
            "id": text(least=1),
            "call_id": text(least=1),
            "type": one_of("function_call"),
            "status": _STATUS,
            "name": text(least=1),
            "arguments": text(),
        }
    ),
)
_RESPONSE = exactly(
    {
        "id": text(least=1),
        "object": one_of("response"),
        "created_at": _COUNT,
        "model": text(),
        "parallel_tool_calls": flag(),
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "max_output_tokens": nullable(_COUNT),
        "tools": array(table(anything())),
        "tool_choice": either(one_of("none", "auto", "required"), table(anything())),
        "instructions": nullable(text()),
        "metadata": table(text()),
        "text": exactly({"format": table(anything())}),
        "previous_response_id": one_of(None),
        "background": one_of(False),
        "truncation": one_of("disabled"),
        "store": one_of(False),
        "error": nullable(exactly({"code": text(least=1), "message": text(least=1)})),
        "incomplete_details": nullable(exactly({"reason": one_of("max_output_tokens")})),
        "status": _STATUS,
        "output": array(_ITEM),
        "usage": nullable(
            exactly(
                {
                    "input_tokens": _COUNT,
                    "input_tokens_details": exactly({"cached_tokens": _COUNT, "cache_write_tokens": _COUNT}),
                    "output_tokens": _COUNT,
                    "output_tokens_details": exactly({"reasoning_tokens": _COUNT}),
                    "total_tokens": _COUNT,
                }
            )
        ),
    }
)
RESPONSE = Answer("Response", _RESPONSE)
_PLACE = {"item_id": text(least=1), "output_index": _COUNT}
_IN_PART = {**_PLACE, "content_index": _COUNT}
_NO_LOGPROBS = array(anything(), most=0)
_EVENTS: dict[str, dict[str, Shape]] = {
    **{
        f"response.{kind}": {"response": _RESPONSE}
        for kind in ("created", "in_progress", "completed", "incomplete", "failed")
    },
    **{f"response.output_item.{kind}": {"output_index": _COUNT, "item": _ITEM} for kind in ("added", "done")},
    **{
        f"response.content_part.{kind}": {**_IN_PART, "part": either(_OUTPUT_TEXT, _REASONING_TEXT)}
        for kind in ("added", "done")
    },
    "response.output_text.delta": {**_IN_PART, "delta": text(), "logprobs": _NO_LOGPROBS},
    "response.output_text.done": {**_IN_PART, "text": text(), "logprobs": _NO_LOGPROBS},
    "response.reasoning_text.delta": {**_IN_PART, "delta": text()},
    "response.reasoning_text.done": {**_IN_PART, "text": text()},
    "response.function_call_arguments.delta": {**_PLACE, "delta": text()},
    "response.function_call_arguments.done": {**_PLACE, "arguments": text()},
}
RESPONSE_EVENT = Answer(
    "ResponseEvent",
    either(*(exactly({"type": one_of(kind), "sequence_number": _COUNT, **fields}) for kind, fields in _EVENTS.items())),
)

_CARD = exactly(
    {
        "id": text(least=1),
        "object": one_of("model"),
        "created": _COUNT,
        "owned_by": text(),
        "max_model_len": _COUNT.about("Tokens of a prompt and its answer together."),
    }
)
MODEL = Answer("Model", _CARD)
MODELS = Answer("ModelList", exactly({"object": one_of("list"), "data": array(_CARD)}))
_VECTOR = either(array(number(-3.5e38, 3.5e38), least=1), text(least=1), words="numbers, or their bytes as base64")
EMBEDDINGS = Answer(
    "EmbeddingList",
    exactly(
        {
            "object": one_of("list"),
            "data": array(
                exactly({"object": one_of("embedding"), "index": _COUNT, "embedding": _VECTOR}),
                least=1,
            ),
            "model": text(),
            "usage": exactly({"prompt_tokens": _COUNT, "total_tokens": _COUNT}),
        }
    ),
)
TOKENS = Answer("Tokens", exactly({"count": _COUNT, "max_model_len": _COUNT, "tokens": array(_COUNT)}))
TEXT = Answer("Text", exactly({"prompt": text()}))
HEALTH = Answer("Health", exactly({"status": one_of(*get_args(Health), "draining")}))
VERSION = Answer("Version", exactly({"version": text(least=1)}))
DOCUMENT = Answer("Document", record({"openapi": text(), "paths": table(anything())}, ("openapi", "paths")))

_BLOCK_STATES = get_args(BlockState)
_RANGES = array(whole(-1, 2**31)).about("First block, count, first block, count, ...; -1 where a window let go.")
_POOL = exactly(
    {
        "object": one_of("pool"),
        "model": text(),
        "version": text(least=1),
        "time": number(0).about("Of the picture, in seconds since 1970."),
        "next_s": number(0).about("Seconds from then in which there will be no other picture."),
        "block_size": _COUNT.about("In tokens."),
        "num_blocks": _COUNT,
        "counts": exactly(dict.fromkeys(_BLOCK_STATES, _COUNT)).about("Blocks in each state."),
        "figures": table(number(0)).about("Of the whole engine, as in the metrics."),
        "tiers": array(exactly({"name": text(), "used": _COUNT, "capacity": _COUNT, "block_bytes": _COUNT})),
        "blocks": exactly(
            {
                "states": array(either(one_of(*_BLOCK_STATES), _COUNT)),
                "tables": array(_COUNT).about("In how many block tables each block is."),
                "ages": array(whole(-1, 2**31)).about("Bits of the seconds since its users last changed; -1: never."),
                "tiers": array(either(text(), _COUNT)).about("Which memories below have its content too."),
                "kept": _RANGES.about("Blocks that are pinned, as ranges: first block, count, ..."),
            }
        ).about("Columns with an entry for each block, as runs: value, count, value, count, ..."),
        "requests": array(
            exactly(
                {
                    "id": nullable(text(least=1)),
                    "state": one_of("waiting", "running"),
                    **dict.fromkeys(("prompt_tokens", "cached_tokens", "made_tokens", "max_tokens"), _COUNT),
                    "age_s": number(0),
                    "preemptions": _COUNT,
                    "answers": array(exactly({"index": _COUNT, "tokens": _COUNT, "tables": array(_RANGES)})),
                }
            )
        ).about("Of the caller's tenant, those that run first."),
    }
)
POOL = Answer("Pool", _POOL)
_OTHER = nullable(text(least=1)).about("Null: another tenant's, or none.")
_EXPLAINED = exactly(
    {
        "state": one_of("waiting", "running", "ended"),
        "prompt_tokens": _COUNT,
        "cached_tokens": nullable(_COUNT),
        "missed": nullable(
            exactly({"position": _COUNT, "reason": text(), "token": nullable(_COUNT), "step": nullable(_COUNT)})
        ).about("Where the cached beginning ended, and why."),
        "ahead": _COUNT.about("Sequences that waited when it came."),
        "held": array(
            exactly(
                {
                    "answer": _COUNT,
                    "tables": array(_RANGES),
                    "shared": array(exactly({"request": _OTHER, "blocks": _COUNT})),
                }
            )
        ),
        "waits": array(
            exactly(
                {
                    "seconds": number(0),
                    "reason": text(),
                    "needed": _COUNT,
                    "available": whole(-(2**53), 2**53),
                    "head": flag().about("Whether it was first in the queue, and itself lacked this."),
                    "behind": _OTHER,
                }
            )
        ),
        "preemptions": array(
            exactly(
                {
                    "tokens": _COUNT,
                    "reason": one_of("gave_way", "lost_block"),
                    "how": text().about("cut, lost, or how evicted blocks come back: recompute, host, disk."),
                    "by": _OTHER,
                }
            )
        ),
        "text": text(least=1).about("The same in words."),
    }
)
EXPLANATION = Answer(
    "Explanation",
    exactly({"id": text(least=1), "object": one_of("explanation"), "prompts": array(_EXPLAINED, least=1)}),
)
PIN = Answer(
    "Pin",
    exactly(
        {
            "id": text(least=1),
            "object": one_of("pin"),
            "tokens": _COUNT,
            "pinned_tokens": _COUNT.about("Those in full blocks."),
            "expires_at": number(0).about("In seconds since 1970."),
        }
    ),
)
UNPINNED = Answer("Unpinned", exactly({"id": text(least=1), "object": one_of("pin"), "deleted": one_of(True)}))
WIPED = Answer("Wiped", exactly({"object": one_of("cache.wipe"), "blocks": _COUNT}))

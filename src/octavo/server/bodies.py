"""What each endpoint's body may say: the fields that are read, those that are refused, those that are ignored.

The server checks bodies by these declarations, and the OpenAPI document is made of them. What no field can say alone
(does it fit the context? do two contradict each other?) is for the readers. A field that is not here is ignored, which
is right for what cannot change an answer; what would change it and is not supported is here as `refused`, because an
answer that ignored it would be wrong without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidRequest
from octavo.grammar import MAX_SOURCE
from octavo.options import MAX_PRIORITY
from octavo.params import INTEGERS, MAX_INT, MAX_LOGPROBS, MAX_STOP_STRINGS, NUMBERS
from octavo.server.errors import invalid
from octavo.server.shapes import (
    Schema,
    Shape,
    anything,
    array,
    either,
    flag,
    number,
    number_above,
    one_of,
    record,
    refused,
    table,
    text,
    whole,
)
from octavo.text.messages import ROLES

MAX_ANSWERS = 1024  # prompts times n of one body
MAX_TOOLS = 128
MAX_TTL_S = 86_400  # of a pin
MAX_TEXTS_TO_EMBED = 2048
# Preparing these takes the engine's own time, and so everybody's.
MAX_BAD_WORDS, MAX_STOP_IDS, MAX_BIASES = 256, 20_000, 20_000


@dataclass(frozen=True, slots=True)
class Body:
    """The fields of one endpoint's body. name: of the schema in the document."""

    name: str
    fields: Mapping[str, Shape]
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """As JSON Schema: a field that is not required may be null, which counts as absent."""
        return record(self.fields, self.required).schema

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise InvalidRequest that names the first field that is not as declared."""
        for name in self.required:
            if body.get(name) is None:
                raise invalid(f"{name} is missing", name, code="missing")
        for name, value in body.items():
            shape = self.fields.get(name)
            if shape is not None and value is not None and not shape.fits(value):
                raise InvalidRequest(shape.complaint(value, name), param=name, code=shape.code)


_IGNORED = anything().about("Accepted, and without an effect here.")
_TOKEN = whole(0, MAX_INT)
_BLANKS_AND_MORE = r"[\s\S]*\S[\s\S]*"
_COUNTS = {name: whole(least, most) for name, least, most, _ in INTEGERS}
_NUMBERS = {name: number(least, most) for name, least, most in NUMBERS}
_STOP, _BAD_WORD, _SOURCE = text(least=1), text(pattern=_BLANKS_AND_MORE), text(1, MAX_SOURCE)
_JSON_SCHEMA = either(table(anything()), _SOURCE, flag(), words="a JSON schema").about("A JSON schema, or its text.")
_CHOICES = array(text(least=1), least=1).about("The answer is one of these texts.")

_SAMPLING: dict[str, Shape] = {
    "temperature": _NUMBERS["temperature"].about("0 takes the likeliest token. By default 1; of beams 0."),
    "top_p": _NUMBERS["top_p"],
    "top_k": _COUNTS["top_k"].about("0 and -1: off."),
    "min_p": _NUMBERS["min_p"],
    "min_tokens": _COUNTS["min_tokens"],
    "repetition_penalty": number_above(0).about("1: off."),
    "presence_penalty": _NUMBERS["presence_penalty"],
    "frequency_penalty": _NUMBERS["frequency_penalty"],
    "logit_bias": table(number(-100, 100), keys="[0-9]{1,18}", most=MAX_BIASES).about("By token id."),
    "bad_words": either(_BAD_WORD, array(_BAD_WORD, most=MAX_BAD_WORDS)).about("Texts that the answer never has."),
    "stop": either(_STOP, array(_STOP, most=MAX_STOP_STRINGS)).about("Texts that end the answer."),
    "stop_token_ids": array(_TOKEN, most=MAX_STOP_IDS),
    "include_stop_str_in_output": flag(),
    "ignore_eos": flag(),
    "skip_special_tokens": flag(),
    "seed": _COUNTS["seed"],
    "n": _COUNTS["n"],
    "prompt_logprobs": _COUNTS["prompt_logprobs"].about("Not with streams."),
}
_TREATMENT: dict[str, Shape] = {
    "model": text().about("The name under /v1/models; by default the one there is."),
    "stream": flag(),
    "stream_options": record({"include_usage": flag()}).about("With streams alone."),
    "cache_salt": text(least=1).about("Divides the tenant's part of the prefix cache."),
    "priority": whole(-MAX_PRIORITY, MAX_PRIORITY).about("The smaller first, under the policies that heed it."),
    "deadline": number_above(0).about("Seconds in which the answer must begin."),
}
_SCHEMA: dict[str, Shape] = {
    "name": text(),
    "description": text(),
    "schema": either(table(anything()), flag(), words="a JSON schema"),
    "strict": flag().about("In either case, what cannot be enforced is refused."),
}
_GRAMMARS: dict[str, Shape] = {
    "response_format": either(
        record({"type": one_of("text")}, ("type",)),
        record({"type": one_of("json_object")}, ("type",)),
        record(
            {
                "type": one_of("json_schema"),
                "json_schema": record(_SCHEMA, ("schema",)),
            },
            ("type", "json_schema"),
        ),
        words='of type text, json_object, or json_schema with "json_schema": {"name": ..., "schema": {...}}',
    ),
    "guided_json": _JSON_SCHEMA,
    "guided_regex": _SOURCE,
    "guided_choice": _CHOICES,
    "guided_grammar": _SOURCE.about("In the syntax of Lark or GBNF."),
    "json_schema": _JSON_SCHEMA,
    "regex": _SOURCE,
    "grammar": _SOURCE.about("In the syntax of Lark or GBNF."),
    "structured_outputs": record(
        {"json": _JSON_SCHEMA, "regex": _SOURCE, "choice": _CHOICES, "grammar": _SOURCE, "json_object": flag()},
        closed=True,
    ).about("One of these."),
}
_UNSUPPORTED: dict[str, Shape] = {
    "allowed_token_ids": refused(),
    "truncate_prompt_tokens": refused(),
    "typical_p": refused(1),
    "mirostat": refused(0),
    "xtc_probability": refused(0),
    "dry_multiplier": refused(0),
    "prompt_embeds": refused(),
    "documents": refused([]),
    "return_tokens_as_token_ids": refused(False),
}
_NO_EFFECT = dict.fromkeys(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    ),
    _IGNORED,
)
_COMMON = _TREATMENT | _SAMPLING | _GRAMMARS | _UNSUPPORTED | _NO_EFFECT

_PROMPT = either(
    text(),
    array(text(), least=1, most=MAX_ANSWERS),
    array(_TOKEN, least=1),
    array(array(_TOKEN, least=1), least=1, most=MAX_ANSWERS),
    words="a text, token ids, or a list of these, not mixed",
)
COMPLETION = Body(
    "CompletionRequest",
    {
        "prompt": _PROMPT,
        "max_tokens": _COUNTS["max_tokens"].about("By default what the context leaves; 0 goes with echo alone."),
        "logprobs": whole(0, MAX_LOGPROBS),
        "echo": flag(),
        "best_of": _COUNTS["best_of"],
        "use_beam_search": flag(),
        "beam_width": _COUNTS["beam_width"],
        "length_penalty": _NUMBERS["length_penalty"],
        "early_stopping": either(flag(), one_of("never")),
        "add_special_tokens": flag(),
        "suffix": refused(""),
        **_COMMON,
    },
    ("prompt",),
)

_PART = either(text(), record({"type": one_of("text"), "text": text()}, ("type", "text")), words="a text part")
_CONTENT = either(text(), array(_PART), words="a text or a list of text parts")
_OF_MESSAGES: dict[str, Shape] = {
    "name": text(),
    "tool_call_id": text(),
    "reasoning_content": text(),
    "refusal": text(),
}
_CALLS = array(table(anything()), least=1)
_MESSAGE = either(
    record(
        {"role": one_of(*ROLES), "content": _CONTENT, "tool_calls": array(table(anything())), **_OF_MESSAGES},
        ("role", "content"),
    ),
    record(
        {"role": one_of("assistant"), "tool_calls": _CALLS, "content": _CONTENT, **_OF_MESSAGES}, ("role", "tool_calls")
    ),
    words=f"a message with content and a role of {', '.join(ROLES)}",
)
_FUNCTION: dict[str, Shape] = {
    "name": text(pattern="[A-Za-z0-9_.-]{1,64}"),
    "description": text(),
    "parameters": table(anything()).about("A JSON schema of an object."),
    "strict": flag(),
}
_IS_FUNCTION = {"type": one_of("function")}
_NESTED_TOOL = record(_IS_FUNCTION | {"function": record(_FUNCTION, ("name",))}, ("type", "function"))
_FLAT_TOOL = record(_IS_FUNCTION | _FUNCTION, ("type", "name"))
_NAMED = record({"name": text()}, ("name",))
_NAMED_NESTED = record({"function": _NAMED}, ("function",))
_ALLOWED: dict[str, Shape] = {
    "mode": one_of("auto", "required"),
    "tools": array(either(_NAMED_NESTED, _NAMED, words="a function"), least=1),
}
_IS_ALLOWED = {"type": one_of("allowed_tools")}
_TOOL_CHOICE = either(
    one_of("none", "auto", "required"),
    record(_IS_FUNCTION | {"function": _NAMED}, ("type", "function")),
    record(_IS_FUNCTION | {"name": text()}, ("type", "name")),
    record(_IS_ALLOWED | {"allowed_tools": record(_ALLOWED, ("mode", "tools"))}, ("type", "allowed_tools")),
    record(_IS_ALLOWED | _ALLOWED, ("type", "mode", "tools")),
    words='"none", "auto", "required", a function or allowed_tools',
)
_TEMPLATE: dict[str, Shape] = {
    "messages": array(_MESSAGE, least=1),
    "tools": array(_NESTED_TOOL, most=MAX_TOOLS),
    "tool_choice": _TOOL_CHOICE,
    "parallel_tool_calls": flag(),
    "chat_template_kwargs": table(anything()),
    "enable_thinking": flag().about("For templates that ask for it."),
    "reasoning_effort": text(least=1).about("For templates that ask for it; none: as enable_thinking false."),
    "add_generation_prompt": flag(),
    "continue_final_message": flag(),
}
CHAT = Body(
    "ChatCompletionRequest",
    {
        **_TEMPLATE,
        "max_completion_tokens": whole(1, MAX_INT).about("By default what the context leaves."),
        "max_tokens": whole(1, MAX_INT).about("The older name of max_completion_tokens."),
        "logprobs": flag(),
        "top_logprobs": whole(0, MAX_LOGPROBS).about("With logprobs."),
        **_COMMON,
        "verbosity": _IGNORED,
        "prediction": _IGNORED,
        "functions": refused([]),
        "function_call": refused("none", "auto"),
        "modalities": refused(["text"]),
        "audio": refused(),
        "web_search_options": refused(),
        "moderation": refused(),
        "chat_template": refused(),
        "echo": refused(False),
        "add_special_tokens": refused(False),
        "best_of": refused(1),
        "use_beam_search": refused(False),
        "beam_width": refused(1),
        "length_penalty": refused(1),
        "early_stopping": refused(False),
    },
    ("messages",),
)

_TEXT_PART = record({"type": one_of("input_text", "output_text", "text"), "text": text()}, ("type", "text"))
_REASONING_PART = record({"type": one_of("reasoning_text"), "text": text()}, ("type", "text"))
_ITEM = either(
    record(
        {
            "type": one_of("message"),
            "role": one_of(*ROLES),
            "content": either(text(), array(_TEXT_PART), words="a text or a list of text parts"),
        },
        ("role", "content"),
    ),
    record(
        {"type": one_of("function_call"), "call_id": text(), "name": text(), "arguments": text()},
        ("type", "call_id", "name", "arguments"),
    ),
    record(
        {
            "type": one_of("function_call_output"),
            "call_id": text(),
            "output": either(text(), array(_TEXT_PART), words="a text or a list of text parts"),
        },
        ("type", "call_id", "output"),
    ),
    record(
        {"type": one_of("reasoning"), "content": array(_REASONING_PART), "summary": anything()},
        ("type",),
    ),
    words="a message, reasoning, a function_call or a function_call_output of texts",
)
_FORMS = record(
    {
        "format": either(
            record({"type": one_of("text", "json_object")}, ("type",)),
            record({"type": one_of("json_schema"), **_SCHEMA}, ("type", "schema")),
            words="of type text, json_object, or json_schema with its schema",
        ),
    }
)
# What a chat says in other words, and would be a mistake here.
_OF_CHATS_ALONE = ("messages", "max_tokens", "max_completion_tokens", "response_format", "prompt_logprobs")
RESPONSE = Body(
    "ResponseRequest",
    {
        **CHAT.fields,
        **dict.fromkeys(_OF_CHATS_ALONE, refused()),
        "input": either(text(), array(_ITEM, least=1), words="a text or a list of items"),
        "instructions": text(),
        "max_output_tokens": whole(1, MAX_INT).about("By default what the context leaves."),
        "tools": array(either(_FLAT_TOOL, _NESTED_TOOL, words="a function"), most=MAX_TOOLS),
        "text": _FORMS,
        "metadata": table(text(most=512), keys=r"[\s\S]{0,64}", most=16).about("Repeated in the answer."),
        "reasoning": record({"effort": text(least=1)}).about("effort: the reasoning_effort of chats."),
        "max_tool_calls": _IGNORED,
        "access_programs": _IGNORED,
        "background_options": _IGNORED,
        "image": _IGNORED,
        "context_management": refused([]),
        "previous_response_id": refused(),
        "conversation": refused(),
        "prompt": refused(),
        "background": refused(False),
        "truncation": refused("disabled"),
        "n": refused(1),
        "include": refused([]),
        "logprobs": refused(False),
        "top_logprobs": refused(0),
    },
    ("input",),
)

_TREATED = ("model", "cache_salt", "priority", "deadline")
EMBEDDING = Body(
    "EmbeddingRequest",
    {
        "input": either(
            text(),
            array(text(), least=1, most=MAX_TEXTS_TO_EMBED),
            array(_TOKEN, least=1),
            array(array(_TOKEN, least=1), least=1, most=MAX_TEXTS_TO_EMBED),
            words="a text, token ids, or a list of these, not mixed",
        ).about("Names of control tokens in a text stay text."),
        "encoding_format": one_of("float", "base64").about("base64: of little-endian float32."),
        "dimensions": whole(1, MAX_INT).about("The first so many numbers, normalised anew; by default all."),
        "pooling": one_of("last", "mean").about("The last token's state, by default, or the mean of all."),
        "normalize": flag().about("To unit length; by default true."),
        **{name: _TREATMENT[name] for name in _TREATED},
        "user": _IGNORED,
        "stream": refused(False),
        "truncate_prompt_tokens": refused(),
    },
    ("input",),
)

TOKENIZE = Body(
    "TokenizeRequest",
    {"model": _TREATMENT["model"], "prompt": text(), "add_special_tokens": flag(), **_TEMPLATE},
)
PIN = Body(
    "PinRequest",
    {
        "model": _TREATMENT["model"],
        "prompt": either(text(), array(_TOKEN, least=1), words="a text or token ids"),
        "add_special_tokens": flag(),
        **_TEMPLATE,
        "ttl_s": number(1, MAX_TTL_S).about("Seconds for which the prompt's cached blocks are kept."),
        "cache_salt": _TREATMENT["cache_salt"],
    },
    ("ttl_s",),
)
WIPE = Body("WipeRequest", {"model": _TREATMENT["model"], "cache_salt": _TREATMENT["cache_salt"]})
DETOKENIZE = Body("DetokenizeRequest", {"model": _TREATMENT["model"], "tokens": array(_TOKEN)}, ("tokens",))

"""Chats become the prompts that transformers makes of them, or are refused with a reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from octavo.errors import InvalidRequest
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

ASK = [{"role": "user", "content": "Hi there"}]
CHATS = [
    ASK,
    [{"role": "system", "content": "Be brief."}, *ASK],
    [*ASK, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "  2+2?\n"}],
    [{"role": "user", "content": "你好 👋🏽 <b>&amp;</b> {{ x }} {% raw %}"}],
]
PROBE = """
{%- set ns = namespace(n=0, text='') %}
{{- bos_token }}
{% for message in messages %}
    {%- if loop.first and message.role == 'system' %}{% continue %}{% endif %}
    {% set ns.n = ns.n + 1 %}
[{{ loop.index }}/{{ loop.length }}{{ ' last' if loop.last }}] {{ message['role'] | upper }}: {{ message.content|trim }}
    {{- '!' if 'hi' in message.content | lower else '?' }}
    {%- if message.tool_calls is defined %}{{ message.tool_calls | tojson(indent=2) }}{% endif %}
{% endfor %}
{%- for tool in tools or [] %}
{{ tool | tojson }} {{ tool.function.name ~ ':' ~ tool.function.parameters.keys() | list | length }}
{%- endfor %}
{{ '%s|%d' | format('x', ns.n) }}{{ messages | map(attribute='role') | join(',') }}
{{ messages[-1].content[:3] }}{{ messages[-1].content.split(' ')[-1] }}{{ messages[0].content.startswith('Hi') }}
{% if not add_generation_prompt is defined or add_generation_prompt %}{% generation %}GO{% endgeneration %}{% endif %}
{{ pad_token }}{{ undefined_thing }}{{ messages | selectattr('role', 'equalto', 'user') | list | count }}
"""
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"a": "<&'\">", "b": [1, None, True, 2.5]}}}]


@pytest.mark.parametrize("source", [None, PROBE])
def test_equals_transformers(smollm2: Tokenizer, smollm2_oracle: Any, source: str | None) -> None:
    template = ChatTemplate(source or smollm2.chat_template, smollm2)
    for chat in CHATS:
        for header in (True, False):
            expected = smollm2_oracle.apply_chat_template(
                chat, chat_template=source, tools=TOOLS, add_generation_prompt=header, tokenize=False
            )
            given = {"add_generation_prompt": header, "variables": {"tools": TOOLS}}
            assert template.render(chat, **given) == expected
            assert template.encode(chat, **given) == smollm2_oracle.encode(expected, add_special_tokens=False)


def test_continue_final_message(smollm2: Tokenizer, smollm2_oracle: Any) -> None:
    """Case K04: continue mode ends exactly at the text; the default adds the header once; both is an error."""
    for content in ("The answer is", "The answer is ", "a  \n"):
        chat = [*ASK, {"role": "assistant", "content": content}]
        for source in (smollm2.chat_template, PROBE):
            template = ChatTemplate(source, smollm2)
            expected = smollm2_oracle.apply_chat_template(
                chat, chat_template=source, continue_final_message=True, tokenize=False
            )
            assert template.render(chat, continue_final_message=True) == expected
        assert ChatTemplate(smollm2.chat_template, smollm2).render(chat, continue_final_message=True).endswith(content)
    template = ChatTemplate(smollm2.chat_template, smollm2)
    assert template.render(ASK).count("<|im_start|>assistant\n") == 1
    assert "assistant\n" not in template.render(ASK, add_generation_prompt=False)
    with pytest.raises(InvalidRequest, match="exclude each other"):
        template.render(chat, add_generation_prompt=True, continue_final_message=True)
    for wrong in (ASK, [*ASK, {"role": "assistant", "content": ""}]):
        with pytest.raises(InvalidRequest, match="last message of the assistant"):
            template.render(wrong, continue_final_message=True)
    with pytest.raises(InvalidRequest, match="leaves out the last message"):
        ChatTemplate("fixed", smollm2).render(chat, continue_final_message=True)


def test_exactly_one_bos(byte_level_metadata: dict[str, Any]) -> None:
    """Case K01: whether the template prints BOS, the tokenizer adds it, both, or the user types it."""
    for adds in (True, False):
        tokenizer = Tokenizer.from_gguf(byte_level_metadata | {"tokenizer.ggml.add_bos_token": adds})
        for source in (
            "{{ bos_token }}x",
            "x",
            "{{ bos_token }}{{ bos_token }}x",
            "{{ bos_token + messages[0].content }}",
        ):
            if not adds and source == "x":
                continue
            ids = ChatTemplate(source, tokenizer).encode([{"role": "user", "content": "<s><s>"}])
            assert ids[0] == tokenizer.bos_id
            assert ids.count(tokenizer.bos_id) == 1
        text = ChatTemplate("{{ bos_token }}x", tokenizer).render(ASK)
        assert tokenizer.encode(text, parse_special=True).count(tokenizer.bos_id) == 1


def test_template_refuses(toy: Tokenizer) -> None:
    """Case K02: the template's own message reaches the caller, in one line."""
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('No system\n role here') }}{% endif %}ok"
    with pytest.raises(InvalidRequest, match="refuses these messages: No system role here") as caught:
        ChatTemplate(source, toy).render([{"role": "system", "content": "x"}])
    assert (caught.value.param, caught.value.code) == ("messages", "template_refused")
    assert ChatTemplate(source, toy).render(ASK) == "ok"


def test_developer_is_system_unless_the_template_knows_better(toy: Tokenizer) -> None:
    """Case K02."""
    chat = [{"role": "developer", "content": "x"}]
    assert ChatTemplate("{{ messages[0].role }}", toy).render(chat) == "system"
    assert ChatTemplate("{{ messages[0].role }}{# developer #}", toy).render(chat) == "developer"


def test_no_template(toy: Tokenizer) -> None:
    """Case K05."""
    with pytest.raises(InvalidRequest, match="no chat template; give one, or send a finished prompt"):
        ChatTemplate(None, toy).encode(ASK)


@pytest.mark.parametrize(
    "source", ["{{", "{% for %}", "{{ 1/0 }}", "{{ nothing.at.all }}", "{% include 'x' %}", "{{ 1|no }}"]
)
def test_broken_template_fails_its_request_only(toy: Tokenizer, source: str) -> None:
    template = ChatTemplate(source, toy)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="chat template"):
            template.render(ASK)


def test_clock_is_an_argument(toy: Tokenizer) -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", toy, clock=lambda: datetime(2024, 5, 3))
    assert template.render(ASK) == "2024-05-03"


def test_text_parts_join_with_a_newline(toy: Tokenizer) -> None:
    """Choice 12."""
    chat = [{"role": "user", "content": [{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}]}]
    assert ChatTemplate("{{ messages[0].content }}", toy).render(chat) == "a\nb\nc"


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([], "messages is empty"),
        ("hi", "must be a list"),
        ({"role": "user"}, "must be a list"),
        (None, "must be a list"),
        (["hi"], r"messages\[0\] must be a dict"),
        ([{"content": "x"}], r"messages\[0\].role is None"),
        ([{"role": "root", "content": "x"}], r"role is 'root'; it must be one of system"),
        ([*ASK, {"role": "user"}], r"messages\[1\].content is missing"),
        ([{"role": "user", "content": 3}], "content must be a text or a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"content\[0\] is of type 'image_url'"),
        ([{"role": "user", "content": [3]}], r"content\[0\] is of type int"),
        ([{"role": "user", "content": "x", "name": 3}], "name must be a text"),
        ([{"role": "assistant", "content": "x", "tool_calls": [1]}], "tool_calls must be a list"),
        ([{"role": "user", "content": "x", "extra": object()}], "holds a object"),
        ([{"role": "user", "content": "x", "extra": {1: 2}}], "key 1"),
    ],
)
def test_messages_that_cannot_be(toy: Tokenizer, messages: Any, where: str) -> None:
    with pytest.raises(InvalidRequest, match=where) as caught:
        ChatTemplate("x", toy).render(messages)
    assert caught.value.param == "messages"


def test_nesting_is_bounded(toy: Tokenizer) -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested more than 32"):
        ChatTemplate("x", toy).render([{"role": "user", "content": "x", "extra": deep}])


def test_tool_calls_may_go_without_content(toy: Tokenizer) -> None:
    chat = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]
    assert ChatTemplate("{{ messages[0].tool_calls[0].function.name }}", toy).render(chat) == "f"


@pytest.mark.parametrize("name", ["messages", "chat_template", "tokenize", "add_generation_prompt"])
def test_variables_cannot_smuggle(toy: Tokenizer, name: str) -> None:
    """Case G07."""
    with pytest.raises(InvalidRequest, match=name):
        ChatTemplate("x", toy).render(ASK, variables={name: True})

"""Case G07: a hostile template gets an error, soon, and little memory."""

from __future__ import annotations

import contextlib
import time

import pytest

from octavo.errors import InvalidRequest
from octavo.text.budget import TemplateLimits
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

GROW = "{%% set ns = namespace(s=%s) %%}{%% for i in range(99) %%}{%% set ns.s = %s %%}{%% endfor %%}"
CHAT = [{"role": "user", "content": "aaaa\n" * 20_000}]


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(25000) %}{% for b in range(25000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [messages, messages] recursive %}{{ loop(x) }}{{ loop(x) }}{% endfor %}",
        "{% for i in range(99999) %}{% if 'b' in messages[0].content %}{% endif %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = messages[0].content[1:] %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = messages[0].content.count('ab') %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = messages[0].content | upper %}{% endfor %}",
        GROW % ("'a'", "ns.s ~ ns.s"),
        GROW % ("'a'", "ns.s + ns.s"),
        GROW % ("['a']", "ns.s + ns.s"),
        GROW % ("'a'", "ns.s * 2"),
        GROW % ("'a'", "ns.s | replace('a', 'aa')"),
        GROW % ("'a'", "ns.s.replace('a', 'aa')"),
        GROW % ("'a'", "[ns.s, ns.s] | join"),
        GROW % ("'a'", "''.join([ns.s, ns.s])"),
        GROW % ("'a'", "'%s%s' % (ns.s, ns.s)"),
        GROW % ("'a'", "'%s%s' | format(ns.s, ns.s)"),
        GROW % ("'a'", "'{0}{0}'.format(ns.s)"),
        GROW % ("7", "ns.s * ns.s"),
        GROW % ("7", "ns.s ** 9"),
        "{{ 'a' * 1000000000 }}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ [0] * 1000000000 }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ 'a'.ljust(1000000000) }}{{ 'a'.zfill(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ messages[0].content | indent(100000) }}",
        "{{ messages[0].content | indent('x' * 100000) }}",
        "{{ messages[0].content.expandtabs(100000) }}",
        "{{ range(99999) | join(messages[0].content) }}",
        "{{ range(99999) | list | map('string') | map('replace', '1', 'x' * 10000) | list | length }}",
        "{{ range(10 ** 9) | list }}",
        "{{ lipsum(n=100000) }}",
        "{{ {'a': 1} | tojson(indent=1000000) }}",
        "{{ messages[0].content.format(1) }}{{ messages[0].content % 1 }}",
        "x" * 300_000,
    ],
)
def test_bombs(toy: Tokenizer, source: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidRequest, match="chat template") as caught:
        ChatTemplate(source, toy).render(CHAT)
    assert time.process_time() - start < 5
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ messages[0].content._marks.x }}",
        "{{ self._TemplateReference__context.environment.x }}",
        "{{ messages[0].content.format('x') }}",
    ],
)
def test_nothing_inside_is_reachable(toy: Tokenizer, source: str) -> None:
    """It is an error or, as jinja2's sandbox sometimes has it, nothing."""
    shown = ""
    with contextlib.suppress(InvalidRequest):
        shown = ChatTemplate(source, toy).render([{"role": "user", "content": "{0.__class__}"}])
    assert shown == ""


def test_long_chats_are_no_bombs(smollm2: Tokenizer) -> None:
    """1,000 turns, and one message of a million characters, are within the limits."""
    template = ChatTemplate(smollm2.chat_template, smollm2)
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"message {i}"} for i in range(1000)]
    assert template.render(turns).count("<|im_start|>") == 1002
    assert len(template.render([{"role": "user", "content": "word " * 200_000}])) > 1_000_000


def test_limits_are_arguments(toy: Tokenizer) -> None:
    source = "{% for i in range(50) %}x{% endfor %}"
    assert ChatTemplate(source, toy).render(CHAT) == "x" * 50
    for limits in (TemplateLimits(steps=20), TemplateLimits(size=20), TemplateLimits(source=20)):
        with pytest.raises(InvalidRequest, match="20"):
            ChatTemplate(source, toy, limits=limits).render(CHAT)

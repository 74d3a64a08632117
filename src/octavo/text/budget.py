"""A chat template's sandbox: what a hostile template may spend of time and memory. Knows no messages or tokens.

A template is code from a model file or a stranger. Attribute access is jinja2's sandbox. On top of it every loop
iteration, call, filter and comparison is charged to a budget, by the size of what it works on, and no value may grow
beyond a limit: so that one render ends after about a second at worst, whatever the template does.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_CHARS_A_STEP = 256  # copying or searching this many characters is about as dear as one step of the interpreter
_STEPS_A_CALL = 4
_MAX_INT_BITS = 4096
_MAX_WIDTH = 1000
_WIDE_FORMAT = re.compile(r"\d{4}|\*|\{[^{}]*\{")
_REMOVED_FILTERS = ("batch", "center", "lipsum", "pprint", "random", "slice", "urlize", "wordwrap", "xmlattr")


class TemplateLimitExceeded(jinja2.TemplateError):
    """A template wanted more than it may have."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """source: characters of a template. steps: of one render. size: characters, or elements, of any one value."""

    source: int = 1 << 18
    steps: int = 250_000
    size: int = 1 << 24


class _Budget:
    __slots__ = ("left", "limits")

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self.left = limits.steps

    def charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TemplateLimitExceeded(f"the template takes more than {self.limits.steps} steps")

    def charge_size(self, size: int) -> None:
        if size > self.limits.size:
            raise TemplateLimitExceeded(f"the template makes a value of {size} elements, more than {self.limits.size}")
        self.charge(1 + size // _CHARS_A_STEP)


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """jinja2's sandbox with the settings that chat templates expect, and limits."""

    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def __init__(self, limits: TemplateLimits) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        self.limits = limits
        self._local = threading.local()
        for name in _REMOVED_FILTERS:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        for name in ("replace", "join", "indent", "format"):
            self.filters[name] = _guarded(name, self.filters[name])
        self.filters |= {"_counted": _counted, "_weighed": _weighed, "_joined": _joined}

    @property
    def budget(self) -> _Budget:
        """That of the render in this thread."""
        budget: _Budget = self._local.budget
        return budget

    def load_source(self, source: str) -> jinja2.Template:
        """Compile a template. Raises jinja2.TemplateError."""
        if len(source) > self.limits.source:
            raise TemplateLimitExceeded(f"the template has {len(source)} characters, more than {self.limits.source}")
        tree = _Metering(self).visit(self.parse(source))
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None))

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """Run a template within the limits. Raises jinja2.TemplateError, or whatever the template runs into."""
        self._local.budget = _Budget(self.limits)
        size, chunks = 0, []
        for chunk in template.generate(variables):
            size += len(chunk)
            self.budget.charge_size(size if size > self.limits.size else len(chunk))
            chunks.append(chunk)
        return "".join(chunks)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(obj, Macro):
            owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)  # the sandbox wraps str.format
            _check_call(self.budget, getattr(obj, "__name__", ""), owner, args, kwargs)
        self.budget.charge(_STEPS_A_CALL)
        return super().call(context, obj, *args, **kwargs)

    def call_filter(self, name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        self.budget.charge_size(_size(value))
        return super().call_filter(name, value, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            self.budget.charge_size(_size(left) + _size(right))
        elif operator == "%" and isinstance(left, str):
            _check_format(self.budget, left, right)
        elif operator in ("*", "**"):
            _check_product(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, Sized) and not isinstance(value, jinja2.Undefined) else 0


def _check_product(budget: _Budget, operator: str, left: Any, right: Any) -> None:
    sized, times = (left, right) if isinstance(left, Sized) else (right, left)
    if operator == "*" and isinstance(sized, Sized):
        budget.charge_size(_size(sized) * max(int(times), 0))
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > _MAX_INT_BITS:
            raise TemplateLimitExceeded(f"the template makes a number of {bits} bits, more than {_MAX_INT_BITS}")


def _check_format(budget: _Budget, pattern: str, values: Any) -> None:
    if _WIDE_FORMAT.search(pattern):
        raise TemplateLimitExceeded("the template formats with a width of four digits or a computed one")
    several = values if isinstance(values, (tuple, list)) else (values,)
    fields = pattern.count("%") + pattern.count("{")
    # Every field may show every value, nested ones at their full length.
    budget.charge_size(len(pattern) + fields * (_MAX_WIDTH + sum(map(_deep_size, several))))


def _deep_size(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_deep_size(key) + _deep_size(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_deep_size, value))
    return _size(value) + 1


def _check_call(budget: _Budget, name: str, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Charge a method by the size of what it works on and of what it can make of it."""
    size = _size(owner)
    values = [*args, *kwargs.values()]
    if isinstance(owner, str):
        if name in ("format", "format_map"):
            _check_format(budget, owner, values)
        elif name == "replace" and len(args) >= 2:
            size += owner.count(str(args[0])) * _size(args[1])
        elif name == "join" and args:
            size += _joined_size(owner, args[0])
        elif name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
            size += max([size, 1]) * max([abs(each) for each in values if isinstance(each, int)], default=8)
    budget.charge_size(size + sum(map(_size, values)))


def _joined_size(separator: Any, parts: Any) -> int:
    if not isinstance(parts, (list, tuple, str, Mapping)):
        return 0
    sizes = [_size(part) or 1 for part in parts]
    return sum(sizes) + _size(separator) * len(sizes)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A built-in filter that can make much of little, with a look at its arguments first."""

    @jinja2.pass_eval_context
    def guarded(eval_context: nodes.EvalContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = eval_context.environment.budget  # type: ignore[attr-defined]
        if name == "replace":
            old, new = (*args, *kwargs.values())[:2]
            budget.charge_size(_size(value) + str(value).count(str(old)) * _size(new))
            return function(eval_context, value, *args, **kwargs)
        if name == "join":
            value = [*islice(value, budget.limits.size)]
            budget.charge_size(_joined_size(args[0] if args else kwargs.get("d", ""), value))
            return function(eval_context, value, *args, **kwargs)
        if name == "format":
            _check_format(budget, str(value), (*args, *kwargs.values()))
        elif any((isinstance(each, int) and each > 64) or _size(each) > 64 for each in (*args, *kwargs.values())):
            raise TemplateLimitExceeded("the template indents by more than 64")
        else:
            budget.charge_size(_size(value) * 64)
        return function(value, *args, **kwargs)

    return guarded


@jinja2.pass_context
def _counted(context: Context, values: Iterable[Any], weight: int) -> list[Any]:
    """What a loop runs over, charged in advance."""
    budget = context.environment.budget  # type: ignore[attr-defined]
    items = [*islice(values, max(0, budget.left // weight) + 1)]
    budget.charge(len(items) * weight)
    return items


@jinja2.pass_context
def _weighed(context: Context, value: Any) -> Any:
    """An operand, charged by its size."""
    context.environment.budget.charge_size(_size(value))  # type: ignore[attr-defined]
    return value


@jinja2.pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    """The operator `~`, which the sandbox does not let one intercept."""
    texts = [str(part) for part in parts]
    context.environment.budget.charge_size(sum(map(len, texts)))  # type: ignore[attr-defined]
    if all(type(text) is str for text in texts):
        return "".join(texts)
    return reduce(add, texts, "")  # strings with a mind of their own decide what their sum is


class _Metering(NodeTransformer):
    """Puts the meters into a template's syntax tree."""

    def __init__(self, environment: jinja2.Environment) -> None:
        self._environment = environment

    def _metered(self, node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Expr:
        metered = nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
        metered.set_environment(self._environment)
        return metered

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        text = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
        weight = 1 + sum(1 for _ in node.find_all(nodes.Node)) // 16 + text // _CHARS_A_STEP
        self.generic_visit(node)
        node.iter = self._metered(node.iter, "_counted", nodes.Const(weight, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._metered(nodes.List(node.nodes, lineno=node.lineno), "_joined")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = self._metered(node.expr, "_weighed")
        for operand in node.ops:
            operand.expr = self._metered(operand.expr, "_weighed")
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.node is not None:
            node.node = self._metered(node.node, "_weighed")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = self._metered(node.node, "_weighed")
        return node


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`, with which some templates mark answers for training: just its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body in place of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)

"""Flags for the engine's and the sampling settings, made from the dataclasses that own them. Parses no prompts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from octavo.cli.grammars import FORMS, parse_grammar
from octavo.config import EngineConfig, from_environment, parse_setting, setting_type
from octavo.errors import InvalidRequest
from octavo.grammar import Grammar
from octavo.params import SamplingParams

# A request's own seed and the engine's are one thing to somebody at a terminal: --seed is the request's.
_ENGINE_FLAGS = tuple(setting for setting in fields(EngineConfig) if setting.name != "seed")


@dataclass(frozen=True, slots=True)
class SamplingFlag:
    """How a field of SamplingParams is typed. parse: one value's text to the value. many: may be given repeatedly."""

    parse: Callable[[str], Any]
    metavar: str
    help: str
    many: bool = False


def _token_count(text: str) -> int | None:
    return None if text == "all" else int(text)


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    return int(token), float(value)


def _grammar(text: str) -> Grammar:
    try:
        return parse_grammar(text)
    except InvalidRequest as error:  # argparse would say of a ValueError only that there was one
        raise argparse.ArgumentTypeError(str(error)) from error


def _stopping(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text, text)


_token_count.__name__ = "number of tokens"  # argparse names the function in its complaints
_bias.__name__ = "ID=BIAS"

NOT_TYPED = frozenset(("pooling",))  # fields without a flag: they ask for a vector, which no command shows
SAMPLING_FLAGS: dict[str, SamplingFlag] = {
    "max_tokens": SamplingFlag(_token_count, "N", "most new tokens, or 'all' that the context leaves"),
    "min_tokens": SamplingFlag(int, "N", "the answer may not end before this many new tokens"),
    "temperature": SamplingFlag(float, "T", "0 takes the likeliest token each time; higher is more varied"),
    "top_k": SamplingFlag(int, "K", "draw from the K likeliest tokens; 0 is off"),
    "top_p": SamplingFlag(float, "P", "draw from the fewest tokens that together have this probability"),
    "min_p": SamplingFlag(float, "P", "leave out tokens less likely than this share of the likeliest"),
    "repetition_penalty": SamplingFlag(float, "X", "above 1 makes tokens of prompt and answer less likely"),
    "presence_penalty": SamplingFlag(float, "X", "taken once from tokens that the answer has"),
    "frequency_penalty": SamplingFlag(float, "X", "taken for each time that the answer has the token"),
    "logit_bias": SamplingFlag(_bias, "ID=BIAS", "add to the logit of one token", many=True),
    "bad_words": SamplingFlag(str, "TEXT", "a text that must not appear", many=True),
    "stop": SamplingFlag(str, "TEXT", "a text that ends the answer", many=True),
    "stop_token_ids": SamplingFlag(int, "ID", "a token that ends the answer", many=True),
    "seed": SamplingFlag(int, "N", "the same seed draws the same answer"),
    "n": SamplingFlag(int, "N", "answers to each prompt"),
    "best_of": SamplingFlag(int, "N", "sample N answers and keep the likeliest, by log-probability per token"),
    "beam_width": SamplingFlag(int, "N", "above 1: search N beams for the likeliest answers, best first"),
    "length_penalty": SamplingFlag(float, "X", "of beams: above 0 favours long answers, below 0 short ones"),
    "early_stopping": SamplingFlag(_stopping, "true|false|never", "whether beams stop at N finished answers"),
    "logprobs": SamplingFlag(int, "N", "report log-probabilities: the chosen token's and N alternatives"),
    "prompt_logprobs": SamplingFlag(int, "N", "likewise for the prompt's tokens"),
    "grammar": SamplingFlag(_grammar, "FORM", f"what the whole answer must be: {FORMS}"),
}
SAMPLING_SWITCHES: dict[str, str] = {
    "include_stop": "keep the stop text in the answer",
    "ignore_eos": "go on past the model's own end",
    "skip_special_tokens": "leave control tokens out of the text",
}


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of EngineConfig, `--no-...` for a switch that is on."""
    _add_setting_flags(parser, "engine", _ENGINE_FLAGS)


def add_setting_flags(parser: argparse.ArgumentParser, title: str, of: type[Any]) -> None:
    """One flag for each field of another class of settings."""
    _add_setting_flags(parser, title, fields(of))


def _add_setting_flags(parser: argparse.ArgumentParser, title: str, settings: Sequence[Field[Any]]) -> None:
    example = f"OCTAVO_{settings[0].name.upper()}"
    group = parser.add_argument_group(
        title, f"Each may also come from the environment: OCTAVO_ and the name, such as {example}."
    )
    for setting in settings:
        text = setting.metadata["help"]
        if setting_type(setting) is bool:
            _add_switch(group, setting.name, text, setting.default)
            continue
        choices = setting.metadata["choices"]
        group.add_argument(
            _flag(setting.name),
            default=argparse.SUPPRESS,
            metavar="|".join(choices) or setting.metadata["kind"] or "N",
            help=text if setting.default is None else f"{text} (default {setting.default})",
        )


def add_sampling_flags(parser: argparse.ArgumentParser, **defaults: object) -> None:
    """One flag for each field of SamplingParams. defaults: where the command's differ, for the help text."""
    group = parser.add_argument_group("sampling")
    for setting in fields(SamplingParams):
        if setting.name in NOT_TYPED:
            continue
        default = defaults.get(setting.name, setting.default)
        if setting.name in SAMPLING_SWITCHES:
            _add_switch(group, setting.name, SAMPLING_SWITCHES[setting.name], default)
            continue
        flag = SAMPLING_FLAGS[setting.name]
        shown = "; may be repeated" if flag.many else ""
        if default is not None and default is not MISSING and not flag.many:
            shown = f" (default {default})"
        group.add_argument(
            _flag(setting.name),
            default=argparse.SUPPRESS,
            type=flag.parse,
            metavar=flag.metavar,
            action="append" if flag.many else "store",
            help=flag.help + shown,
        )


def engine_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the environment and, over it, the flags say, by field name. Raises InvalidRequest for a wrong value."""
    settings = _given(arguments, _ENGINE_FLAGS, EngineConfig)
    EngineConfig(**settings)  # a wrong value is told before a model is looked for
    return settings


def other_settings(arguments: argparse.Namespace, of: type[Any]) -> dict[str, Any]:
    """Likewise for another class of settings, which checks them itself."""
    return _given(arguments, fields(of), of)


def as_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Engine settings as the environment of a process that is to have them."""
    return {f"OCTAVO_{name.upper()}": str(value) for name, value in settings.items() if value is not None}


def _given(arguments: argparse.Namespace, flags: Sequence[Field[Any]], of: type[Any]) -> dict[str, Any]:
    settings: dict[str, Any] = dict(from_environment(os.environ, of))
    for setting in flags:
        if setting.name in arguments:
            value = getattr(arguments, setting.name)
            settings[setting.name] = parse_setting(setting, value) if isinstance(value, str) else value
    return settings


def sampling_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The sampling settings that the flags give, by field name, as SamplingParams takes them."""
    names = [setting.name for setting in fields(SamplingParams) if setting.name in arguments]
    settings = {name: getattr(arguments, name) for name in names}
    for name, value in settings.items():
        if isinstance(value, list):
            settings[name] = dict(value) if name == "logit_bias" else tuple(value)
    return settings


def _add_switch(group: Any, name: str, text: str, default: object) -> None:
    """A bool: `--name` and `--no-name` both exist, so that a flag can undo the environment; the help shows one."""
    on, off = _flag(name), f"--no-{name.replace('_', '-')}"
    shown, hidden = ((off, f"do not {text}"), on) if default is True else ((on, text), off)
    group.add_argument(
        shown[0], dest=name, action="store_const", const=shown[0] == on, default=argparse.SUPPRESS, help=shown[1]
    )
    group.add_argument(
        hidden, dest=name, action="store_const", const=hidden == on, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

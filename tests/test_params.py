"""SamplingParams refuses what no engine can serve, by field, and normalises what it accepts."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequest
from octavo.params import MAX_CHOICES, MAX_LOGPROBS, MAX_STOP_STRINGS, SamplingParams

NUMBERS = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "repetition_penalty": (1e-9, 1e9),
}
INTEGERS = {
    "max_tokens": (0, 2**31 - 1),
    "min_tokens": (0, 128),
    "top_k": (-1, 2**31 - 1),
    "seed": (-(2**63), 2**64 - 1),
    "n": (1, MAX_CHOICES),
    "best_of": (1, MAX_CHOICES),
    "beam_width": (1, MAX_CHOICES),
    "logprobs": (0, MAX_LOGPROBS),
    "prompt_logprobs": (0, MAX_LOGPROBS),
}
FLAGS = ("include_stop", "ignore_eos", "skip_special_tokens")


def refused(**fields: Any) -> InvalidRequest:
    """The error that these fields raise; it must name the only field given and be one line."""
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**fields)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    return caught.value


def test_the_defaults_are_accepted_and_every_field_is_checked() -> None:
    SamplingParams()
    others = {"logit_bias", "bad_words", "stop", "stop_token_ids", "grammar", "length_penalty", "early_stopping"}
    others |= {"pooling"}
    assert {f.name for f in dataclasses.fields(SamplingParams)} == {*NUMBERS, *INTEGERS, *FLAGS, *others}


@pytest.mark.parametrize(("name", "limits"), [*NUMBERS.items(), *INTEGERS.items()])
def test_values_at_the_limits_are_accepted(name: str, limits: tuple[float, float]) -> None:
    """Case G03."""
    for value in limits:
        assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in NUMBERS for value in (math.nan, math.inf, -math.inf, True, False, "1", None, 1j)),
        *((name, Decimal("0.5")) for name in NUMBERS),
        *((name, 10**400) for name in NUMBERS),
        *((name, value) for name in INTEGERS for value in (True, False, 1.0, 1.5, math.nan, math.inf, "3", [1])),
        *((name, low - 1) for name, (low, _) in INTEGERS.items()),
        *((name, high + 1) for name, (_, high) in INTEGERS.items()),
        *((name, value) for name in FLAGS for value in (0, 1, None, "true")),
        *(("temperature", value) for value in (-1, 3, 1e308, -1e-9, 2.0000001, np.bool_(True))),
        *(("top_p", value) for value in (-0.1, 1.1)),
        *(("min_p", value) for value in (2, -0.01)),
        *(("presence_penalty", value) for value in (5, -2.01)),
        *(("frequency_penalty", value) for value in (5, -2.01)),
        *(("repetition_penalty", value) for value in (0, 0.0, -0.0, -1)),
        *(("seed", value) for value in ("x", 2**70, 2**64)),
        *(("n", value) for value in (0, -1, 1.5, 10**6, None)),
        *(("top_k", value) for value in (-2, None)),
        ("min_tokens", None),
        *(("logprobs", value) for value in (-5, 21, 10**6)),
        *(("prompt_logprobs", value) for value in (-1, 49152)),
        *(("max_tokens", value) for value in (-1, -2)),
        *(("stop", value) for value in ("", [""], ["", "END"], [1], {"a": 1}, 1, True, b"x", ["a"] * 65, {"a"})),
        *(("bad_words", value) for value in ([""], [" "], ["\t"], "", " ", [1], [None], 3)),
        *(("stop_token_ids", value) for value in ([-1], [True], ["1"], [1.0], 5, "12", [2**31], [None])),
        *(("logit_bias", value) for value in ({"191222": -100}, {"-1": 5}, {-1: 5}, {"abc": 1}, {True: 1})),
        *(("logit_bias", {5: value}) for value in (1000, None, math.nan, math.inf, True, "1", -100.5)),
        *(("logit_bias", value) for value in ([1], "5", 5, {2**31: 1})),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    """Cases B05, F05, G02, G03, G10, G11, H04 and choices 4, 7, 8, 25."""
    error = refused(**{name: value})
    assert error.param == name
    assert error.code == "invalid_value"
    assert name in str(error)


def test_a_number_too_long_to_print_is_refused_like_any_other() -> None:
    for name in (*INTEGERS, *NUMBERS):
        assert refused(**{name: 10**5000}).param == name


def test_a_minimum_above_the_maximum_is_refused_with_both_numbers() -> None:
    """Case F06."""
    error = refused(min_tokens=11, max_tokens=10)
    assert error.param == "min_tokens"
    assert "11" in str(error)
    assert "10" in str(error)
    SamplingParams(min_tokens=10, max_tokens=10)
    SamplingParams(min_tokens=10, max_tokens=None)


def test_absent_null_and_empty_are_the_same() -> None:
    """Case F05."""
    absent = SamplingParams()
    for name in ("stop", "bad_words", "stop_token_ids"):
        assert SamplingParams(**{name: None}) == absent == SamplingParams(**{name: []})  # type: ignore[arg-type]
    assert SamplingParams(logit_bias=None) == absent  # type: ignore[arg-type]


def test_lists_and_lone_strings_become_tuples() -> None:
    params = SamplingParams(stop=["a", "\n"], bad_words="x y", stop_token_ids=[3, 4])  # type: ignore[arg-type]
    assert params.stop == ("a", "\n")
    assert params.bad_words == ("x y",)
    assert params.stop_token_ids == (3, 4)
    assert SamplingParams(stop=("s" * 10_000,) * MAX_STOP_STRINGS).stop[0] == "s" * 10_000


def test_the_callers_collections_are_copied() -> None:
    bias, stop = {7: 1.0}, ["a"]
    params = SamplingParams(logit_bias=bias, stop=stop)  # type: ignore[arg-type]
    bias[8] = 2.0
    stop.append("")
    assert params.logit_bias == {7: 1.0}
    assert params.stop == ("a",)


def test_numbers_of_numpy_become_plain_ones() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),
        top_k=np.int64(4),
        seed=np.uint64(2**64 - 1),
        logit_bias={np.int32(3): np.float32(1)},
    )
    assert type(params.temperature) is float
    assert type(params.top_k) is int
    assert params.seed == 2**64 - 1
    assert [(type(k), type(v)) for k, v in params.logit_bias.items()] == [(int, float)]


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, SamplingParams(temperature=-0.0).temperature) == 1


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().n = 2  # type: ignore[misc]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(SamplingParams)]), anything, max_size=4))
def test_any_values_are_accepted_sound_or_refused_by_name(fields: dict[str, Any]) -> None:
    """Case G03: nothing but InvalidRequest, which names one of the fields that were given."""
    try:
        params = SamplingParams(**fields)
    except InvalidRequest as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.param in fields
        return
    for name, (low, high) in NUMBERS.items():
        assert low <= getattr(params, name) <= high or name == "repetition_penalty"
    assert params.repetition_penalty > 0
    assert params == dataclasses.replace(params)


def test_best_of_samples_at_least_as_many_as_are_returned() -> None:
    assert SamplingParams(n=2, best_of=5).sequences == 5
    assert SamplingParams(n=2).sequences == 2
    error = refused(n=3, best_of=2)
    assert error.param == "best_of"
    assert "2" in str(error)
    assert "3" in str(error)
    assert refused(beam_width=4, best_of=4).param == "best_of"

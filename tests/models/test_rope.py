"""Rotary frequencies against transformers' own functions, in every spelling of the settings."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo.errors import ModelFormatError, UnsupportedModel
from octavo.models.rope import RopeSettings, rope_spec
from octavo.models.source import Source, gguf_rope, hf_rope, hf_rope_options
from octavo.models.spec import Dimensions, RopeSpec
from octavo.weights.fields import Fields

THETA, HEAD, CONTEXT = 100_000.0, 64, 512
DIMS = Dimensions(1, HEAD, 1, 1, HEAD, 64, CONTEXT, 1e-5)
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3 by 8": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "llama3 by 32": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn, attention factor": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "attention_factor": 1.7,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    },
    "yarn, two magnitudes": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 128,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "truncate": False,
    },
}


def from_config(config: dict[str, Any], *, length: int | None = None) -> RopeSpec:
    """The spec of a config.json with these keys."""
    fields = Fields(config, "config.json")
    return rope_spec(hf_rope(Source(fields, {}, length), DIMS, hf_rope_options(fields)), "half")


def plain(theta: float) -> list[float]:
    return [theta ** (-2 * i / HEAD) for i in range(HEAD // 2)]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", SCALINGS)
def test_scaling_equals_transformers(name: str, times: int) -> None:
    """Case L09: frequencies within 1e-6, cosines and sines too, at 1 and 3 times the context."""
    options = SCALINGS[name]
    config = LlamaConfig(
        hidden_size=HEAD,
        num_attention_heads=1,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_theta": THETA, **options},
    )
    length = CONTEXT * times
    theirs, scale = ROPE_INIT_FUNCTIONS[options["rope_type"]](config, torch.device("cpu"), seq_len=length)
    ours = from_config({"rope_theta": THETA, "rope_scaling": options}, length=length)
    inv_freq = np.array(ours.inv_freq, np.float32)
    np.testing.assert_allclose(inv_freq, theirs.numpy(), rtol=1e-6, atol=0)
    assert ours.scale == pytest.approx(scale, abs=1e-9)
    angles = np.outer(np.arange(CONTEXT), inv_freq), np.outer(np.arange(CONTEXT), theirs.double().numpy())
    for function in (np.cos, np.sin):
        np.testing.assert_allclose(function(angles[0]), function(angles[1]), atol=1e-4)


def test_dynamic_scaling_follows_the_length_served() -> None:
    """Case L09: nothing changes up to the context, the base grows beyond it."""
    config = {"rope_theta": THETA, "rope_scaling": SCALINGS["dynamic"]}
    assert from_config(config).inv_freq == pytest.approx(plain(THETA), rel=1e-6)
    longer = THETA * (2 * 3 - 1) ** (HEAD / (HEAD - 2))
    assert from_config(config, length=3 * CONTEXT).inv_freq == pytest.approx(plain(longer), rel=1e-6)


@pytest.mark.parametrize(
    ("config", "factor"),
    [
        ({"rope_theta": 100000, "rope_scaling": {"type": "linear", "factor": 2}}, 2),
        ({"rope_theta": 100000, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 2),
        ({"rope_parameters": {"rope_theta": 100000.0}}, 1),
        ({"rope_parameters": {"rope_theta": 100000, "rope_type": "linear", "factor": 2}}, 2),
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 100000, "rope_type": "default"}}, 1),
        ({"rope_theta": 100000, "rope_scaling": None}, 1),
        ({"rope_theta": 100000.0}, 1),
    ],
)
def test_every_spelling_is_understood(config: dict[str, Any], factor: float) -> None:
    """Case L10: theta is 100000 in all of them."""
    assert from_config(config).inv_freq == pytest.approx([f / factor for f in plain(THETA)], rel=1e-6)


def test_missing_keys_are_assumed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Case L10."""
    with caplog.at_level(logging.WARNING, "octavo"):
        assert from_config({}).inv_freq == pytest.approx(plain(10_000), rel=1e-6)
        options = {key: v for key, v in SCALINGS["llama3 by 8"].items() if "original" not in key}
        from_config({"rope_theta": THETA, "rope_scaling": options})
    assert [record.getMessage() for record in caplog.records] == [
        "config.json: rope_theta is missing, 10000.0 is assumed",
        "config.json: rope_scaling: original_max_position_embeddings is missing, 512 is assumed",
    ]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rope_type": "foo"}, UnsupportedModel, "'foo' is not supported; supported are default, linear"),
        ({"type": "longrope", "factor": 4}, UnsupportedModel, "'longrope'"),
        ({"rope_type": "linear"}, ModelFormatError, "factor is missing"),
        ({"rope_type": "linear", "factor": 0}, ModelFormatError, "factor is 0, not above 0"),
        ({"rope_type": "linear", "factor": "8"}, ModelFormatError, "factor is '8', not a finite number"),
        ({"rope_type": 3}, ModelFormatError, "rope_type is 3, not a string"),
        ({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}, ModelFormatError, "below"),
    ],
)
def test_senseless_scaling_is_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    """Case L10: an unknown kind refuses to load."""
    with pytest.raises(error, match=words):
        from_config({"rope_theta": THETA, "rope_scaling": options})


def gguf_settings(keys: dict[str, Any]) -> RopeSettings:
    return gguf_rope(Source(Fields({f"llama.{k}": v for k, v in keys.items()}, "file", "llama."), {}, None), DIMS)


def test_gguf_spellings() -> None:
    """Case L10: linear scaling under its newer and older key; "none" is none."""
    base = {"rope.freq_base": THETA}
    for keys in (
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"rope.scale_linear": 4.0},
    ):
        spec = rope_spec(gguf_settings(base | keys), "interleaved")
        assert spec.inv_freq == pytest.approx([f / 4 for f in plain(THETA)], rel=1e-6)
    for keys in ({}, {"rope.scaling.type": "none"}):
        assert rope_spec(gguf_settings(base | keys), "half").inv_freq == pytest.approx(plain(THETA), rel=1e-6)


def test_gguf_yarn_equals_the_same_settings_of_a_directory() -> None:
    """Case L09."""
    keys = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 128, "freq_base": THETA}
    ours = rope_spec(gguf_settings({f"rope.{key}": value for key, value in keys.items()}), "half")
    theirs = from_config({"rope_theta": THETA, "rope_scaling": SCALINGS["yarn"]})
    assert ours.inv_freq == theirs.inv_freq
    assert ours.scale == pytest.approx(theirs.scale) == pytest.approx(1 + 0.1 * math.log(4))


def test_divisors_of_a_file_equal_llama3_scaling() -> None:
    """Case L02: rope_freqs.weight as converters write it for Llama 3.1."""
    llama3 = from_config({"rope_theta": THETA, "rope_scaling": SCALINGS["llama3 by 8"]})
    divisors = (np.array(plain(THETA)) / np.array(llama3.inv_freq)).astype(np.float32)
    spec = rope_spec(gguf_settings({"rope.freq_base": THETA}), "half", divisors)
    assert spec.inv_freq == pytest.approx(llama3.inv_freq, rel=1e-6)
    with pytest.raises(ModelFormatError, match="divisors"):
        rope_spec(gguf_settings({"rope.freq_base": THETA}), "half", divisors[1:])
    with pytest.raises(ModelFormatError, match="divisors"):
        rope_spec(gguf_settings({"rope.freq_base": THETA}), "half", divisors * 0)

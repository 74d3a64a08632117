"""Settings: ranges, sizes as text, and the environment."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from octavo.config import EngineConfig, from_environment, parse_bytes, parse_setting, setting_type
from octavo.errors import InvalidRequest


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        ("4096", 4096),
        ("2GiB", 2 << 30),
        (" 512 mib ", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("2 GB", 2 * 10**9),
        ("0.1TB", 10**11),
        ("64kB", 64_000),
    ],
)
def test_sizes(value: int | str, size: int) -> None:
    assert parse_bytes(value) == size


@pytest.mark.parametrize(
    "value", [0, -1, True, 1.5, None, "", "GiB", "2G", "2 gigabytes", "-1GB", "1e9", "0.1B", "nan", "٣GB1"]
)
def test_what_is_no_size(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="kv_memory must be bytes") as caught:
        parse_bytes(value, param="kv_memory")
    assert caught.value.param == "kv_memory"


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 0},
        {"block_size": 1025},
        {"block_size": True},
        {"block_size": 16.0},
        {"block_size": "16"},
        {"block_size": None},
        {"kv_memory": "much"},
        {"kv_memory": 0},
        {"num_blocks": 0},
        {"max_seqs": 0},
        {"max_batched_tokens": 63},
        {"max_model_len": 0},
        {"threads": -1},
        {"dtype": "float8"},
        {"kv_dtype": None},
        {"prefix_cache": 1},
        {"prefix_cache": None},
        {"seed": -1},
        {"seed": 2**64},
        {"backend": "abacus"},
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        EngineConfig(**wrong)
    (name,) = wrong
    assert caught.value.param == name
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_are_few_frozen_and_explained() -> None:
    settings = fields(EngineConfig)
    assert len(settings) <= 25
    assert all(setting.metadata["help"] for setting in settings)
    with pytest.raises(FrozenInstanceError):
        EngineConfig().block_size = 8  # type: ignore[misc]


def test_the_engine_takes_every_setting_with_the_same_default() -> None:
    from octavo import LLM

    arguments = inspect.signature(LLM).parameters
    assert {setting.name: setting.default for setting in fields(EngineConfig)} == {
        name: argument.default for name, argument in arguments.items() if name != "model"
    }


def test_the_environment_gives_settings() -> None:
    environment = {
        "OCTAVO_MAX_SEQS": "8",
        "OCTAVO_PREFIX_CACHE": "off",
        "OCTAVO_KV_MEMORY": "1GiB",
        "OCTAVO_THREADS": "",
        "OCTAVO_CHECK": "2",
        "MAX_SEQS": "9",
    }
    assert from_environment(environment) == {"max_seqs": 8, "prefix_cache": False, "kv_memory": "1GiB"}
    with pytest.raises(InvalidRequest, match="OCTAVO_MAX_SEQS: max_seqs must be a whole number, not 'many'"):
        from_environment({"OCTAVO_MAX_SEQS": "many"})
    with pytest.raises(InvalidRequest, match="OCTAVO_PREFIX_CACHE: prefix_cache must be one of"):
        from_environment({"OCTAVO_PREFIX_CACHE": "maybe"})


def test_text_becomes_the_fields_type() -> None:
    by_name = {setting.name: setting for setting in fields(EngineConfig)}
    assert setting_type(by_name["kv_memory"]) is str
    assert parse_setting(by_name["block_size"], "32") == 32
    assert parse_setting(by_name["prefix_cache"], "TRUE") is True
    assert parse_setting(by_name["backend"], "numpy") == "numpy"

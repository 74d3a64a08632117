"""The server's settings: their defaults, ranges, flags and environment."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace

import pytest

from octavo.cli.flags import add_setting_flags, other_settings
from octavo.errors import InvalidRequest
from octavo.server.settings import ServerConfig


def parse(*argv: str) -> ServerConfig:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, "server", ServerConfig)
    return ServerConfig(**other_settings(parser.parse_args(argv), ServerConfig))


def test_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in fields(ServerConfig):
        monkeypatch.delenv(f"OCTAVO_{setting.name.upper()}", raising=False)
    assert parse() == ServerConfig()
    assert parse("--port", "9", "--host", "::1", "--no-access-log") == replace(
        ServerConfig(), port=9, host="::1", access_log=False
    )
    monkeypatch.setenv("OCTAVO_DRAIN", "7")
    assert parse().drain == 7
    assert parse("--drain", "0").drain == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", -1), ("port", 65536), ("port", True), ("max_queue", 0), ("drain", -1), ("host", 5), ("access_log", 1)],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        ServerConfig(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name

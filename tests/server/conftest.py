"""Servers for the tests, in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_harness import CHAIN, ENGINE, MODEL, TEMPLATE, InProcess
from toy import make_toy

from octavo import EngineConfig
from octavo.server.settings import ServerConfig


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_toy(tmp_path_factory.mktemp("server") / MODEL, CHAIN)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="session")
def served(toy_folder: Path) -> Iterator[InProcess]:
    """One server for all tests that leave it as it was."""
    server = InProcess(toy_folder, ServerConfig(max_body=1 << 20, access_log=False), ENGINE).start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def wide(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """The toy model with room for the instructions of tools, for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("wide") / MODEL
    shutil.copytree(toy_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    server = InProcess(folder, ServerConfig(access_log=False), EngineConfig(num_blocks=256, max_seqs=8)).start()
    yield server
    server.close()


@pytest.fixture
def serve(toy_folder: Path) -> Iterator[Callable[..., InProcess]]:
    """serve(**settings of the server): another server, for tests that break or fill it."""
    made: list[InProcess] = []

    def make(engine: Any = ENGINE, keys: Any = None, **settings: Any) -> InProcess:
        config = ServerConfig(**{"access_log": False, **settings})
        made.append(InProcess(toy_folder, config, engine, keys).start())
        return made[-1]

    yield make
    for server in made:
        server.close()

"""Clients of OpenAI's protocol against `octavo serve`: each runs its script of calls in an environment of its own.

`make test-clients` makes the environments. The official client, as octavo's own tests have it, needs none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_harness import CHAIN, MODEL, TEMPLATE
from server_process import Process
from toy import make_toy

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[2] / "build" / "clients"
KEY = "a-key-that-nobody-guesses"
CONTEXT = 2048


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with keys, around the toy model with room for tools."""
    folder = make_toy(tmp_path_factory.mktemp("clients") / MODEL, CHAIN)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}))
    keys = folder / "keys"
    keys.write_text(f"ann:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    with Process(folder, "--num-blocks", "512", "--api-keys", str(keys)) as running:
        yield running
        assert running.end() == 0


def run(process: Process, *program: str) -> None:
    """A client's script, which must say nothing and leave one request in the middle of its stream."""
    before = process.metric("octavo_requests_aborted_total")
    features = ["embeddings"] if "/v1/embeddings" in process.get("/openapi.json")[1] else []
    argv = [*program, f"http://127.0.0.1:{process.port}/v1", KEY, *features]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=plain)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    process.until("octavo_requests_running", 0)
    process.until("octavo_kv_blocks_used", 0)
    assert process.metric("octavo_requests_aborted_total") > before


def environment(name: str, program: str) -> str:
    """A program of one of the environments."""
    path = ENVIRONMENTS / name / program
    assert path.exists(), f"{path} is missing: run make test-clients"
    return str(path)


def test_the_official_client(process: Process) -> None:
    """Cases G12, I06, K06: the current one, whose helpers check more than the older one's."""
    run(process, sys.executable, str(HERE / "openai_script.py"))


@pytest.mark.clients
@pytest.mark.parametrize(
    ("name", "script"),
    [("openai-oldest", "openai"), ("langchain", "langchain"), ("llamaindex", "llamaindex")],
)
def test_a_client_in_python(process: Process, name: str, script: str) -> None:
    run(process, environment(name, "bin/python"), str(HERE / f"{script}_script.py"))


@pytest.mark.clients
def test_a_client_in_javascript(process: Process) -> None:
    """Node looks for packages beside the script."""
    environment("node", "node_modules/openai")
    node = shutil.which("node")
    assert node is not None
    run(process, node, shutil.copy(HERE / "node_script.mjs", ENVIRONMENTS / "node"))


@pytest.mark.clients
def test_curl(process: Process) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    run(process, bash, str(HERE / "curl_script.sh"))

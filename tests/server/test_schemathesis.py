"""schemathesis, which makes requests from the OpenAPI document, finds nothing in the server."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import Process

KEY = "a-key-that-nobody-guesses"
# A body that the document allows may be refused all the same: for the context's length, for what the vocabulary has,
# for two fields that contradict each other. So 400 is no finding there; 408, 413, 415 and 422 would be.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 400, 404, 429]
"""
# st's own name for its command; as a module it needs no PATH.
PROGRAM = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


def run(process: Process, folder: Path, *options: str) -> str:
    """All checks on every endpoint; what it said, when it found nothing."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    url = f"http://127.0.0.1:{process.port}/openapi.json"
    argv = [sys.executable, "-c", PROGRAM, "run", url, "--checks", "all", "-H", f"Authorization: Bearer {KEY}"]
    argv += [
        "--warnings",
        "off",
        "--no-color",
        "--continue-on-failure",
        "--no-shrink",
        "--request-timeout",
        "30",
        *options,
    ]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def guarded(toy_folder: Path, tmp_path: Path) -> Process:
    """A server that asks for keys, so that missing and wrong ones are tried as well."""
    keys = tmp_path / "keys"
    keys.write_text(f"ann:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    return Process(toy_folder, "--api-keys", str(keys), "--no-access-log", check="2")


def test_a_sample(guarded: Process, tmp_path: Path) -> None:
    """Random bodies, as the document has them and broken ones."""
    with guarded:
        said = run(guarded, tmp_path, "--phases", "fuzzing", "-n", "8", "--seed", "7")
        assert "No issues found" in said, said
        assert guarded.get("/health")[0] == 200


@pytest.mark.slow
def test_at_length(guarded: Process, tmp_path: Path) -> None:
    """Every bound and kind of every field in turn, then some thousands of random bodies."""
    with guarded:
        said = run(guarded, tmp_path, "-n", "100")
        assert "No issues found" in said, said
        assert guarded.get("/health")[0] == 200

"""What importing costs, and that the memory library stands alone. Each runs in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

import octavo


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def outside_the_standard_library(program: str) -> set[str]:
    listing = (
        "import sys; before = set(sys.modules); "
        f"{program}; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    return set(run(listing).split()) - {"octavo"}


@pytest.mark.parametrize(
    "program",
    ["import octavo", "import octavo.kv", "from octavo import EngineConfig, SamplingParams", "import octavo.cli.main"],
)
def test_needs_the_standard_library_alone(program: str) -> None:
    assert outside_the_standard_library(program) == set()


def test_the_engine_brings_neither_torch_nor_transformers() -> None:
    brought = outside_the_standard_library("from octavo import LLM")
    assert "numpy" in brought
    assert not brought & {"torch", "transformers", "huggingface_hub", "prompt_toolkit"}


def test_names() -> None:
    assert set(octavo.__all__) <= set(dir(octavo))
    assert octavo.__version__.count(".") == 2
    assert octavo.EngineConfig().block_size == 16
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = octavo.nothing

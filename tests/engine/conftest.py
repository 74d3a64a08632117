"""Engines for the tests of the request path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy import ToyFactory, make_toy

from octavo import LLM


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyFactory]:
    """toy(chain, **settings): an LLM that continues the first piece of `chain` with the others; checked every step."""
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    made: list[LLM] = []

    def make(
        chain: Sequence[str],
        *,
        eos: Sequence[str] = ("<eos>",),
        padded_rows: int = 0,
        num_blocks: int = 64,
        **settings: Any,
    ) -> LLM:
        folder = make_toy(tmp_path / f"toy{len(made)}", chain, eos=eos, padded_rows=padded_rows)
        made.append(LLM(folder, num_blocks=num_blocks, **settings))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[LLM]:
    """The default model with a roomy pool; tests share it, so none may rely on a cold prefix cache."""
    with LLM(smollm2_path, kv_memory="1GiB", max_model_len=2048) as llm:
        yield llm

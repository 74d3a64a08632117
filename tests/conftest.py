"""What every part shares: the two real models, fetched once into the user's cache, and Hypothesis without a clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from octavo.weights.catalog import resolve

# How long an example takes says more about the machine than about the code.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M Instruct: Llama architecture, Q4_1 and Q8_0, byte-level BPE, chat template."""
    return resolve("smollm2-135m", progress=False)


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M base: Q4_K, Q5_0, Q6_K, Q8_0, SentencePiece, sliding window 512."""
    return resolve("gemma3-270m", progress=False)

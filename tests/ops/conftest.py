"""The fixture through which the conformance suite meets every backend."""

from __future__ import annotations

import pytest
from backends import BACKENDS, Backend


@pytest.fixture(scope="session", params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    return request.param

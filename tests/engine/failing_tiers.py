"""Engines whose disk tier fails, tears, lies and fills up, at random."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo.engine import tiers as engine_tiers
from octavo.tiers.disk import DiskLimits, DiskTier

sys.path.append(str(Path(__file__).parents[1] / "tiers"))
from faulty_files import FaultyFiles

RESTLESS = DiskLimits(failures=1 << 30, rest_s=0.0, patience_s=20.0)


@contextmanager
def tiers_that_fail(seed: int, one_in: int) -> Iterator[FaultyFiles]:
    """Every disk tier that is opened meanwhile: sound while it opens, then every `one_in`-th operation goes wrong."""
    files = FaultyFiles(seed, 0)

    def opened(*args: object) -> DiskTier:
        files.one_in = 0
        tier = functools.partial(DiskTier, files=files, limits=RESTLESS)(*args)  # type: ignore[arg-type]
        files.one_in = one_in
        return tier

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_tiers, "DiskTier", opened)
        yield files

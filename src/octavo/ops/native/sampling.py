"""`RowSampler` in C++: rows shared among the threads, no sort of a vocabulary. Chooses nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.ops.native import _native
from octavo.ops.sampling import Expectation, Filters, Row


class NativeRowSampler:
    """See `octavo.ops.sampling.RowSampler`; it gives the bits of `octavo.ops.numpy.sampling`."""

    def __init__(self, runtime: _native.Runtime) -> None:
        self._sampler = _native.RowSampler(runtime)

    def draw(self, rows: Sequence[Row], filters: Sequence[Filters], uniforms: Sequence[float]) -> list[int]:
        return self._sampler.draw(rows, filters, uniforms)

    def expect(self, rows: Sequence[Row], counts: Sequence[int]) -> list[Expectation]:
        return [Expectation(*found) for found in self._sampler.expect(rows, counts)] if rows else []

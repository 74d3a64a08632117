"""ALiBi's slopes against the paper's construction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.ops.alibi import alibi_slopes


def by_the_paper(n: int) -> list[float]:
    """A geometric sequence from 2^(-8/n) for powers of two; else that of the closest lower power, and every second one
    of its double."""
    if math.log2(n).is_integer():
        start = 2 ** (-8 / n)
        return [start ** (i + 1) for i in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return by_the_paper(closest) + by_the_paper(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20, 32, 71])
def test_slopes(heads: int) -> None:
    """Case L13."""
    np.testing.assert_allclose(alibi_slopes(heads), by_the_paper(heads), rtol=1e-6)
    assert alibi_slopes(heads).dtype == np.float32


def test_known_slopes() -> None:
    """Case L13: eight heads run from 1/2 to 1/256, and twelve take four of those of sixteen."""
    assert alibi_slopes(8)[[0, -1]].tolist() == [1 / 2, 1 / 256]
    np.testing.assert_array_equal(alibi_slopes(12)[:8], alibi_slopes(8))
    np.testing.assert_array_equal(alibi_slopes(12)[8:], alibi_slopes(16)[0:8:2])


def test_no_heads() -> None:
    with pytest.raises(ValueError, match="not 0"):
        alibi_slopes(0)

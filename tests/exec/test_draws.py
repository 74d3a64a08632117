"""The uniform numbers: that they are Philox's, that they are uniform and that no two streams resemble each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.exec.random import Draws

WORD = (1 << 64) - 1


def philox4x64(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds, from the definition in the paper."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (b >> 64) ^ c1 ^ k0, b & WORD, (a >> 64) ^ c3 ^ k1, a & WORD
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & WORD, (k1 + 0xBB67AE8584CAA73B) & WORD
    return c0, c1, c2, c3


def stream(seed: int, choice: int, n: int) -> np.ndarray:
    draws = Draws(seed, choice)
    return np.array([draws.at(position) for position in range(n)])


def test_reference_gives_the_published_vectors() -> None:
    """Known answers of the paper's own test file, for counter and key all zeros and all ones."""
    zeros = (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)
    ones = (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0)
    assert philox4x64((0, 0, 0, 0), (0, 0)) == zeros
    assert philox4x64((WORD,) * 4, (WORD, WORD)) == ones


@settings(deadline=None, max_examples=60)
@given(st.integers(-(2**63), WORD), st.integers(0, 127), st.integers(0, 10**7))
def test_position_decides(seed: int, choice: int, position: int) -> None:
    """Any position, in any order, is that place of the Philox stream keyed (seed, choice)."""
    word = philox4x64((position // 4 + 1, 0, 0, 0), (seed & WORD, choice))[position % 4]
    draws = Draws(seed, choice)
    draws.at(3)
    assert draws.at(position) == (word >> 11) * 2.0**-53
    assert draws.at(3) == Draws(seed, choice).at(3)


def test_equals_numpys_stream() -> None:
    expected = np.random.Generator(np.random.Philox(key=[7, 2])).random(1000)
    assert (stream(7, 2, 1000) == expected).all()


def test_uniform() -> None:
    """Kolmogorov-Smirnov over positions and over seeds; serial correlation at lags 1 to 8."""
    n = 20_000
    over_positions = stream(11, 0, n)
    over_seeds = np.array([Draws(seed, 0).at(5) for seed in range(3000)])
    for u in (over_positions, over_seeds):
        assert u.min() >= 0
        assert u.max() < 1
        places = np.arange(len(u) + 1) / len(u)
        u_sorted = np.sort(u)
        distance = max(np.abs(u_sorted - places[1:]).max(), np.abs(u_sorted - places[:-1]).max())
        assert distance * np.sqrt(len(u)) < 1.95  # the 0.1 % point of Kolmogorov's distribution
    for lag in range(1, 9):
        correlation = np.corrcoef(over_positions[:-lag], over_positions[lag:])[0, 1]
        assert abs(correlation) < 4 / np.sqrt(n)


@pytest.mark.parametrize(
    ("one", "other"), [((3, 0), (4, 0)), ((3, 0), (3, 1)), ((3, 1), (4, 0)), ((0, 1), (1, 0)), ((3, 0), (3 + 2**32, 0))]
)
def test_streams_are_unrelated(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Neighbouring seeds and choices; choice i of seed s is not choice 0 of seed s + i (case B02)."""
    a, b = stream(*one, 5000), stream(*other, 5000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(5000)
    assert len(np.intersect1d(a, b)) == 0

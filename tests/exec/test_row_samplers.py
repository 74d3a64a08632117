"""Every implementation of `RowSampler` gives the bits of the numpy one: any row, any filters, any company."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_row import SAMPLERS

from octavo.ops.native import _native
from octavo.ops.native.sampling import NativeRowSampler
from octavo.ops.numpy.sampling import NumpyRowSampler, weigh
from octavo.ops.sampling import Filters

ORACLE = NumpyRowSampler()
SIZES = (1, 2, 15, 64, 65, 300, 5000)


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """All spreads; ties; holes of minus infinity; values at the ends of float32; both zeros; now and then a NaN."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from(SIZES))
    row = rng.normal(scale=draw(st.sampled_from([0.0, 1e-6, 1.0, 6.0, 1e4, 3e37])), size=size)
    if draw(st.booleans()):
        row = np.round(row * 2) / 2
    made = row.astype(np.float32)
    for value in draw(st.lists(st.sampled_from([-math.inf, -math.inf, -0.0, 3e38, -3e38]), max_size=3)):
        made[rng.random(size) < 0.3] = value
    if draw(st.integers(0, 9)) == 0:
        made[rng.integers(size)] = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    if draw(st.integers(0, 19)) == 0:
        made[:] = -math.inf
    return made


some_filters = st.builds(
    Filters,
    st.sampled_from([0.0, 1e-4]) | st.floats(1.1e-4, 2.0) | st.sampled_from([0.7, 1.0]),
    st.sampled_from([-1, 0, 0, 1, 2, 7, 40, 63, 64, 65, 500, 4999, 10**9]),
    st.sampled_from([1.0, 1.0, 0.0, 1e-9, 0.999999]) | st.floats(0.01, 0.999),
    st.sampled_from([0.0, 0.0, 1.0, 1e-300, 1e-12]) | st.floats(0.001, 0.9),
)
uniforms = st.sampled_from([0.0, 1 - 2.0**-53]) | st.floats(0, 1, exclude_max=True)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(rows(), some_filters, uniforms), min_size=1, max_size=5))
def test_same_tokens(draws: list[tuple[np.ndarray, Filters, float]]) -> None:
    """Alone and together; a row that is masked or damaged has no token and hurts no other."""
    expected = [ORACLE.draw([row], [filters], [uniform])[0] for row, filters, uniform in draws]
    for (row, _, _), token in zip(draws, expected, strict=True):
        assert (token >= 0) == math.isfinite(row.max())
        assert token < 0 or row[token] > -math.inf
    before = [row.copy() for row, _, _ in draws]
    for sampler in SAMPLERS:
        assert sampler.draw(*(list(column) for column in zip(*draws, strict=True))) == expected
    assert all((a.view(np.int32) == row.view(np.int32)).all() for a, (row, _, _) in zip(before, draws, strict=True))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(rows(), st.sampled_from([0, 1, 5, 20, 400])), min_size=1, max_size=4))
def test_same_expectations(asked: list[tuple[np.ndarray, int]]) -> None:
    expected = [ORACLE.expect([row], [count])[0] for row, count in asked]
    for sampler in SAMPLERS:
        assert sampler.expect([row for row, _ in asked], [count for _, count in asked]) == expected


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p", "min_p"), [(0, 1.0, 0.0), (50, 1.0, 0.0), (0, 0.95, 0.0), (0, 1.0, 0.02)])
def test_same_tokens_of_a_whole_vocabulary(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """Peaked and flat rows of the size of real ones, by 1, 2 and 3 threads."""
    rng = np.random.default_rng(4)
    logits = (rng.normal(size=(9, 150_001)) * np.linspace(0.01, 5, 9)[:, None]).astype(np.float32)
    settings = [list(logits), [Filters(temperature, top_k, top_p, min_p)] * 9, rng.random(9).tolist()]
    expected = ORACLE.draw(*settings)
    for isa in _native.instruction_sets():
        for threads in (1, 2, 3):
            assert NativeRowSampler(_native.Runtime(isa, _native.Pool(threads))).draw(*settings) == expected


def test_weights_are_multiples_that_add_up_exactly() -> None:
    """In any order, forwards, backwards and in pieces; of the size of the largest vocabularies."""
    row = np.random.default_rng(5).normal(scale=3, size=262_144).astype(np.float32)
    weights = weigh(row, row.max(), 2.0)
    assert (weights * 2.0**34 == np.rint(weights * 2.0**34)).all()
    assert weights.max() == 1.0
    exact = sum(int(weight) for weight in weights * 2.0**34) / 2**34
    assert weights.sum() == weights.cumsum()[-1] == weights[::-1].cumsum()[-1] == exact
    np.testing.assert_allclose(weights, np.exp((row.astype(np.float64) - row.max()) / 2), rtol=3e-6, atol=3e-11)


def test_what_does_not_belong_together_is_refused() -> None:
    row = np.zeros(8, np.float32)
    for sampler in SAMPLERS[1:]:
        with pytest.raises(ValueError, match="as many"):
            sampler.draw([row, row], [Filters(1.0, 0, 1.0, 0.0)], [0.5])
        with pytest.raises(ValueError, match="as many"):
            sampler.expect([row], [1, 2])
        for uniform in (1.0, -0.1, math.nan):
            with pytest.raises(ValueError, match="uniform"):
                sampler.draw([row], [Filters(1.0, 0, 1.0, 0.0)], [uniform])
        with pytest.raises(TypeError):
            sampler.draw([row.astype(np.float64)], [Filters(1.0, 0, 1.0, 0.0)], [0.5])
        assert sampler.draw([np.zeros(0, np.float32)], [Filters(1.0, 0, 1.0, 0.0)], [0.5]) == [-1]
        assert sampler.draw([], [], []) == sampler.expect([], []) == []

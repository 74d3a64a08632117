"""Activation functions: accuracy over the whole range, quiet at its ends, each element alone."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from checks import assert_same_bits

from octavo.ops.numpy.activations import ACTIVATIONS, erf

EVERYWHERE = np.concatenate([np.linspace(-30, 30, 6001), np.linspace(-1e-3, 1e-3, 101), [-1e4, -200, -88.8, 88.8, 1e4]])


def test_erf() -> None:
    x = np.linspace(-8, 8, 20_001)
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], atol=2e-10)
    assert erf(np.array([np.inf, -np.inf])).tolist() == [1, -1]
    assert np.isnan(erf(np.array([np.nan]))).all()


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_accuracy(name: str) -> None:
    x = EVERYWHERE.astype(np.float32)
    got = ACTIVATIONS[name](x)  # type: ignore[index]
    assert got.dtype == np.float32
    # The left tails vanish as a difference of nearly equal numbers, so they are right absolutely, not relatively.
    np.testing.assert_allclose(got, naive.activate(x, name), rtol=4e-7, atol=1.5e-6 if name == "gelu_tanh" else 3e-8)


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_a_value_does_not_depend_on_its_place(name: str) -> None:
    """Vector instructions take several elements at once; the last few must come out the same."""
    x = (np.random.default_rng(0).standard_normal(67) * 5).astype(np.float32)
    function = ACTIVATIONS[name]  # type: ignore[index]
    whole = function(x)
    for start in range(20):
        for end in (start + 1, start + 3, start + 9, 67):
            assert_same_bits(function(x[start:end]), whole[start:end])
    assert_same_bits(function(np.repeat(x, 3)[::3]), whole)

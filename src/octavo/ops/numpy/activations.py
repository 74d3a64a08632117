"""Activation functions on float32 arrays, element by element. Knows nothing of layers.

Each value depends on its own element alone, to the last bit, wherever the element stands in the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from octavo.ops.base import Activation

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

# erf is tabulated at multiples of 1 / 32 up to 6, where it is 1 to double precision, with its first derivative.
_STEP = 1.0 / 32.0
_NODES = np.arange(6 * 32 + 1) * _STEP
_ERF = np.array([math.erf(x) for x in _NODES])
_SLOPE = 2.0 / math.sqrt(math.pi) * np.exp(-_NODES * _NODES)

_HALF, _ONE = np.float32(0.5), np.float32(1)


def erf(x: Doubles) -> Doubles:
    """The error function to about 1e-10: a fourth-order Taylor step from the nearest tabulated point."""
    size = np.minimum(np.abs(x), 6.0)
    nearest = np.where(np.isnan(size), 0.0, np.rint(size / _STEP)).astype(np.intp)
    a = _NODES[nearest]
    d = size - a
    # Derivatives of erf over its first: 1, -2a, 4a^2 - 2, -8a^3 + 12a.
    series = d * (1.0 + d * (-a + d * ((2.0 * a * a - 1.0) / 3.0 + d * a * (3.0 - 2.0 * a * a) / 6.0)))
    size_erf: Doubles = _ERF[nearest] + _SLOPE[nearest] * series
    return np.copysign(size_erf, x)


def silu(x: Floats) -> Floats:
    """x * sigmoid(x)."""
    with np.errstate(over="ignore"):  # far below zero exp(-x) is infinite, and the quotient is then a rightful zero
        return np.divide(x, _ONE + np.exp(-x), dtype=np.float32)


def gelu(x: Floats) -> Floats:
    """x * normal distribution function of x, with the exact erf."""
    wide = x.astype(np.float64)
    return np.asarray(0.5 * wide * (1.0 + erf(wide * math.sqrt(0.5))), np.float32)


def gelu_tanh(x: Floats) -> Floats:
    """gelu with the tanh approximation of Hendrycks and Gimpel (2016)."""
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * (x * x * x))
    return np.asarray(_HALF * x * (_ONE + np.tanh(inner)), np.float32)


def relu(x: Floats) -> Floats:
    """max(x, 0)."""
    return np.maximum(x, np.float32(0))


ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
}

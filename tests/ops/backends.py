"""What the conformance suite needs to know of a backend, and the backends it runs on. Knows no formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.ops.base import KVLayout, Ops
from octavo.ops.numpy import NumpyOps
from octavo.ops.tensor import StorageType


@dataclass(frozen=True)
class Backend:
    """One backend, as the suite drives it.

    make: build it for a layout. from_numpy, to_numpy: arrays to its handles and back. fill_pool: put one value into
    every slot of its KV pool. product_error(type, depth): the largest error of a product that the backend may make,
    as a share of the sum of |x| |w| over the depth.
    """

    name: str
    make: Callable[[KVLayout], Ops[Any, Any]]
    from_numpy: Callable[[np.ndarray], Any]
    to_numpy: Callable[[Any], np.ndarray]
    fill_pool: Callable[[Any, float], None]
    product_error: Callable[[StorageType, int], float]


def float32_sum_error(_: StorageType, depth: int) -> float:
    """The bound on the rounding of a float32 sum of `depth` rounded products, in any order (Higham, 2002, ch. 3)."""
    return depth * 2.0**-24


def numpy_backend(name: str = "numpy", make: Callable[[KVLayout], Any] = NumpyOps) -> Backend:
    """The numpy backend, or a variant of it."""
    return Backend(
        name=name,
        make=make,
        from_numpy=lambda array: array,
        to_numpy=lambda handle: handle,
        fill_pool=lambda ops, value: ops.pool.array.fill(value),
        product_error=float32_sum_error,
    )


BACKENDS = [numpy_backend()]

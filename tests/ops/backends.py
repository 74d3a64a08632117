"""What the conformance suite needs to know of a backend, and the backends it runs on. Knows no formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from eager_native import EagerNative

from octavo.ops.base import KVLayout, Ops
from octavo.ops.native import _native
from octavo.ops.numpy import NumpyOps
from octavo.ops.tensor import StorageType


@dataclass(frozen=True)
class Backend:
    """One backend, as the suite drives it.

    make: build it for a layout. from_numpy, to_numpy: arrays to its handles and back. fill_pool: put one value into
    every slot of its KV pool. product_error(type, depth): the largest error of a product that the backend may make,
    as a share of the sum of |x| |w| over the depth. activations(type, x): what a product with such a weight sees of x.
    kv(values): what the pool keeps of keys and values.
    """

    name: str
    make: Callable[[KVLayout], Ops[Any, Any]]
    from_numpy: Callable[[np.ndarray], Any]
    to_numpy: Callable[[Any], np.ndarray]
    fill_pool: Callable[[Any, float], None]
    product_error: Callable[[StorageType, int], float]
    activations: Callable[[StorageType, np.ndarray], np.ndarray] = lambda _, x: x
    kv: Callable[[np.ndarray], np.ndarray] = lambda values: values


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


def native_error(kind: StorageType, depth: int) -> float:
    """As above; where scale times code and a minimum nearly cancel, each is up to 8 times their sum."""
    return 8 * float32_sum_error(kind, depth)


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """To the nearest, ties to even; values that are numbers."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32).reshape(values.shape)


def as_bytes(kind: StorageType, x: np.ndarray) -> np.ndarray:
    """Activations in groups of 32 (16 where the weights' groups are): 8-bit codes times the largest value / 127."""
    group = 16 if kind.name in ("Q2_K", "Q3_K", "Q6_K") else 32
    grouped = np.asarray(x, np.float32).reshape(len(x), -1, group)
    largest = np.abs(grouped).max(axis=2, keepdims=True)
    codes = np.rint(grouped * np.where(largest > 0, np.float32(127) / largest, np.float32(0)))
    return (codes * (largest / np.float32(127))).reshape(x.shape)


def native_backend(isa: str, dtype: str = "float32") -> Backend:
    """The native backend on one instruction set, with one KV format."""

    def activations(kind: StorageType, x: np.ndarray) -> np.ndarray:
        if kind.block > 1:
            return as_bytes(kind, x)
        return as_bfloat16(x) if kind is StorageType.BF16 and isa == "avx512" else x

    def fill(ops: EagerNative, value: float) -> None:
        ops.pool.array.fill(value if dtype == "float32" else as_bfloat16(np.array([value])).view(np.uint32)[0] >> 16)

    return Backend(
        name=f"native-{isa}" + ("" if dtype == "float32" else "-bf16"),
        make=lambda layout: EagerNative(replace(layout, dtype=dtype), isa),  # type: ignore[arg-type]
        from_numpy=lambda array: array,
        to_numpy=lambda handle: handle,
        fill_pool=fill,
        product_error=native_error,
        activations=activations,
        kv=(lambda values: values) if dtype == "float32" else as_bfloat16,
    )


BACKENDS = [
    numpy_backend(),
    *(native_backend(isa) for isa in _native.instruction_sets()),
    native_backend(_native.instruction_sets()[-1], "bfloat16"),
]

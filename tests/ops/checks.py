"""The suite's checks as plain functions, so that the suite itself can be shown to fail on a wrong backend."""

from __future__ import annotations

import numpy as np
from backends import Backend
from scenes import Play, Scene, expected, play
from stored import stored, values

from octavo.ops.base import KVLayout
from octavo.ops.tensor import StorageType

# float32 scores of size about 3 are off by some 1e-6 (d products rounded to 2^-24 each, of sum about 3), the weights
# by as much relatively, and a result is a mean of values of size about 1. Seen at most: 2e-6.
ATTENTION_ERROR = 1e-5


def layout_for_products() -> KVLayout:
    """The smallest pool: for tests that need none."""
    return KVLayout(1, 1, 1, 1, 8)


def assert_same_bits(got: np.ndarray, want: np.ndarray, what: object = "") -> None:
    """Equal in every bit, signs of zeros included."""
    assert got.shape == want.shape, what
    got, want = (np.ascontiguousarray(a, np.float32).view(np.uint32) for a in (got, want))
    assert np.array_equal(got, want), f"{what}: {np.count_nonzero(got != want)} of {got.size} values differ"


def check_product(backend: Backend, kind: StorageType, rows: int, out: int, depth: int) -> None:
    """x @ weight.T within the backend's own bound."""
    rng = np.random.default_rng(3)
    tensor = stored(kind, (out, depth), rng)
    x = rng.standard_normal((rows, depth), np.float32)
    ops = backend.make(layout_for_products())
    got = backend.to_numpy(ops.linear(backend.from_numpy(x), ops.prepare([tensor])))
    weight = values(tensor).astype(np.float64)
    seen = backend.activations(kind, x).astype(np.float64)
    allowed = backend.product_error(kind, depth) * (np.abs(seen) @ np.abs(weight).T)
    assert (np.abs(got - seen @ weight.T) <= allowed).all()


def check_attention(backend: Backend, scene: Scene, how: Play) -> None:
    """Every token of a scene against the formulas."""
    for got, want in zip(play(backend, scene, how), expected(scene, backend.kv), strict=True):
        error = np.abs(got - want).max() if np.isfinite(got).all() else np.inf
        assert error < ATTENTION_ERROR, f"{scene} {how}: off by {error}"

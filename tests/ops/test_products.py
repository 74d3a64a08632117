"""The numpy backend's products: what conformance cannot see, namely threads and a BLAS that treats rows unequally."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from checks import assert_same_bits
from stored import stored, values

from octavo.ops.numpy.products import TILE, RowTiles, Weight, live_rows, prepare
from octavo.ops.tensor import StorageType

DIGEST = """
import hashlib, numpy as np
from octavo.ops.numpy.products import prepare
from octavo.ops.tensor import StorageType, Tensor
rng, digest = np.random.default_rng(0), hashlib.sha256()
for out, depth in [(960, 576), (576, 1536), (100, 2048), (32, 5000), (33, 40)]:
    weight = rng.standard_normal((out, depth), np.float32)
    prepared = prepare([Tensor("w", weight.shape, StorageType.F32, weight.view(np.uint8).reshape(-1))])
    for rows in (1, 20):
        digest.update(prepared.times(rng.standard_normal((rows, depth), np.float32)).tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_the_number_of_blas_threads() -> None:
    digests = set()
    for threads in ("1", "2"):
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
        }
        result = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(result.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("live", [1, 3, TILE])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 20])
def test_tiles_hold_every_row_once(live: int, count: int) -> None:
    tiles = RowTiles(live)
    rows = tiles.rows(count)
    assert rows.shape == (-(-count // live), TILE)
    carried = tiles.unpack(np.repeat(rows[None, :, :, None], 2, axis=0).astype(np.float32), count)
    np.testing.assert_array_equal(carried[1, :, 0], np.arange(count))


def test_one_live_row_gives_the_same_product() -> None:
    """The way out where BLAS makes a row depend on its place."""
    rng = np.random.default_rng(0)
    weight = prepare([stored(StorageType.Q8_0, (70, 64), rng)])
    careful = Weight(weight.panels, weight.out, RowTiles(1))
    x = rng.standard_normal((11, 64), np.float32)
    np.testing.assert_allclose(careful.times(x), weight.times(x), rtol=1e-5, atol=1e-5)
    assert_same_bits(careful.times(x[4:5]), careful.times(x)[4:5])


def test_an_unequal_blas_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose last four rows are summed in another order: found out, and answered with single rows."""

    class Unequal(np.ndarray):
        def __matmul__(self, other: np.ndarray) -> np.ndarray:
            a, b = np.asarray(self), np.asarray(other)
            return np.concatenate([a[:4] @ b, (a[4:, ::-1].astype(np.float64) @ b[::-1]).astype(np.float32)])

    repeat = np.repeat
    monkeypatch.setattr(np, "repeat", lambda *args, **rest: repeat(*args, **rest).view(Unequal))
    assert live_rows(256, 16) == 1


@pytest.mark.parametrize("out", [1, 15, 16, 17, 128, 300])
def test_the_matrix_is_kept_whole(out: int) -> None:
    """Any number of rows, in one part or in two that do not end with a panel; gathered rows are the exact values."""
    rng = np.random.default_rng(out)
    tensor = stored(StorageType.Q6_K, (out, 256), rng)
    weight = prepare([tensor, tensor])
    assert weight.out == 2 * out
    assert_same_bits(weight.rows(np.arange(2 * out)), np.concatenate([values(tensor)] * 2))

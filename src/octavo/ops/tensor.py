"""A weight matrix as a file holds it: bytes, a shape and a storage type. Reads no files, computes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt


class StorageType(Enum):
    """How a row is stored: `block` values share one struct of `nbytes` bytes. Names and layouts are GGUF's."""

    F32 = ("F32", 1, 4)
    F16 = ("F16", 1, 2)
    BF16 = ("BF16", 1, 2)
    Q4_0 = ("Q4_0", 32, 18)
    Q4_1 = ("Q4_1", 32, 20)
    Q5_0 = ("Q5_0", 32, 22)
    Q5_1 = ("Q5_1", 32, 24)
    Q8_0 = ("Q8_0", 32, 34)
    Q2_K = ("Q2_K", 256, 84)
    Q3_K = ("Q3_K", 256, 110)
    Q4_K = ("Q4_K", 256, 144)
    Q5_K = ("Q5_K", 256, 176)
    Q6_K = ("Q6_K", 256, 210)

    @property
    def block(self) -> int:
        """Values in one block."""
        return int(self.value[1])

    @property
    def nbytes(self) -> int:
        """Bytes of one block."""
        return int(self.value[2])


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, as stored.

    name: as in the file. shape: outermost axis first, [out, in] for a matrix. type: of every value.
    data: uint8, flat, read-only; usually a view of a mapped file, which stays mapped while the view lives.
    """

    name: str
    shape: tuple[int, ...]
    type: StorageType
    data: npt.NDArray[np.uint8]

    @property
    def size(self) -> int:
        """Number of values."""
        size = 1
        for axis in self.shape:
            size *= axis
        return size

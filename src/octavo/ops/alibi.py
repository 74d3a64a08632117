"""ALiBi's slopes. Knows no model and no backend. Source: Press et al., "Train Short, Test Long" (ICLR 2022)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def alibi_slopes(num_heads: int) -> npt.NDArray[np.float32]:
    """float32 [num_heads], positive: the bias of head h is slopes[h] * (j - i).

    For a power of two n: 2 ** (-8 (h + 1) / n). Otherwise the slopes of the next lower power of two, then every other
    slope, from the first, of the next higher one.
    """
    if num_heads < 1:
        raise ValueError(f"ALiBi needs at least one head, not {num_heads}")
    lower = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / lower) for h in range(1, lower + 1)]
    slopes += [2.0 ** (-8.0 * h / (2 * lower)) for h in range(1, 2 * lower, 2)]
    return np.array(slopes[:num_heads], np.float32)

"""Every op's formula in float64, one query and one head at a time. Shares no code with octavo and knows no tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Numbers:
    """One layer's attention, as `octavo.ops.base.Attention` has it but with plain arrays."""

    heads: int
    kv_heads: int
    head_size: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    alibi: np.ndarray | None = None
    sinks: np.ndarray | None = None


def activate(x: np.ndarray, name: str | None) -> np.ndarray:
    x = x.astype(np.float64)
    match name:
        case None:
            return x
        case "relu":
            return np.where(x > 0, x, 0.0)
        case "silu":
            return np.vectorize(lambda z: z / (1.0 + math.exp(-z)) if z > -700 else 0.0, otypes=[float])(x)
        case "gelu":
            return np.vectorize(lambda z: 0.5 * z * math.erfc(-z / math.sqrt(2.0)), otypes=[float])(x)
        case "gelu_tanh":
            c = math.sqrt(2.0 / math.pi)
            return np.vectorize(lambda z: 0.5 * z * (1.0 + math.tanh(c * (z + 0.044715 * z**3))), otypes=[float])(x)
    raise ValueError(name)


def norm(x: np.ndarray, weight: np.ndarray, eps: float, kind: str) -> np.ndarray:
    """Over consecutive groups of len(weight) columns."""
    out = np.empty(x.shape, np.float64)
    width = len(weight)
    for row in range(x.shape[0]):
        for start in range(0, x.shape[1], width):
            values = x[row, start : start + width].astype(np.float64)
            if kind == "layer":
                values = values - values.sum() / width
            out[row, start : start + width] = values / math.sqrt((values**2).sum() / width + eps) * weight
    return out


def rope(
    x: np.ndarray, positions: np.ndarray, inv_freq: np.ndarray, head_size: int, style: str, scale: float
) -> np.ndarray:
    """Complex rotation of each pair of each head."""
    out = x.astype(np.float64)
    for row, position in enumerate(positions):
        for start in range(0, x.shape[1], head_size):
            for i, frequency in enumerate(inv_freq):
                first, second = (i, i + len(inv_freq)) if style == "half" else (2 * i, 2 * i + 1)
                angle = float(np.float32(position) * np.float32(frequency))
                turned = complex(x[row, start + first], x[row, start + second]) * complex(
                    math.cos(angle), math.sin(angle)
                )
                out[row, start + first], out[row, start + second] = turned.real * scale, turned.imag * scale
    return out


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, numbers: Numbers) -> np.ndarray:
    """q [n, heads, d] at positions first ..., k and v [length, kv_heads, d] -> [n, heads, d]."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.empty_like(q)
    for n in range(q.shape[0]):
        i = first + n
        for head in range(numbers.heads):
            kv_head = head * numbers.kv_heads // numbers.heads
            scores = []
            seen = [j for j in range(i + 1) if numbers.window is None or i - j < numbers.window]
            for j in seen:
                score = numbers.scale * float(q[n, head] @ k[j, kv_head])
                if numbers.softcap is not None:
                    score = numbers.softcap * math.tanh(score / numbers.softcap)
                if numbers.alibi is not None:
                    score -= float(numbers.alibi[head]) * (i - j)
                scores.append(score)
            sink = [] if numbers.sinks is None else [float(numbers.sinks[head])]
            peak = max(scores + sink)
            total = sum(math.exp(s - peak) for s in scores + sink)
            out[n, head] = sum(math.exp(s - peak) / total * v[j, kv_head] for s, j in zip(scores, seen, strict=True))
    return out

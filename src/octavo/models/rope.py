"""Rotary frequencies from a model's settings, with every supported kind of scaling. Rotates nothing.

Formulas: RoFormer (Su et al.); position interpolation (Chen et al.); NTK-aware scaling; YaRN (Peng et al.); Llama 3.1.
The arithmetic is float32 where the reference implementations' is, because positions multiply the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from octavo.errors import UnsupportedModel
from octavo.models.spec import RopeSpec
from octavo.ops.base import RopeStyle
from octavo.weights.fields import Fields

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """theta: base. dim: values rotated in each head. context: length that the model was made for. length: the longest
    sequence to be served, which only "dynamic" looks at. options: the scaling's own keys, spelled as in config.json."""

    theta: float
    dim: int
    context: int
    length: int
    options: Fields

    @property
    def original(self) -> int:
        """Length before the context was extended."""
        return int(self.options.assumed("original_max_position_embeddings", self.context))


def rope_spec(settings: RopeSettings, style: RopeStyle, divisors: Floats | None = None) -> RopeSpec:
    """Frequencies as a spec. divisors: float32 [dim / 2] by which a file divides them (GGUF's rope_freqs).

    Raises UnsupportedModel for an unknown kind of scaling, ModelFormatError for senseless settings.
    """
    options = settings.options
    kind = options.text("rope_type", options.text("type", "default"))
    if kind not in _SCALINGS:
        raise UnsupportedModel(f"rope scaling {kind!r:.80} is not supported; supported are {', '.join(_SCALINGS)}")
    if settings.dim % 2 or settings.dim < 2:
        raise options.fail(f"rope over {settings.dim} values, which must be an even number")
    inv_freq, scale = _SCALINGS[kind](settings)
    if divisors is not None:
        if divisors.shape != inv_freq.shape or not np.all(np.isfinite(divisors)) or not np.all(divisors > 0):
            raise options.fail(f"rope divisors are not {len(inv_freq)} numbers above 0")
        inv_freq = inv_freq / divisors
    return RopeSpec(tuple(inv_freq.tolist()), style, scale)


def _powers(theta: float, dim: int) -> Floats:
    """theta^(2i / dim), the wavelength over 2 pi: float32 [dim / 2]."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    powers: Floats = np.power(np.float32(theta), exponents)
    return powers


def _default(settings: RopeSettings) -> tuple[Floats, float]:
    return np.float32(1) / _powers(settings.theta, settings.dim), 1.0


def _linear(settings: RopeSettings) -> tuple[Floats, float]:
    return _default(settings)[0] / np.float32(settings.options.number("factor")), 1.0


def _dynamic(settings: RopeSettings) -> tuple[Floats, float]:
    """The base grows with the length served beyond the context. A cached key is rotated once, so the length is fixed
    when the model is loaded and does not follow each sequence."""
    factor, dim = settings.options.number("factor"), settings.dim
    ratio = max(settings.length, settings.context) / settings.context
    if dim == 2:
        return _default(settings)
    theta = settings.theta * (factor * ratio - (factor - 1)) ** (dim / (dim - 2))
    return np.float32(1) / _powers(theta, dim), 1.0


def _llama3(settings: RopeSettings) -> tuple[Floats, float]:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    options, (inv_freq, scale) = settings.options, _default(settings)
    factor, low, high = (options.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise options.fail(f"low_freq_factor {low} is not below high_freq_factor {high}")
    turns = settings.original * inv_freq / np.float32(2 * math.pi)
    blend = np.clip((turns - np.float32(low)) / np.float32(high - low), 0, 1)
    return ((1 - blend) * inv_freq / np.float32(factor) + blend * inv_freq).astype(np.float32), scale


def _yarn(settings: RopeSettings) -> tuple[Floats, float]:
    """Dimensions that turn often are kept, those that turn seldom divided by the factor, a ramp between."""
    options, dim = settings.options, settings.dim
    original = settings.original
    factor = options.number("factor", settings.context / original)

    def dimension(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(settings.theta))

    if settings.theta <= 1:
        raise options.fail(f"yarn with a base of {settings.theta}, which must be above 1")
    low, high = dimension(options.number("beta_fast", 32.0)), dimension(options.number("beta_slow", 1.0))
    if options.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (np.arange(dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low if high != low else 0.001)
    divided = np.clip(ramp, 0, 1)
    powers = _powers(settings.theta, dim)
    inv_freq = divided / (np.float32(factor) * powers) + (1 - divided) / powers
    return inv_freq.astype(np.float32), _yarn_scale(options, factor)


def _yarn_scale(options: Fields, factor: float) -> float:
    """The attention factor: given, or the ratio of two magnitudes, or one of them."""
    if "attention_factor" in options:
        return options.number("attention_factor")

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, mscale_all = (
        options.number("mscale", 0.0, positive=False),
        options.number("mscale_all_dim", 0.0, positive=False),
    )
    return magnitude(mscale) / magnitude(mscale_all) if mscale and mscale_all else magnitude(1.0)


_SCALINGS: Mapping[str, Callable[[RopeSettings], tuple[Floats, float]]] = MappingProxyType(
    {"default": _default, "linear": _linear, "dynamic": _dynamic, "llama3": _llama3, "yarn": _yarn}
)

"""The suite is tested too: each of these wrong backends is one that it must catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backends import Backend, numpy_backend
from checks import assert_same_bits, check_attention, check_product
from scenes import Play, Scene, play

from octavo.ops.base import Attention
from octavo.ops.numpy import NumpyOps, attention
from octavo.ops.tensor import StorageType

SCENE = Scene((40, 1, 17), window=8, softcap=2.0, alibi=True, sinks=True)
HOW = Play(chunks=(11, 1), poison=np.nan)


def with_attention(change: Callable[[Attention[Any]], Attention[Any]]) -> Backend:
    """The numpy backend, told other numbers than it was asked for."""

    class Changed(NumpyOps):
        def attend(self, q: Any, slot: Any, attention: Any, meta: Any) -> Any:
            return super().attend(q, slot, change(attention), meta)

    return numpy_backend("changed", Changed)


CHANGES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "one key too many": {"window": lambda window: window + 1},
    "one key too few": {"window": lambda window: window - 1},
    "decode forgets the window": {"window": lambda _: None},
    "no soft cap": {"softcap": lambda _: None},
    "slopes off by one exponent": {"alibi_slopes": lambda slopes: slopes / 2},
    "slopes of the wrong heads": {"alibi_slopes": lambda slopes: slopes[::-1].copy()},
    "no sinks": {"sinks": lambda _: None},
}


def test_the_unchanged_backend_passes() -> None:
    check_attention(numpy_backend(), SCENE, HOW)


@pytest.mark.parametrize("name", CHANGES)
def test_wrong_numbers_are_caught(name: str) -> None:
    ((field, change),) = CHANGES[name].items()
    wrong = with_attention(lambda a: dataclasses.replace(a, **{field: change(getattr(a, field))}))
    with pytest.raises(AssertionError, match="off by"):
        check_attention(wrong, SCENE, Play())


def test_the_wrong_key_heads_are_caught() -> None:
    class Interleaved(NumpyOps):
        def attend(self, q: Any, slot: Any, attention: Any, meta: Any) -> Any:
            heads = q.reshape(len(q), 2, 2, -1).swapaxes(1, 2).reshape(q.shape)
            out = super().attend(heads, slot, attention, meta)
            return out.reshape(len(q), 2, 2, -1).swapaxes(1, 2).reshape(q.shape)

    with pytest.raises(AssertionError, match="off by"):
        check_attention(numpy_backend("interleaved", Interleaved), Scene((9,)), Play())


def test_the_cap_in_the_wrong_place_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """ALiBi and the mask first, the cap then: a hidden key comes back with a score of -cap."""
    right = attention._shape_scores

    def wrong(scores: Any, distance: Any, slopes: Any, numbers: Any) -> None:
        right(scores, distance, slopes, dataclasses.replace(numbers, softcap=None))
        scores[:] = numbers.softcap * np.tanh(scores / numbers.softcap)

    monkeypatch.setattr(attention, "_shape_scores", wrong)
    with pytest.raises(AssertionError, match="off by"):
        check_attention(numpy_backend(), SCENE, Play())


def test_a_slot_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot after the last token is unwritten: its value gets a weight of zero, and zero times NaN is NaN."""
    right = attention.Sequence.read

    def wrong(self: Any, first: int, end: int) -> Any:
        return right(self, first, -(-end // 16) * 16)

    monkeypatch.setattr(attention.Sequence, "read", wrong)
    with pytest.raises(AssertionError, match="off by inf"):
        check_attention(numpy_backend(), Scene((9,)), HOW)


def test_a_sum_that_follows_the_chunks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right to six digits, yet its bits depend on where the prompt was cut: tiles that start at the chunk's window."""
    right = attention.Sequence.read

    def wrong(self: Any, first: int, end: int) -> Any:
        k, v = right(self, first, end)
        return tuple(np.roll(a.reshape(len(a), -1, a.shape[-1]), end, 1).reshape(a.shape) for a in (k, v))

    def distance(positions: Any, first_tile: int, key_tiles: int) -> Any:
        return np.roll(plain(positions, first_tile, key_tiles), int(positions.max()) + 1, axis=3)

    plain = attention._distance
    scene = Scene((60,))
    usual = play(numpy_backend(), scene)[0]
    monkeypatch.setattr(attention.Sequence, "read", wrong)
    monkeypatch.setattr(attention, "_distance", distance)
    check_attention(numpy_backend(), scene, Play())
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(play(numpy_backend(), scene, Play(chunks=(7,)))[0], usual)


def test_a_wrong_product_is_caught() -> None:
    class Rounded(NumpyOps):
        def linear(self, x: Any, weight: Any, **rest: Any) -> Any:
            return super().linear(x.astype(np.float16).astype(np.float32), weight, **rest)

    with pytest.raises(AssertionError):
        check_product(numpy_backend("rounded", Rounded), StorageType.Q8_0, 4, 32, 256)

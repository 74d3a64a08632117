"""A reader's end of its requests: what waits, what is offered at once, what a fault of one reader does to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from octavo.engine.outputs import Delta
from octavo.engine.streams import Batch, Stream
from octavo.errors import ReaderTooSlow


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 5))


def delta(text: str, index: int = 0) -> Delta:
    return Delta(7, index, text, (1,))


def step(stream: Stream, *deltas: Delta) -> None:
    """What one step of the engine does."""
    first = [stream.push(0, each) for each in deltas]
    if any(first):
        stream.deliver()


def texts(batch: Batch) -> list[str]:
    return [each.text for _, each in batch]


def test_what_is_taken_at_once_wakes_nobody() -> None:
    """A step's deltas are offered together, before the loop runs anything else; the reader waits for what is left."""

    async def main() -> None:
        stream, taken = Stream(1, 8, lambda _: None), list[list[str]]()

        def take(batch: Batch) -> bool:
            if texts(batch) == ["end"]:
                return False
            taken.append(texts(batch))
            return True

        reading = asyncio.create_task(stream.batch(take))
        await asyncio.sleep(0)
        for number in range(20):  # more than the stream's buffer holds
            step(stream, delta(f"a{number}"), delta(f"b{number}", 1))
            assert taken[-1] == [f"a{number}", f"b{number}"]
        assert not reading.done()
        step(stream, delta("end"))
        step(stream, delta("more"))  # it is no longer waiting: nothing overtakes what it is to read
        assert texts(await reading) == ["end", "more"]
        assert len(taken) == 20

    run(main)


def test_a_reader_that_is_away_is_offered_nothing() -> None:
    """Only what comes while it waits is offered; too much of what does not is the end."""

    async def main() -> None:
        stream = Stream(1, 3, lambda _: None)
        for _ in range(3):
            step(stream, delta("x"))
        assert texts(await stream.batch(lambda _: pytest.fail("offered"))) == ["x", "x", "x"]
        for _ in range(4):
            step(stream, delta("y"))
        with pytest.raises(ReaderTooSlow):
            await stream.batch()

    run(main)


def test_a_fault_of_one_reader_is_its_own() -> None:
    async def main() -> None:
        stream = Stream(1, 8, lambda _: None)

        def breaks(batch: Batch) -> bool:
            raise ZeroDivisionError

        reading = asyncio.create_task(stream.batch(breaks))
        await asyncio.sleep(0)
        step(stream, delta("x"))
        with pytest.raises(ZeroDivisionError):
            await reading

    run(main)

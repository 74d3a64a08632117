"""Stop strings: nothing lost, nothing held too long, cheap however long they are."""

from __future__ import annotations

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.stop_checker import StopChecker, stop_ids
from octavo.text.tokenizer import Tokenizer


def run(stops: list[str], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    checker = StopChecker(stops, include=include)
    text = ""
    for piece in pieces:
        emit, hit = checker.push(piece)
        text += emit
        if hit is not None:
            return text, hit
    return text + checker.flush(), None


def expected(stops: list[str], text: str, *, include: bool = False) -> tuple[str, str | None]:
    """By definition: the match with the first end, of these the longest."""
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end if include else end - len(stop)], stop


short = st.text("ab\n", min_size=1, max_size=5)


@given(
    stops=st.lists(short, min_size=1, max_size=4), pieces=st.lists(st.text("ab\n", max_size=5)), include=st.booleans()
)
@settings(max_examples=250, deadline=None)
def test_pieces_do_not_matter(stops: list[str], pieces: list[str], include: bool) -> None:
    assert run(stops, pieces, include=include) == expected(stops, "".join(pieces), include=include)


@given(stops=st.lists(short, min_size=1, max_size=4), pieces=st.lists(st.text("ab\n", max_size=5)))
@settings(max_examples=250, deadline=None)
def test_only_the_beginning_of_a_stop_is_held(stops: list[str], pieces: list[str]) -> None:
    """Case F02: after every piece, what is withheld is a proper prefix of a stop string, and no longer than needed."""
    checker, seen, shown = StopChecker(stops), "", ""
    for piece in pieces:
        emit, hit = checker.push(piece)
        if hit is not None:
            return
        seen, shown = seen + piece, shown + emit
        held = seen[len(shown) :]
        assert seen.startswith(shown)
        assert len(shown) + len(held) == len(seen)
        longest = max(n for stop in stops for n in range(len(stop)) if seen.endswith(stop[:n]))
        assert len(held) == longest
    assert shown + checker.flush() == seen


def test_tail_that_looks_like_a_stop_comes_at_the_end() -> None:
    """Case F02."""
    assert run(["\n" + "@" * 20], ["text", "\n", "@", "@"]) == ("text\n@@", None)


def test_stops_that_repeat_themselves() -> None:
    """A near miss falls back to the longest beginning that still fits, not to nothing."""
    rng = random.Random(1)
    for _ in range(400):
        stop = "".join(rng.choices("aab", k=rng.randint(6, 12)))
        text = stop[: rng.randint(1, len(stop))] * 2 + stop[rng.randint(1, len(stop)) :] + stop
        assert run([stop], [*text]) == expected([stop], text)


def test_include_and_after_the_end() -> None:
    """Case F03."""
    assert run(["END"], ["abcE", "N", "Dxyz"]) == ("abc", "END")
    assert run(["END"], ["abcE", "N", "Dxyz"], include=True) == ("abcEND", "END")
    checker = StopChecker(["END"])
    checker.push("aENDb")
    assert checker.push("more") == ("", "END")
    assert checker.hit == "END"
    assert checker.flush() == ""


def test_earliest_match_wins() -> None:
    assert run(["world", "lo w"], ["hello world"]) == ("hel", "lo w")
    assert run(["b", "ab"], ["xab"]) == ("x", "ab"), "complete at once: the longest"
    assert run([], ["anything"]) == ("anything", None)


def test_long_and_many_stops_are_cheap() -> None:
    """Case F05: 64 stop strings of 10,000 characters, text made to match all but the end of them, piece by piece."""
    stops = [("a" * 5000 + chr(0x100 + i)).ljust(10_000, "a") for i in range(64)]
    start = time.process_time()
    checker = StopChecker(stops)
    assert time.process_time() - start < 0.1
    shown = "".join(checker.push("aaaa")[0] for _ in range(2500)) + checker.flush()
    assert shown == "a" * 10_000
    assert time.process_time() - start < 10


def test_stop_that_names_a_control_token(toy: Tokenizer) -> None:
    """Case F04: the token shows no text, so its id has to end the answer."""
    end = toy.encode("<|im_end|>", parse_special=True)[0]
    assert stop_ids(["<|im_end|>", "\n", "", "x<|im_end|>", "<|im_end|", "\ud800"], toy) == {end: "<|im_end|>"}

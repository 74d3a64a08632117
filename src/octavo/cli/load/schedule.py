"""When requests arrive and how long they are: drawn from a seed, or replayed from a trace. Sends nothing.

Open loop: arrivals do not wait for answers, so a server that falls behind is seen to fall behind.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.errors import InvalidRequest

Process = Literal["poisson", "constant", "burst"]

# Each of these is about one token in any large English vocabulary.
WORDS = tuple(
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information "
    "back parent face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education".split()
)
TRACE_MOST = 1_000_000  # lines of a trace


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths in tokens, cut to [least, most]. mean: before they are cut. spread: sigma of the logarithm."""

    mean: float
    spread: float
    least: int = 4
    most: int = 1024

    def draw(self, draw: random.Random) -> int:
        """One length."""
        if self.spread == 0:
            return round(self.mean)
        location = math.log(self.mean) - self.spread**2 / 2
        return min(max(round(draw.lognormvariate(location, self.spread)), self.least), self.most)


# Prompt and answer lengths of published chat data sets: the means are theirs, the spread is that of a log-normal.
MIXES = {
    "sharegpt": (Lengths(161.31, 1.1), Lengths(337.99, 0.9)),
    "alpaca": (Lengths(19.31, 0.4), Lengths(58.45, 0.8)),
}


@dataclass(frozen=True, slots=True)
class Load:
    """What to draw. rate: requests a second, math.inf for all at once. burst: requests that arrive together, of a
    "burst" process. shared: tokens that prompts have in common with those of the same of `groups` groups. turn: another
    draws the same lengths and other words, so that one load leaves the next nothing in a prefix cache."""

    requests: int
    rate: float
    process: Process
    prompt: Lengths
    generated: Lengths
    burst: int = 8
    shared: int = 0
    groups: int = 1
    seed: int = 0
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. at: seconds since the start. prompt: its text, of about `prompt_tokens` tokens."""

    at: float
    prompt: str
    prompt_tokens: int
    generated: int


def draw_arrivals(load: Load) -> list[Arrival]:
    """The requests of a load in order of arrival; their lengths are the same for the same seed, whatever the rate."""
    lengths = random.Random(f"lengths/{load.seed}")
    words = random.Random(f"words/{load.seed}/{load.turn}")
    prefixes = [_words(words, load.shared) for _ in range(load.groups)]
    arrivals = []
    for at in _times(load):
        own, group = load.prompt.draw(lengths), lengths.randrange(load.groups)
        prompt = [*prefixes[group], *_words(words, own)]
        arrivals.append(Arrival(at, " ".join(prompt), len(prompt), load.generated.draw(lengths)))
    return arrivals


def read_trace(path: Path, seed: int = 0) -> list[Arrival]:
    """A trace: a JSON object a line, with `at` (seconds), `prompt` and `generated` (tokens), or as published traces
    have it `timestamp` (milliseconds), `input_length` and `output_length`. Raises InvalidRequest naming the line."""
    arrivals = []
    draw = random.Random(f"trace/{seed}")
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if number > TRACE_MOST:
                    raise InvalidRequest(f"{path} has more than {TRACE_MOST} lines; cut it", param="trace")
                if line.strip():
                    at, prompt, generated = _trace_entry(line, f"{path} line {number}")
                    arrivals.append(Arrival(at, " ".join(_words(draw, prompt)), prompt, generated))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the trace {path} cannot be read: {error}", param="trace") from error
    if not arrivals:
        raise InvalidRequest(f"the trace {path} has no requests", param="trace")
    arrivals.sort(key=lambda arrival: arrival.at)
    return arrivals


def _times(load: Load) -> Iterator[float]:
    draw = random.Random(f"arrivals/{load.seed}")
    now = 0.0
    for number in range(load.requests):
        yield now
        if math.isinf(load.rate):
            continue
        if load.process == "poisson":
            now += draw.expovariate(load.rate)
        elif load.process == "constant":
            now += 1 / load.rate
        elif (number + 1) % load.burst == 0:
            now += load.burst / load.rate


def _words(draw: random.Random, count: int) -> Sequence[str]:
    return draw.choices(WORDS, k=count)


def _trace_entry(line: str, where: str) -> tuple[float, int, int]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{where} is no JSON: {error}", param="trace") from error
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where} is no JSON object", param="trace")
    published = "timestamp" in entry
    names = ("timestamp", "input_length", "output_length") if published else ("at", "prompt", "generated")
    at, prompt, generated = (_number(entry, name, where) for name in names)
    if prompt < 1 or generated < 1:
        raise InvalidRequest(f"{where}: {names[1]} and {names[2]} must be at least 1", param="trace")
    return at / 1000 if published else at, int(prompt), int(generated)


def _number(entry: dict[str, Any], name: str, where: str) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidRequest(f"{where}: {name} must be a number from 0, not {value!r}", param="trace")
    return float(value)

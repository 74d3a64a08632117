"""bench/peers/load: a real server of ours under a small load, samples on disk, the sustained rate, the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.peers.load import Contest, Kept, Plan, Sampled, sampled_points
from bench.peers.load_report import Answered, Limits, markdown, summary, sustained, write_plot
from bench.peers.process import RunnerFailed
from bench.peers.servers import SERVERS, Launch, ServerForm, ServerProcess, free_port
from toy import make_random

from octavo.cli.load.schedule import draw_arrivals
from octavo.engine.machine import Machine

PLAN = Plan((50, 100), 2, 0.02, 3, "sharegpt", 0.02, 20.0)
LIMITS = Limits(1.0, 0.1)
GOOD, LATE, FAILED = Answered(0.5, 0.05, 2.0, 30), Answered(1.5, 0.05, 3.0, 30), Answered(None, None, 20.0, 0)


def _blank(name: str) -> Sampled:
    return Sampled(name, "build", "boot", PLAN.key, 0, 0, ())


def test_servers_take_turns_and_every_sample_is_kept(tmp_path: Path) -> None:
    """One server under two names; a second run measures nothing again."""
    launch = Launch(Path(), make_random(tmp_path / "model"), free_port(), 1)
    server = ServerProcess(SERVERS[0], launch, tmp_path / "log", 60)
    server.pause()
    try:
        for turn in range(2):
            said: list[str] = []
            kept = Kept(tmp_path / "load.jsonl")
            blanks = {name: _blank(name) for name in ("a", "b")}
            Contest(PLAN, LIMITS, kept, blanks, {"a": server, "b": server}, said.append).run()
            order = [line.split()[5] for line in said]
            assert order == ([] if turn else ["a", "b", "a", "b", "b", "a", "b", "a"])
    finally:
        server.close()
    points = sampled_points(kept.find(blanks["b"]))
    assert [(point.rate, [len(answers) for answers in point.rounds]) for point in points] == [
        (50, [3, 3]),
        (100, [3, 3]),
    ]
    assert all(answer.first and answer.tokens for point in points for answers in point.rounds for answer in answers)


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    form = ServerForm("gone", "octavo", lambda launch: ("false",))
    with pytest.raises(RunnerFailed, match="its process ended with 1"):
        ServerProcess(form, Launch(Path(), Path(), free_port(), 1), tmp_path / "log", 20)


def test_loads_differ_in_their_words_alone() -> None:
    """For every server and rate of a round the lengths are the same; no load finds another's prompts cached."""
    slow, fast = (draw_arrivals(PLAN.load(rate, 0)) for rate in PLAN.rates)
    assert [(each.prompt_tokens, each.generated) for each in slow] == [
        (each.prompt_tokens, each.generated) for each in fast
    ]
    assert not {each.prompt for each in slow} & {each.prompt for each in fast}


@pytest.mark.parametrize(
    ("shares", "rate"),
    [
        ([], 0.0),
        ([(2, 1.0), (4, 0.95)], 4.0),
        ([(2, 1.0), (4, 0.8)], 3.0),
        ([(2, 0.8)], 1.0),
        ([(2, 1.0), (4, 0.5), (6, 1.0)], 2.4),  # what comes after the first failure does not count
    ],
)
def test_the_sustained_rate(shares: list[tuple[float, float]], rate: float) -> None:
    assert sustained(shares) == pytest.approx(rate)


def test_the_page_has_ratios_failures_and_a_picture(tmp_path: Path) -> None:
    def sample(name: str, rate: float, round: int, answers: tuple[Answered, ...]) -> Sampled:
        return Sampled(name, "build", "boot", PLAN.key, rate, round, answers)

    ours = [sample("octavo", 50, 0, (GOOD,) * 4), sample("octavo", 100, 0, (GOOD,) * 4)]
    theirs = [sample("other", 50, 0, (GOOD,) * 4), sample("other", 100, 0, (GOOD, LATE, FAILED, LATE))]
    found = summary({"octavo": sampled_points(ours), "other": sampled_points(theirs)}, LIMITS)
    assert found["other"]["rates"][1] | {"good": 0.25, "failed": 1, "requests": 4} == found["other"]["rates"][1]
    machine = Machine("a processor", 2, "AVX2 FMA", 1 << 34, "Linux 6", "3.11")
    page = markdown(found, LIMITS, PLAN.key, machine, {"third": "it does not build"})
    assert "| octavo | at least 100.00 (100.0) |  |" in page
    assert "| other | 56.67 (56.7) | **1.76** |" in page
    assert "| third | failed: it does not build | |" in page
    assert json.loads(json.dumps(found)) == found
    write_plot(tmp_path / "load.svg", found, LIMITS)
    assert "other" in (tmp_path / "load.svg").read_text()

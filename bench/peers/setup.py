"""Sets the engines up in environments of their own, in the cache, never in the repository. Measures nothing.

What was set up is remembered by a stamp that holds the pins, so that a second run costs nothing and a changed pin
installs again. Everything runs at the lowest priority. What fails is told with a reason and does not stop the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.catalog import LLAMA_CPP_PIN, OPENVINO_PINS, TORCH_PIN, VLLM_PIN

from octavo.weights.catalog import resolve

ALIAS = "smollm2-135m"
LLAMA_CPP_PROGRAMS = ("llama-batched-bench", "llama-bench", "llama-perplexity", "llama-quantize")
LLAMA_CPP_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)
VLLM_UNUSED = ("torchaudio", "torchvision", "torchcodec")  # sound and pictures, which no CPU build of torch fits
LIST_REQUIREMENTS = """
import importlib.metadata as metadata, sys
from pip._vendor.packaging.requirements import Requirement
for text in metadata.requires(sys.argv[1]):
    requirement = Requirement(text)
    if requirement.name not in sys.argv[2:] and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
        requirement.marker = None
        print(requirement)
"""
MAKE_BF16 = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
folder, name, target = sys.argv[1:]
settings = {"gguf_file": name, "quantization_config": GgufConfig(dequantize=True), "dtype": torch.bfloat16}
AutoModelForCausalLM.from_pretrained(folder, **settings).save_pretrained(target)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
"""


class SetupFailed(Exception):
    """An engine or a model could not be set up; the text says why in one line."""


class Workshop:
    """The folder of environments and models. root: in the user's cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._failed: dict[str, SetupFailed] = {}

    def python(self, engine: str) -> Path:
        """The interpreter that runs the engine, set up if needed. Raises SetupFailed, again without a second try."""
        if engine in ("octavo", "octavo-bf16", "transformers"):
            return Path(sys.executable)
        makers = {"openvino": self._openvino, "vllm": self._vllm, "llama.cpp": self._llama_cpp}
        self._once(engine, makers[engine])
        return Path(sys.executable) if engine == "llama.cpp" else self.root / engine / "bin/python"

    def model(self, kind: str) -> Path:
        """The model in one of the forms that catalog.Form names, made if needed. Raises SetupFailed."""
        source = resolve(ALIAS)
        if kind == "q4_1":
            return source
        target = self.root / "models" / (f"{source.stem.rpartition('.')[0]}-bf16" if kind == "bf16" else f"{kind}.gguf")
        if not target.exists():
            self._once(kind, lambda log: self._make_model(kind, source, target, log))
        return target

    def options(self, engine: str) -> dict[str, str]:
        """What the engine's runner must know beside the model."""
        if engine != "llama.cpp":
            return {}
        return {"program": str(self._llama_program("llama-batched-bench")), "version": f"in {LLAMA_CPP_PIN}"}

    def _once(self, name: str, make: Callable[[Path], object]) -> None:
        if name in self._failed:
            raise self._failed[name]
        self.root.mkdir(parents=True, exist_ok=True)
        log = self.root / f"{name}.setup.log"
        try:
            make(log)
        except SetupFailed as error:
            self._failed[name] = error
            raise

    def _openvino(self, log: Path) -> None:
        self._environment("openvino", [OPENVINO_PINS], log)

    def _vllm(self, log: Path) -> None:
        """Without the parts for sound and pictures, whose wheels need another torch."""
        stamp = self.root / "vllm.stamp"
        if _stamped(stamp, VLLM_PIN):
            return
        self._environment("vllm", [("--no-deps", VLLM_PIN)], log)
        stamp.unlink()
        python = self.root / "vllm/bin/python"
        listed = _run([python, "-c", LIST_REQUIREMENTS, VLLM_PIN.partition("==")[0], *VLLM_UNUSED], log, keep=True)
        _run([python, "-m", "pip", "install", TORCH_PIN, *listed.splitlines()], log)
        stamp.write_text(VLLM_PIN)

    def _llama_cpp(self, log: Path) -> None:
        folder = self.root / "llama.cpp"
        if _stamped(self.root / "llama.cpp.stamp", LLAMA_CPP_PIN):
            return
        folder.mkdir(exist_ok=True)
        archive = folder / f"{LLAMA_CPP_PIN.replace('-', '_').replace('==', '-')}.tar.gz"
        if not archive.exists():
            print("  fetching the source of llama.cpp", flush=True)
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
            _run([*pip, "-d", folder, LLAMA_CPP_PIN], log)
        source = folder / archive.name.removesuffix(".tar.gz") / "vendor/llama.cpp"
        if not source.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
        print("  building llama.cpp (20 minutes on one core)", flush=True)
        _run(["cmake", "-S", source, "-B", folder / "build", *LLAMA_CPP_FLAGS], log)
        jobs = str(len(os.sched_getaffinity(0)))
        _run(["cmake", "--build", folder / "build", "-j", jobs, "--target", *LLAMA_CPP_PROGRAMS], log)
        (self.root / "llama.cpp.stamp").write_text(LLAMA_CPP_PIN)

    def programs(self, engine: str) -> Path:
        """The folder of the engine's own programs, its server's among them, set up if needed. Raises SetupFailed."""
        if engine != "llama.cpp":
            return self.python(engine).parent
        self.python(engine)
        if not self._llama_program("llama-server").exists():
            print("  building llama-server (10 minutes on one core)", flush=True)
            build = ["cmake", "--build", self.root / "llama.cpp/build", "--target", "llama-server"]
            self._once("llama-server", lambda log: _run(build, log))
        return self._llama_program("llama-server").parent

    def _llama_program(self, name: str) -> Path:
        return self.root / "llama.cpp/build/bin" / name

    def _make_model(self, kind: str, source: Path, target: Path, log: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        print(f"  making the {kind} form of the model", flush=True)
        if kind == "bf16":
            _run([sys.executable, "-c", MAKE_BF16, source.parent, source.name, part], log)
        else:
            self.python("llama.cpp")
            _run([self._llama_program("llama-quantize"), "--allow-requantize", source, part, kind.upper()], log)
        part.replace(target)

    def _environment(self, name: str, installs: Sequence[Sequence[str]], log: Path) -> None:
        """A virtual environment with these packages."""
        stamp, pins = self.root / f"{name}.stamp", "\n".join(" ".join(each) for each in installs)
        if _stamped(stamp, pins):
            return
        print(f"  installing {name}: {pins}", flush=True)
        if not (self.root / name / "bin/python").exists():
            _run([sys.executable, "-m", "venv", self.root / name], log)
        for packages in installs:
            _run([self.root / name / "bin/python", "-m", "pip", "install", *packages], log)
        stamp.write_text(pins)


def _stamped(stamp: Path, text: str) -> bool:
    return stamp.exists() and stamp.read_text() == text


def _run(command: Sequence[str | Path], log: Path, *, keep: bool = False) -> str:
    """Run at the lowest priority; its output goes to the log, or is returned. Raises SetupFailed."""
    words = [str(word) for word in command]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake may be there alone
    try:
        with log.open("a") as file:
            done = subprocess.run(
                ["nice", "-n", "19", *words],
                env=os.environ | {"PATH": tools},
                stdout=subprocess.PIPE if keep else file,
                stderr=file,
                text=True,
                check=False,
            )
    except OSError as error:
        raise SetupFailed(f"{words[0]} could not be run: {error.strerror}") from error
    if done.returncode:
        complaints = [line for line in log.read_text(errors="replace").splitlines() if "rror" in line] or ["no word"]
        raise SetupFailed(f"{Path(words[0]).name} ended with {done.returncode}: {complaints[-1][:200]} (see {log})")
    return done.stdout or ""

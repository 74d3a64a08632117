"""What is to be measured: a model, settings, workloads. Runs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from octavo.config import EngineConfig
from octavo.engine.measure import Workload
from octavo.weights.cache import FileCache, default_root
from octavo.weights.catalog import resolve
from octavo.weights.gguf import GGUFFile
from octavo.weights.synthetic import FORMATS, SHAPES, write_random_llama

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

DONOR = "smollm2-135m"  # whose tokenizer random models get
SYNTHETIC_VERSION = 1  # of the files that weights/synthetic.py writes; a change there must not meet an old file


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for; None where each kind of measurement has its own default.

    settings: of the engine, by field name. prompt, generated, batch: to be combined. repeats: runs of each. limits:
    measure the machine's too.
    """

    model: str
    settings: Mapping[str, Any]
    prompt: Sequence[int] | None
    generated: Sequence[int] | None
    batch: Sequence[int] | None
    repeats: int | None
    seed: int
    limits: bool = False

    def workloads(self, prompt: Sequence[int], generated: Sequence[int], batch: Sequence[int]) -> list[Workload]:
        """Every combination, with these defaults; the batch varies fastest."""
        axes = (self.prompt or prompt, self.generated or generated, self.batch or batch)
        return [Workload(*each) for each in itertools.product(*axes)]

    def engine(self, workloads: Sequence[Workload]) -> EngineConfig:
        """The settings, with room for the largest batch unless they say otherwise."""
        default = EngineConfig()
        seqs = max(default.max_seqs, *(workload.batch for workload in workloads))
        room = {"max_seqs": seqs, "max_batched_tokens": max(default.max_batched_tokens, seqs)}
        return EngineConfig(**room | dict(self.settings))


# Measures, writes rows to the stream as they are done (None: no table), and returns what --json adds.
Measure = Callable[[Plan, "MakeLLM", IO[str] | None], dict[str, Any]]


def settings_of(config: EngineConfig) -> dict[str, Any]:
    """Every setting by field name, as LLM takes them and --json shows them."""
    return asdict(config)


def random_model(shape: str, form: str) -> Path:
    """The cached file of a random Llama; written first if it is not there yet."""
    cache = FileCache(default_root())
    name = f"random-llama-{shape}-{form}-v{SYNTHETIC_VERSION}.gguf"
    path = cache.path(name)
    with cache.locked(name):
        if not path.exists():
            write_random_llama(path, SHAPES[shape], FORMATS[form], GGUFFile.open(resolve(DONOR)))
    return path


def model_files(model: str) -> list[Path]:
    """The files of a model: the .gguf, or what lies in its directory."""
    path = resolve(model)
    return [path] if path.is_file() else sorted(each for each in path.iterdir() if each.is_file())


def model_bytes(model: str) -> int:
    """Size of the model's files."""
    return sum(path.stat().st_size for path in model_files(model))

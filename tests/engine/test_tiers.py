"""An engine over tiers: the answers of one without, to the bit, whatever the tiers do; and a cache that survives."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest
from failing_tiers import tiers_that_fail
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine import tiers as engine_tiers
from octavo.engine.outputs import Choice, EngineStats
from octavo.errors import InvalidRequest, KVError, NotEnoughMemory, TierError
from octavo.kv import KVCacheManager
from octavo.ops.kv_pool import KVPool
from octavo.tiers.block_file import BlockFile
from octavo.tiers.disk import DiskLimits, DiskTier

sys.path.append(str(Path(__file__).parents[1] / "tiers"))
from faulty_files import HangingFiles

PROMPTS = [[(index * 37 + each) % 200 for index in range(33)] for each in range(5)]
PROMPTS += [PROMPTS[0][:20] + PROMPTS[1][:9], PROMPTS[0][:30]]
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=1)
Answers = list[tuple[Choice, ...]]


@pytest.fixture(scope="module", params=[None, 10], ids=["full", "window"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("random"), window=request.param)


@pytest.fixture(scope="module")
def expected(model: Path) -> Answers:
    with LLM(model, num_blocks=64, prefix_cache=False) as llm:
        return [llm.generate(prompt, PARAMS)[0].choices for prompt in PROMPTS]


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CHECK", "2")


def serve(model: Path, rounds: int = 2, **settings: Any) -> tuple[Answers, list[int], EngineStats]:
    """Answers one at a time in a pool too small for two prompts, then all at once; cached tokens of the first round."""
    with LLM(model, num_blocks=14, block_size=4, max_seqs=4, max_batched_tokens=32, **settings) as llm:
        answers, cached = [], []
        for number in range(rounds):
            for prompt in PROMPTS:
                output = llm.generate(prompt, PARAMS)[0]
                answers.append(output.choices)
                cached += [output.metrics.cached_tokens] if number == 0 else []
        answers += [output.choices for output in llm.generate(PROMPTS, PARAMS, progress=False)]
        stats = llm.stats()
        assert stats.blocks_used == 0
    return answers, cached, stats


def test_answers_are_the_same_with_every_tier(model: Path, expected: Answers, tmp_path: Path) -> None:
    for settings in (
        {"host_kv_memory": "1MiB"},
        {"host_kv_memory": "40KiB"},
        {"disk_kv": tmp_path / "a", "disk_kv_size": "1MiB"},
        {"disk_kv": tmp_path / "b", "disk_kv_size": "70KiB"},
        {"host_kv_memory": "40KiB", "disk_kv": tmp_path / "c", "disk_kv_size": "1MiB"},
    ):
        answers, _, stats = serve(model, **settings)
        assert answers == expected * 3
        assert stats.fetched_blocks == sum(tier.fetched for tier in stats.tiers)
        assert stats.fetched_blocks > 0 or "1MiB" not in settings.values()
        assert all(tier.failures == tier.corrupt == tier.slow == 0 for tier in stats.tiers)


def test_a_restart_hits_as_before(model: Path, expected: Answers, tmp_path: Path) -> None:
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB"}
    _, cold, _ = serve(model, **disk)
    answers, warm, stats = serve(model, **disk)
    assert answers == expected * 3
    assert sum(cold) < sum(warm)
    assert warm == [(len(prompt) - 1) // 4 * 4 for prompt in PROMPTS], "every full block is found again"
    assert stats.tiers[0].stored == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_failing_disk_costs_time_and_nothing_else(model: Path, expected: Answers, tmp_path: Path, seed: int) -> None:
    with tiers_that_fail(seed, one_in=5) as files:
        answers, _, stats = serve(model, rounds=4, disk_kv=tmp_path / "d", disk_kv_size="1MiB")
    assert answers == expected * 5
    assert files.faults > 20
    assert stats.tiers[0].failures + stats.tiers[0].corrupt > 5


def test_blocks_that_vanish_between_lookup_and_fetch(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fetch fails, after the sequences were opened on it: they are closed, open again, and count no hit."""
    monkeypatch.setattr(BlockFile, "read", lambda *_: None)
    answers, cached, stats = serve(model, disk_kv=tmp_path / "d", disk_kv_size="1MiB")
    assert answers == expected * 3
    assert stats.fetched_blocks > 0
    assert stats.preemptions == 0 or stats.preemptions < 20
    reopened, _, _ = serve(model, disk_kv=tmp_path / "d", disk_kv_size="1MiB")
    assert reopened == expected * 3
    assert cached[0] == 0


def test_a_lost_block_that_nobody_hears_of_is_noticed_here(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: the sequences that hold a block which could not be fetched go on as if it had been."""
    monkeypatch.setattr(BlockFile, "read", lambda *_: None)
    monkeypatch.setattr(KVCacheManager, "lost", lambda self, block: ())
    answers, _, stats = serve(model, disk_kv=tmp_path / "d", disk_kv_size="1MiB")
    assert stats.fetched_blocks > 0
    assert answers != expected * 3


def test_a_hanging_disk_is_given_up(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HangingFiles()
    limits = DiskLimits(patience_s=0.05, drain_s=0.05)
    monkeypatch.setattr(engine_tiers, "DiskTier", functools.partial(DiskTier, files=files, limits=limits))
    serve(model, disk_kv=tmp_path / "d", disk_kv_size="1MiB")
    with LLM(model, num_blocks=14, block_size=4, disk_kv=tmp_path / "d", disk_kv_size="1MiB") as llm:
        files.reads.clear()
        assert [llm.generate(prompt, PARAMS)[0].choices for prompt in PROMPTS] == expected
        assert llm.stats().tiers[0].slow == 1
        files.reads.set()


def test_a_wiped_namespace_is_not_found_again(model: Path, tmp_path: Path) -> None:
    both = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB", "host_kv_memory": "1MiB"}
    with LLM(model, num_blocks=14, block_size=4, **both) as llm:  # type: ignore[arg-type]
        engine = llm.engine

        def cached(namespace: bytes) -> int:
            engine.add(PROMPTS[0], PARAMS, seed=0, namespace=namespace)
            while engine.has_work:
                for delta in engine.step():
                    if delta.output is not None:
                        found = delta.output.metrics.cached_tokens
            return found

        for namespace in (b"one", b"two"):
            assert cached(namespace) == 0
        llm.generate(PROMPTS[1:4], PARAMS, progress=False)
        assert engine.wipe(b"one") > 0
        assert cached(b"one") == 0
        assert cached(b"two") == 32


def test_refusals(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="prefix_cache"):
        LLM(model, prefix_cache=False, host_kv_memory="1MiB")
    with pytest.raises(InvalidRequest, match="disk_kv_size must be bytes"):
        LLM(model, disk_kv=tmp_path / "d", disk_kv_size="much")
    with pytest.raises(NotEnoughMemory, match=r"tiers 100\.0GiB \+ process .* --host-kv-memory"):
        LLM(model, num_blocks=14, host_kv_memory="100GiB")
    with pytest.raises(TierError, match="hold no block"):
        LLM(model, num_blocks=14, host_kv_memory=100)
    with LLM(model, num_blocks=14, disk_kv=tmp_path / "d"), pytest.raises(TierError, match="in use by another"):
        LLM(model, num_blocks=14, disk_kv=tmp_path / "d")
    with pytest.raises(TierError, match=r"another model or KV format .* blocks of 16 tokens.* blocks of 8 tokens"):
        LLM(model, num_blocks=14, disk_kv=tmp_path / "d", block_size=8)
    other = make_random(tmp_path / "other")
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-5] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    with pytest.raises(TierError, match="another model"):
        LLM(other, num_blocks=14, disk_kv=tmp_path / "d")


def test_the_step_is_told_when_an_operation_has_no_tier() -> None:
    from octavo.exec.block_mover import BlockMover
    from octavo.kv import Fetch

    with pytest.raises(TypeError, match="needs a lower tier"):
        BlockMover(None).run([Fetch(b"k", 0)])  # type: ignore[arg-type]
    assert issubclass(TierError, Exception)
    assert not issubclass(TierError, KVError)


def test_a_fault_while_blocks_move_fails_the_step_and_leaves_no_half_filled_block(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that a step was to fetch are published when it is planned: if it breaks off, none may match."""
    with LLM(model, num_blocks=14, block_size=4, host_kv_memory="1MiB") as llm:
        for prompt in PROMPTS:
            llm.generate(prompt, PARAMS)
        with monkeypatch.context() as patch:
            patch.setattr(KVPool, "write_block", lambda *_: 1 / 0)
            failed = llm.generate(PROMPTS[:3], PARAMS, progress=False)
            assert {output.choices[0].finish_reason for output in failed} == {"error"}
        assert [llm.generate(prompt, PARAMS)[0].choices for prompt in PROMPTS] == expected


def test_blocks_of_another_instruction_set_are_misses(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that moved to another processor: the bits of its blocks are not those that this one would compute."""
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB"}
    serve(model, **disk)
    monkeypatch.setenv("OCTAVO_ISA", "portable")
    with LLM(model, num_blocks=64, block_size=4) as llm:
        portable = [llm.generate(prompt, PARAMS)[0].choices for prompt in PROMPTS]
    answers, cached, _ = serve(model, **disk)
    assert answers == portable * 3
    assert cached[0] == 0


def test_an_encrypted_cache_survives_a_restart_and_a_rotation(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text("11" * 32)
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB", "disk_kv_key": keys}
    serve(model, **disk)
    keys.write_text("22" * 32 + "\n" + "11" * 32)
    answers, warm, stats = serve(model, **disk)
    assert answers == expected * 3
    assert warm == [(len(prompt) - 1) // 4 * 4 for prompt in PROMPTS]
    keys.write_text("33" * 32)
    answers, cold, stats = serve(model, **disk)
    assert answers == expected * 3
    assert cold[0] == 0
    assert stats.tiers[0].retired > 5
    with pytest.raises(InvalidRequest, match="disk_kv_key encrypts disk_kv"):
        LLM(model, disk_kv_key=keys)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    monkeypatch.delitem(sys.modules, "octavo.tiers.encryption")
    with pytest.raises(TierError, match=r"pip install 'octavo\[encryption\]'"):
        LLM(model, num_blocks=14, **disk)  # type: ignore[arg-type]


@pytest.mark.parametrize("aborted", [False, True], ids=["served", "aborted"])
def test_a_request_whose_blocks_are_read_waits_while_others_run(
    model: Path, expected: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aborted: bool
) -> None:
    """The disk stands still: those that run go on, the next waits for its blocks, and finds them in memory then."""
    files = HangingFiles()
    monkeypatch.setattr(engine_tiers, "DiskTier", functools.partial(DiskTier, files=files))
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB"}
    serve(model, **disk)
    with LLM(model, num_blocks=64, block_size=4, **disk) as llm:  # type: ignore[arg-type]
        engine = llm.engine
        running = engine.add([9] * 5, SamplingParams(max_tokens=30, ignore_eos=True), seed=0)
        engine.step()
        files.reads.clear()
        waiting = engine.add(PROMPTS[0], PARAMS, seed=0)
        for _ in range(5):
            assert {delta.request_id for delta in engine.step()} == {running}
        assert llm.stats().waiting == 1
        if aborted:
            assert engine.abort(waiting)
            assert engine._mover.tiers is not None
            assert engine._mover.tiers._ahead is not None
            assert engine._mover.tiers._ahead.blocks == 0
        files.reads.set()
        while not aborted and engine._scheduler.request(1).fetching:
            engine._prefetcher.poll()
        outputs = {}
        while engine.has_work:
            outputs |= {delta.request_id: delta.output for delta in engine.step() if delta.output is not None}
        if not aborted:
            assert outputs[waiting].choices == expected[0]
            assert outputs[waiting].metrics.cached_tokens == 32


def test_alone_it_waits_for_nobody(model: Path, expected: Answers, tmp_path: Path) -> None:
    """With nothing else to run, a request is let in at once and its step waits for the blocks."""
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB"}
    serve(model, **disk)
    with LLM(model, num_blocks=64, block_size=4, **disk) as llm:  # type: ignore[arg-type]
        request = llm.engine.add(PROMPTS[0], PARAMS, seed=0)
        assert [delta.request_id for delta in llm.engine.step()] == [request]

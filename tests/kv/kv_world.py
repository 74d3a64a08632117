"""A manager, a fake device and a model of what every sequence must read; each method is one random verb with checks.

Driven by the Hypothesis state machine (`kv_machine`), which shrinks, and by `kv_storm`, which is fast.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_device import FakeDevice, FakeTier, Tier, slot_value
from kv_model import NAMESPACES, Row, Sequence, Setting, Step, View
from kv_rare import RareVerbs

from octavo.errors import KVError
from octavo.kv import Fetch, KVCacheManager


class World:
    """Every method named after a verb performs it with arguments made from the ints given, if the verb makes sense."""

    def __init__(self, setting: Setting, tier: Tier | None = None) -> None:
        """tier: instead of the fake one that the setting asks for."""
        self.setting = setting
        self.tier = FakeTier(setting.tier) if tier is None and setting.tier is not None else tier
        self.kv = KVCacheManager(
            setting.num_blocks,
            setting.block_size,
            windows=setting.windows,
            prefix_cache=setting.prefix_cache,
            lower_tier=self.tier,
        )
        self.device = FakeDevice(setting.num_blocks, setting.block_size, self.tier)
        self.rare = RareVerbs(self)
        self.sequences: dict[int, Sequence] = {}
        self.planned: dict[int, Row] = {}
        self.running: list[Step] = []
        self.next_seq = 0
        # A block was lost: whoever was closed or cut before its step ran may read half of one there, to no effect.
        self.lossy = False
        self.spoiled: set[int] = set()  # closed by then

    # Verbs

    def open(self, tokens: list[int], namespace: int, enabled: bool = True) -> None:
        """`enabled` False: opened empty, so that it takes no hit, and then appended to."""
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        owner = Sequence(seq, namespace, [], [])
        for token in tokens if enabled else []:
            owner.append(token)
        expected = self._reference_hit(owner)
        covered = self.kv.open(seq, owner.tokens, NAMESPACES[namespace])
        assert covered % self.setting.block_size == 0
        assert covered <= max(0, len(owner.tokens) - 1)
        if self.setting.colliding:
            assert covered <= expected, "a hit on nothing"
        elif self.tier is None:
            assert covered == expected, "a hit is missed, or one is on nothing"
        else:
            assert covered >= expected, "a hit is missed"
        assert self.kv.committed(seq) == self.kv.reserved(seq) == covered
        for token in [] if enabled else tokens:
            owner.append(token)
        owner.peak = covered
        self.sequences[seq] = owner

    def extend(self, pick: int, n: int, filler: int) -> None:
        """Reserve room for `n` tokens and plan to compute them. Prompt tokens first, then bits of `filler`."""
        owner = self._pick(pick)
        if owner is None:
            return
        kv, size = self.kv, self.setting.block_size
        start = kv.reserved(owner.seq)
        while len(owner.tokens) < start + n:
            owner.append(filler >> len(owner.tokens) % 16 & 1)
        before = self.snapshot()
        free = kv.num_free
        if kv.extend(owner.seq, n):
            assert kv.reserved(owner.seq) == start + n
            row = self.planned.get(owner.seq)
            if row is None:
                self.planned[owner.seq] = Row(owner, start, start + n, start + n)
            else:
                row.end = row.live = start + n
        else:
            assert self.snapshot() == before, "a refusal changed something"
            more = -(-(start + n) // size) - -(-start // size)
            copies = start % size != 0
            assert (more + copies) * len(self.setting.windows) > free, "refused although there is room"

    def fork(self, pick: int) -> None:
        parent = self._pick(pick)
        if parent is None:
            return
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        committed = self.kv.committed(parent.seq)
        child = Sequence(seq, parent.namespace, parent.tokens[:committed], parent.hashes[:committed], parent.peak)
        self.kv.fork(parent.seq, seq, child.tokens)
        assert self.kv.committed(seq) == self.kv.reserved(seq) == committed
        self.sequences[seq] = child

    def truncate(self, pick: int, back: int) -> None:
        owner = self._pick(pick)
        if owner is None:
            return
        n = max(0, self.kv.reserved(owner.seq) - back)
        before = self.snapshot()
        try:
            self.kv.truncate(owner.seq, n)
        except KVError:
            assert self.snapshot() == before, "a refusal changed something"
            assert n < owner.peak - 1, "dropping the last token must always be possible"
            assert any(self.setting.windows), "nothing is ever given back here"
            return
        owner.cut(n)
        self._forget_after(owner, n)

    def close(self, pick: int) -> None:
        """Finish or preempt, in the middle of a step as well."""
        owner = self._pick(pick)
        if owner is not None:
            self._close(owner)

    def misuse(self, pick: int) -> None:
        """Every wrong call raises KVError and changes nothing."""
        before = self.snapshot()
        kv, unknown = self.kv, self.next_seq + 5
        calls: list[Callable[[], Any]] = [
            lambda: kv.close(unknown),
            lambda: kv.extend(unknown, 1),
            lambda: kv.commit(unknown, 1),
            lambda: kv.truncate(unknown, 0),
            lambda: kv.fork(unknown, unknown + 1, []),
            lambda: kv.open(unknown, [2**31] * 99),
        ]
        owner = self._pick(pick)
        if owner is not None:
            seq = owner.seq
            calls = [
                lambda: kv.open(seq, [1, 2]),
                lambda: kv.fork(seq, seq, owner.tokens),
                lambda: kv.commit(seq, kv.reserved(seq) - kv.committed(seq) + 1),
                lambda: kv.commit(seq, -1),
                lambda: kv.extend(seq, -1),
                lambda: kv.truncate(seq, kv.reserved(seq) + 1),
            ]
        if owner is not None or self.setting.prefix_cache:
            with pytest.raises(KVError):
                calls[pick % len(calls)]()
            assert self.snapshot() == before, "misuse changed something"

    def advance(self, n: int, filler: int, seed: int) -> None:
        """A whole step that computes `n` tokens of every sequence that has room."""
        for pick in range(len(self.sequences)):
            self.extend(pick, n, filler)
        self.launch(seed, True, 0)
        self.land(seed, 0)

    def family(self, pick: int, codes: list[int]) -> None:
        """Forks of one sequence are cut, written to and closed in one step: copies of copies, of what goes away."""
        for code in codes:
            latest, back = len(self.sequences) - 1 - code // 8 % 3, code // 32 % 3
            match code % 8:
                case 0 | 1:
                    self.fork(pick)
                case 2:
                    self.truncate(latest, 1 + back)
                case 3:
                    self.truncate(pick, 1 + back)
                case 4 | 5:
                    self.extend(latest, 1, 0)
                case 6:
                    self.extend(pick, 1, 1)
                case 7:
                    self.close(pick if back == 0 else latest)

    def cut_into_what_is_fetched(self, tokens: list[int], seed: int) -> None:
        """Half of what a step fetches fails, while forks of the sequence that it is for are cut in it and written to,
        in the next step: those have copies of what never came."""
        self.open(tokens, 0)
        self.launch(seed, False, 2)
        latest = len(self.sequences) - 1
        for number in range(2):
            self.fork(latest)
            self.truncate(latest + number + 1, 1 + seed % 3)
            self.extend(latest + number + 1, 1, seed)
        self.close(latest if seed % 2 else latest + 1)
        if seed % 3:
            self.launch(seed, False, 0)
        self.land(seed, 0)

    def lose(self, pick: int) -> None:
        if self.tier is not None:
            self.tier.lose(pick)

    # Steps

    def launch(self, seed: int, run_now: bool, fail: int) -> None:
        """Take the operations and rows of the planned step; run them now, or when the step lands, with the next one
        planned or under way. fail: one in `fail` fetches fails (0: none)."""
        if len(self.running) == (2 if self.setting.pipelined else 1):
            self.land(seed, 0)
        rows = [row for row in self.planned.values() if row.live > row.start]
        for row in rows:
            row.end = row.live
            row.hashes = row.owner.hashes[: row.end]
        views = {
            seq: View(
                [list(self.kv.block_ids(seq, group)) for group in range(len(self.setting.windows))],
                owner.hashes[:],
                self.kv.committed(seq),
                self.kv.committed(seq),
            )
            for seq, owner in self.sequences.items()
        }
        step = Step(self.kv.take_ops(), rows, views, fail)
        self.planned = {}
        if self.tier is not None:
            self.tier.begin_step()
        self.running.append(step)
        if run_now:
            for earlier in self.running:
                self._run(earlier, seed)

    def land(self, seed: int, drop: int) -> None:
        """The oldest step ends: commit what it computed, all but `drop` tokens of each row (rejected guesses)."""
        if not self.running:
            return
        step = self.running[0]
        self._run(step, seed)
        self.running.pop(0)
        for row in step.rows:
            owner = row.owner
            if self.sequences.get(owner.seq) is not owner or row.live <= row.start:
                continue
            accepted = max(0, row.live - row.start - drop)
            self.kv.commit(owner.seq, accepted)
            owner.peak = max(owner.peak, row.start + accepted)
            if drop and accepted < row.live - row.start:
                keep = row.start + accepted
                self.kv.truncate(owner.seq, keep)
                owner.cut(keep)
                self._forget_after(owner, keep)
        self.kv.end_step()
        if self.tier is not None:
            self.tier.end_step()
        self._record_meanings()
        self.rare.check()
        self.device.fit(self.kv.span)
        if not self.running and not self.kv._ledger.pinned():
            self._check_published()
        self.audit()

    def finish(self) -> None:
        """Close everything, land everything: no reference is left."""
        for owner in list(self.sequences.values()):
            self._close(owner)
        if self.kv.num_blocks < self.setting.num_blocks:
            assert self.kv.resize(self.setting.num_blocks) == ()
            self.device.fit(self.kv.span)
        self.rare.check()
        while self.rare.pins:
            self.rare.unpin(0)
        self.launch(0, True, 0)
        while self.running:
            self.land(0, 0)
        self.audit()
        stats = self.kv.stats()
        assert self.kv.num_free == self.kv.num_blocks == self.kv.capacity == self.kv.span
        assert (stats.used, stats.references, stats.sequences) == (0, 0, 0)
        assert self.setting.colliding or stats.key_collisions == 0

    def audit(self) -> None:
        if self.setting.audit:
            self.kv.check()
            stats = self.kv.stats()
            assert stats.used + stats.cached + stats.free == stats.num_blocks
            idle = sum(self.kv._pool.refs[block] == 1 for block in self.kv._pool.kept)
            assert stats.free + stats.cached == self.kv.num_free + idle
            assert stats.tokens == self._slots_filled()
            assert stats.utilisation <= 1

    def snapshot(self) -> Any:
        """All of the manager's state that a verb could change."""
        pool, ledger = self.kv._pool, self.kv._ledger
        states = {
            seq: (s.committed, s.reserved, [t[:] for t in s.tables], s.given_back[:], len(s.chain), s.write_limit)
            for seq, s in self.kv._sequences.items()
        }
        ops = (*ledger._spills, *ledger._copies, *ledger._fetches)
        kept = sorted(pool.kept), dict(pool.wanted), pool.num_blocks
        books = pool.refs[:], pool.pins[:], pool.keys[:], dict(pool.index), list(pool.free), kept
        return *books, ops, ledger.pinned(), states

    # Helpers

    def _pick(self, pick: int) -> Sequence | None:
        owners = list(self.sequences.values())
        return owners[pick % len(owners)] if owners else None

    def _close(self, owner: Sequence) -> None:
        self.kv.close(owner.seq)
        del self.sequences[owner.seq]
        self.planned.pop(owner.seq, None)

    def _forget_after(self, owner: Sequence, n: int) -> None:
        """`owner` was cut to n tokens: what is planned or running beyond does not count."""
        rows = [row for step in self.running for row in step.rows if row.owner is owner]
        if owner.seq in self.planned:
            rows.append(self.planned[owner.seq])
        for row in rows:
            row.live = min(row.live, n)
        for step in self.running:
            view = step.views.get(owner.seq)
            if view is not None:
                view.live = min(view.live, n)
        planned = self.planned.get(owner.seq)
        if planned is not None and planned.live <= planned.start:
            del self.planned[owner.seq]

    def _run(self, step: Step, seed: int) -> None:
        """The device runs one step. Nothing may read or write anything that the step's own snapshot does not name."""
        if step.has_run:
            return
        step.has_run = True
        order = random.Random(seed)
        fetched = [op.block for op in step.ops if isinstance(op, Fetch)]
        failing = {block for block in fetched if step.fail and order.randrange(step.fail) == 0}
        lost = self.device.run_ops(step.ops, order, failing)
        for block in lost:
            for seq in self.kv.lost(block):
                self._close(self.sequences[seq])
        if lost:
            self.lossy = True
            self.rare.kept.clear()
            self.spoiled.update(seq for each in self.running for seq in each.views if seq not in self.sequences)
        rows = [row for row in step.rows if row.owner.seq not in self.spoiled]
        order.shuffle(rows)
        for row in rows:
            view = step.views[row.owner.seq]
            self._check_reads(view, min(row.start, view.live) if self.lossy else row.start, "a row")
            for position in range(row.start, row.end):
                for group, table in enumerate(view.tables):
                    self.device.write(table, position, slot_value(group, row.hashes[position]))
        for seq, view in step.views.items():
            if seq not in self.spoiled:
                self._check_reads(view, view.live if self.lossy else view.committed, f"sequence {seq}")

    def _check_reads(self, view: View, end: int, who: str) -> None:
        """All that the query at position `end` may read is right."""
        for group, (table, window) in enumerate(zip(view.tables, self.setting.windows, strict=True)):
            for position in range(0 if window is None else max(0, end - window + 1), end):
                value = self.device.read(table, position)
                assert value == slot_value(group, view.hashes[position]), f"{who} reads {value} at {position}"

    def _contents(self) -> dict[bytes, tuple[Any, ...]]:
        """What each published block must hold, worked out from the tokens that it was published as."""
        size, contents = self.setting.block_size, {}
        for key, block in self.kv._pool.index.items():
            packed, prefix = [], self.kv._pool.prefixes[block]
            while prefix is not None and prefix.parent is not None:
                packed.append(prefix.tokens)
                prefix = prefix.parent
            assert prefix is not None
            value, hashes = NAMESPACES.index(prefix.tokens), []
            for token in memoryview(b"".join(reversed(packed))).cast("i"):
                value = hash((value, token))
                hashes.append(value)
            contents[key] = tuple(slot_value(key[-1], value) for value in hashes[-size:])
        return contents

    def _record_meanings(self) -> None:
        self.device.meaning.update(self._contents())

    def _check_published(self) -> None:
        for key, content in self._contents().items():
            held = tuple(self.device.blocks[self.kv._pool.index[key]])
            assert held == content, f"block {self.kv._pool.index[key]} is published and holds {held}"

    def _reference_hit(self, owner: Sequence) -> int:
        """The longest hit in the pool, worked out without keys: by the hashes that published blocks stand for."""
        size, windows = self.setting.block_size, self.setting.windows
        live = set(self._contents().values())
        for blocks in range(max(0, len(owner.tokens) - 1) // size, 0, -1):
            if all(
                tuple(slot_value(group, value) for value in owner.hashes[i * size : (i + 1) * size]) in live
                for group, window in enumerate(windows)
                for i in range(0 if window is None else max(0, blocks * size - window) // size, blocks)
            ):
                return blocks * size
        return 0

    def _slots_filled(self) -> int:
        """Distinct slots that hold a committed token, counted one by one."""
        size = self.setting.block_size
        return len(
            {
                (table[position // size], position % size)
                for seq in self.sequences
                for table in (self.kv.block_ids(seq, group) for group in range(len(self.setting.windows)))
                for position in range(self.kv.committed(seq))
                if table[position // size] >= 0
            }
        )

"""The rarer verbs of a `kv_world.World`, each with checks: pins, pools that change their size, explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_device import slot_value
from kv_model import NAMESPACES, Sequence

from octavo.errors import KVError

if TYPE_CHECKING:
    from kv_world import World


class RareVerbs:
    """pins: (number, what is pinned). kept: contents that were pinned and published when the last step ended."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pins: list[tuple[int, Sequence]] = []
        self.kept: set[Any] = set()

    def pin(self, tokens: list[int], namespace: int) -> None:
        """Keep a beginning until `unpin`; refused, with nothing changed, beyond half of the pool."""
        owner = Sequence(-1, namespace, [], [])
        for token in tokens:
            owner.append(token)
        before = self.world.snapshot()
        try:
            number = self.world.kv.pins.add(owner.tokens, NAMESPACES[namespace])
        except KVError:
            assert self.world.snapshot() == before, "a refusal changed something"
            return
        assert self.world.kv.num_blocks - self.world.kv.capacity <= self.world.kv.num_blocks // 2
        self.pins.append((number, owner))

    def unpin(self, pick: int) -> None:
        if self.pins:
            number, _ = self.pins.pop(pick % len(self.pins))
            self.kept.clear()
            assert self.world.kv.pins.remove(number)
            assert not self.world.kv.pins.remove(number)

    def resize(self, num_blocks: int) -> None:
        """More blocks at once, or fewer as soon as nobody holds those beyond; what is left at the end of a step is
        all that the device still has."""
        before = self.world.snapshot()
        try:
            holders = self.world.kv.resize(num_blocks)
        except KVError:
            assert self.world.snapshot() == before, "a refusal changed something"
            return
        assert set(holders) == {
            seq
            for seq in self.world.sequences
            if any(
                block >= num_blocks
                for group in range(len(self.world.setting.windows))
                for block in self.world.kv.block_ids(seq, group)
            )
        }
        self.kept.clear()
        self.world.device.fit(self.world.kv.span)

    def explain(self, tokens: list[int], namespace: int, operator: bool) -> None:
        """An explanation changes nothing, and is none exactly where every block would be found."""
        owner = Sequence(-1, namespace, [], [])
        for token in tokens:
            owner.append(token)
        before = self.world.snapshot()
        miss = self.world.kv.misses.explain(owner.tokens, NAMESPACES[namespace], operator=operator)
        assert self.world.snapshot() == before, "an explanation changed something"
        if miss is None:
            return
        size, covered = self.world.setting.block_size, self.world._reference_hit(owner)
        assert miss.position >= covered if self.world.tier is not None else miss.position == covered
        assert miss.reason in ("differs", "evicted", "other_namespace", "no_room", "unknown")
        assert miss.reason != "no_room" or self.world.tier is not None
        assert operator or (miss.by is None and miss.reason != "other_namespace")
        if miss.reason == "differs" and self.world.setting.windows == (None,) and not self.world.setting.colliding:
            assert miss.token is not None
            held = {value for content in self.world._contents().values() for value in content}
            assert slot_value(0, owner.hashes[miss.token]) not in held, "it does not differ there"
            assert not miss.token % size or slot_value(0, owner.hashes[miss.token - 1]) in held, "it differs before"

    def check(self) -> None:
        """What is pinned and was published before is so still, but in blocks that leave a pool that shrinks."""
        size, wanted = self.world.setting.block_size, set()
        for _, owner in self.pins:
            blocks = len(owner.tokens) // size
            for group, window in enumerate(self.world.setting.windows):
                for number in range(0 if window is None else max(0, blocks * size - window) // size, blocks):
                    hashes = owner.hashes[number * size : (number + 1) * size]
                    wanted.add(tuple(slot_value(group, value) for value in hashes))
        index = self.world.kv._pool.index
        live = {content for key, content in self.world._contents().items() if index[key] < self.world.kv.num_blocks}
        assert self.world.setting.colliding or self.kept & wanted <= live, "a pinned block was evicted"
        self.kept = live & wanted

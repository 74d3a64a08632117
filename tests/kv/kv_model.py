"""What the caller of a manager knows: sequences with the hash that each position must hold, rows and steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.kv import Op

NAMESPACES = (b"", b"other")


@dataclass(frozen=True)
class Setting:
    """One way to build a manager. pipelined: step N + 1 is planned while step N runs. audit: call check() too.
    colliding: keys collide, so that hits may be missed."""

    num_blocks: int
    block_size: int
    windows: tuple[int | None, ...] = (None,)
    tier: int | None = None
    prefix_cache: bool = True
    pipelined: bool = False
    audit: bool = True
    colliding: bool = False

    def __str__(self) -> str:
        marks = [f"tier {self.tier}"] if self.tier is not None else []
        marks += ["pipelined"] if self.pipelined else []
        marks += [] if self.prefix_cache else ["no cache"]
        return ", ".join((f"{self.num_blocks}x{self.block_size}", *map(str, self.windows), *marks))


@dataclass
class Sequence:
    """What the caller knows. hashes[i] stands for the namespace and tokens[: i + 1]. peak: most that was committed."""

    seq: int
    namespace: int
    tokens: list[int]
    hashes: list[int]
    peak: int = 0

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.hashes.append(hash((self.hashes[-1] if self.hashes else self.namespace, token)))

    def cut(self, n: int) -> None:
        del self.tokens[n:], self.hashes[n:]


@dataclass
class Row:
    """Positions start to end are computed; a truncation moves `live` down: those after it do not count any more."""

    owner: Sequence
    start: int
    end: int
    live: int
    hashes: list[int] = field(default_factory=list)


@dataclass
class View:
    """A sequence's tables as a step was launched with them, and how far it may read. A truncation moves `live` down:
    what a step reads after it does not matter any more."""

    tables: list[list[int]]
    hashes: list[int]
    committed: int
    live: int


@dataclass
class Step:
    ops: tuple[Op, ...]
    rows: list[Row]
    views: dict[int, View]
    fail: int = 0
    has_run: bool = False

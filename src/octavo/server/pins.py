"""Pins that clients made: whose each is, how many a tenant may have. Knows no HTTP and no tokens' meaning."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from octavo.options import Tenant
from octavo.server.errors import ApiError, Failure, invalid

MOST = 64  # of one tenant


@dataclass(frozen=True, slots=True)
class PinAsk:
    """A body of POST /pins, read and checked."""

    tokens: list[int]
    ttl_s: float
    namespace: bytes


@dataclass(frozen=True, slots=True)
class Pin:
    """number: the engine's, in its `life`, which is another one after each rebuild. blocks: full ones of its tokens.
    ends: by this table's clock, in seconds since 1970."""

    number: int
    life: int
    tenant: str
    blocks: int
    ends: float


class Pins:
    """The pins of all tenants by the id that clients were given. Each is forgotten when its time is up, and all when
    the engine begins another life: a fresh one has none, and numbers its own anew."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pins: dict[str, Pin] = {}

    def check(self, tenant: Tenant, blocks: int, life: int) -> None:
        """ApiError 429 for one pin too many; InvalidRequest for more blocks than the tenant's quota."""
        self._expire(life)
        mine = [pin for pin in self._pins.values() if pin.tenant == tenant.name]
        if len(mine) >= MOST:
            soon = max(1, round(min(pin.ends for pin in mine) - self._clock()))
            message = f"{len(mine)} prompts are pinned and {MOST} may be; delete a pin, or wait {soon} s for one to end"
            headers = {"retry-after": str(soon)}
            raise ApiError(Failure(429, message, "rate_limit_error", code="too_many_pins", headers=headers))
        held = sum(pin.blocks for pin in mine)
        if tenant.kv_blocks is not None and held + blocks > tenant.kv_blocks:
            raise invalid(
                f"{held} blocks are pinned and {blocks} more would pass the quota of {tenant.kv_blocks}; delete a pin,"
                " or pin a shorter beginning",
                "prompt",
                code="quota_too_small",
            )

    def add(self, pin: Pin) -> str:
        """Note a pin that the engine has; its id here."""
        id = f"pin-{secrets.token_hex(12)}"
        self._pins[id] = pin
        return id

    def take(self, id: str, tenant: Tenant, life: int) -> Pin | None:
        """Forget a pin, to have the engine end it; None when the tenant has none of that id."""
        self._expire(life)
        pin = self._pins.get(id)
        if pin is None or pin.tenant != tenant.name:
            return None
        return self._pins.pop(id)

    def _expire(self, life: int) -> None:
        now = self._clock()
        for id in [id for id, pin in self._pins.items() if pin.ends <= now or pin.life != life]:
            del self._pins[id]

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
    """number: the engine's. blocks: full ones of its tokens. ends: by this table's clock, in seconds since 1970."""

    number: int
    tenant: str
    blocks: int
    ends: float


class Pins:
    """The pins of all tenants by the id that clients were given; each is forgotten when its time is up."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pins: dict[str, Pin] = {}

    def check(self, tenant: Tenant, blocks: int) -> None:
        """ApiError 429 for one pin too many; InvalidRequest for more blocks than the tenant's quota."""
        self._expire()
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

    def add(self, number: int, tenant: Tenant, blocks: int, ttl_s: float) -> tuple[str, Pin]:
        """Note the engine's pin `number`; its id here."""
        id, pin = f"pin-{secrets.token_hex(12)}", Pin(number, tenant.name, blocks, self._clock() + ttl_s)
        self._pins[id] = pin
        return id, pin

    def take(self, id: str, tenant: Tenant) -> Pin | None:
        """Forget a pin, to have the engine end it; None when the tenant has none of that id."""
        self._expire()
        pin = self._pins.get(id)
        if pin is None or pin.tenant != tenant.name:
            return None
        return self._pins.pop(id)

    def _expire(self) -> None:
        now = self._clock()
        for id in [id for id, pin in self._pins.items() if pin.ends <= now]:
            del self._pins[id]

"""How much of something bounded each tenant has, and when it has too much. Knows not what it is."""

from __future__ import annotations

from octavo.options import Tenant


class Portions:
    """Below the limit whoever comes first may have it. Beyond it a tenant gets more while it has less than its portion:
    the limit, shared by weight among the tenants that have any.

    So a tenant that is alone may have all, and one that floods keeps out itself, not others: each of these still gets
    its portion. With n tenants of equal weights there is at most 1 + 1/2 + ... + 1/n times the limit.
    """

    __slots__ = ("_held", "_weights", "total")

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}
        self._weights: dict[str, float] = {}

    def add(self, tenant: Tenant, amount: int) -> None:
        """It has so much more."""
        self.total += amount
        self._held[tenant.name] = self._held.get(tenant.name, 0) + amount
        self._weights[tenant.name] = tenant.weight

    def remove(self, tenant: Tenant, amount: int) -> None:
        """It has so much less."""
        self.total -= amount
        self._held[tenant.name] -= amount
        if not self._held[tenant.name]:
            del self._held[tenant.name], self._weights[tenant.name]

    def held(self, tenant: Tenant) -> int:
        """What it has."""
        return self._held.get(tenant.name, 0)

    def portion(self, tenant: Tenant, limit: int) -> int:
        """Its part of the limit, beside those that have any now; at least 1."""
        others = sum(weight for name, weight in self._weights.items() if name != tenant.name)
        return max(1, int(limit * tenant.weight / (others + tenant.weight)))

    def beyond(self, tenant: Tenant, limit: int) -> bool:
        """Whether it has too much."""
        return self.total > limit and self.held(tenant) > self.portion(tenant, limit)

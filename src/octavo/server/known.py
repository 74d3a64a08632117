"""Which requests of the engine an id stands for that a client was given, and whose they are. Asks no engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

KEPT = 8192  # answers whose ids are remembered


@dataclass(frozen=True, slots=True)
class Known:
    """One answer: the id that its client was given, the tenant's name, the engine's numbers of its prompts."""

    id: str
    tenant: str
    requests: tuple[int, ...]


class KnownRequests:
    """The last KEPT answers. A tenant finds its own alone: those of others are as unknown as those that never were."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Known] = OrderedDict()
        self._by_request: dict[int, Known] = {}

    def note(self, id: str, tenant: str, requests: Sequence[int]) -> None:
        """An answer begins."""
        known = self._by_id[id] = Known(id, tenant, tuple(requests))
        for request in known.requests:
            self._by_request[request] = known
        if len(self._by_id) > KEPT:
            _, oldest = self._by_id.popitem(last=False)
            for request in oldest.requests:
                del self._by_request[request]

    def requests(self, id: str, tenant: str) -> tuple[int, ...] | None:
        """The engine's numbers of the tenant's answer `id`."""
        known = self._by_id.get(id)
        return known.requests if known is not None and known.tenant == tenant else None

    def id_of(self, request: int, tenant: str) -> str | None:
        """What the tenant knows a request of the engine by."""
        known = self._by_request.get(request)
        return known.id if known is not None and known.tenant == tenant else None

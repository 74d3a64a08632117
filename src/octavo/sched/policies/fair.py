"""The policy `fair`: tenants share the engine by weight, within their quotas. Counts blocks, knows none.

Each tenant has a counter of what it was served: prompt tokens that were computed, and new tokens OUTPUT_COST times,
over its weight. The next newcomer is the first of the tenant whose counter is least. A tenant that had nothing queued
goes on no lower than those that were let in meanwhile: it banks no credit. So while two tenants both have newcomers
waiting, their counters differ by at most what one batch of the one may cost: all that it has begun, at their longest.

A sequence is ranked when it first comes in, and its family with it, by the order of entry. From then on all is as under
first come first served, with the same bounds, but for borrowers: those that came in beyond a soft quota rank behind all
others and give way to them. Who gave way is judged anew. Beyond a hard quota nobody comes in.

Blocks are counted as all that a sequence may need at its longest, so a quota of blocks holds at any moment; a tenant
that runs nothing may always start one. A search is counted whole while any beam of it runs, and its other beams come
in as those did, whatever was spent meanwhile: those that run wait for them. Tokens are counted when they are made: a
tenant that has spent its minute's share starts no more until time has paid its debt, so in t seconds it gets at most
quota * (1 + t / 60), and what was still owed to those that ran when it was spent.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain, islice

from octavo.options import Tenant
from octavo.sched.request import Rank, Request

OUTPUT_COST = 2.0  # of a new token, beside a prompt token
OWN, BORROWED = 0.0, 1.0  # first part of a rank; the second is the order of entry
MANY_TENANTS = 256  # beyond so many, those that have nothing here and owe nothing are forgotten
_NO_ENTRY: Rank = (math.inf, -1)


class Account:
    """One tenant. served: as above. blocks: that its running sequences may need. tokens: left of its quota; below zero
    is debt. newcomers: by sequence, in order of arrival. live: sequences that wait or run. beams: how many run, of each
    search, by its first one, and as what they came in."""

    __slots__ = ("beams", "blocks", "filled", "live", "newcomers", "running", "served", "tenant", "tokens")

    def __init__(self, tenant: Tenant, now: float) -> None:
        self.tenant = tenant
        self.served = 0.0
        self.blocks = self.running = self.live = 0
        self.tokens = float(tenant.tokens_a_minute or 0)
        self.filled = now
        self.newcomers: OrderedDict[int, Request] = OrderedDict()
        self.beams: dict[int, tuple[int, float]] = {}

    def start(self, request: Request, blocks: int) -> None:
        """It runs now; `blocks`: of it, or of its whole search."""
        self.live += 1
        self.running += 1
        if not self.searches(request):
            self.blocks += blocks
        if request.beams:
            first = _first_beam(request).id
            self.beams[first] = self.beams.get(first, (0, 0.0))[0] + 1, request.rank[0]

    def stop(self, request: Request, blocks: int) -> None:
        """It runs no more."""
        self.live -= 1
        self.running -= 1
        if request.beams:
            first = _first_beam(request).id
            running, standing = self.beams.pop(first)
            if running > 1:
                self.beams[first] = running - 1, standing
        if not self.searches(request):
            self.blocks -= blocks

    def searches(self, request: Request) -> bool:
        """Whether it is a beam of a search of which another one runs."""
        return request.beams and _first_beam(request).id in self.beams

    def serve(self, tokens: float, cost: float = 1.0) -> None:
        """It was given `tokens` (or gives them back, below 0), that cost so much each."""
        self.served += tokens * cost / self.tenant.weight
        if self.tenant.tokens_a_minute is not None:
            self.tokens -= tokens

    def refill(self, now: float) -> None:
        """A minute's tokens in a minute, and never more than that at once."""
        quota = self.tenant.tokens_a_minute
        if quota is not None:
            self.tokens = min(float(quota), self.tokens + (now - self.filled) * quota / 60.0)
        self.filled = now

    @property
    def spent(self) -> bool:
        """Whether its quota of tokens is used up."""
        return self.tenant.tokens_a_minute is not None and self.tokens <= 0

    @property
    def owes(self) -> bool:
        """Whether its quota of tokens is not full again."""
        return self.tokens < (self.tenant.tokens_a_minute or 0)

    def standing(self, request: Request, blocks: int) -> float | None:
        """As what it, and its search with it, would come in with `blocks` more: OWN within the quotas, BORROWED beyond
        soft ones, None beyond hard ones. Beams come in as those of their search that run, or they would give way to
        each other."""
        if self.searches(request):
            return self.beams[_first_beam(request).id][1]
        quota = self.tenant.kv_blocks
        if not self.spent and (quota is None or not self.running or self.blocks + blocks <= quota):
            return OWN
        return None if self.tenant.hard else BORROWED


class Fair:
    """A `Policy`. blocks_needed: KV blocks, at most, of a sequence of so many tokens."""

    overtakes = True  # who does not borrow goes before who does

    def __init__(self, blocks_needed: Callable[[int], int]) -> None:
        self._blocks_needed = blocks_needed
        self._accounts: dict[str, Account] = {}
        self._entered: list[Request] = []  # those that wait and have an entry, in its order
        self._entries = 0
        self._floor = 0.0  # no tenant that comes back is below: the largest least counter so far
        self._count = 0
        self._now = 0.0

    # -- those that wait

    def push(self, request: Request) -> None:
        account = self._account(request)
        account.live += 1
        self._count += 1
        if request.rank[1] >= 0:
            insort(self._entered, request, key=_entry)
            return
        if not account.newcomers:
            account.served = max(account.served, self._floor)
        request.rank = _NO_ENTRY
        account.newcomers[request.id] = request

    def remove(self, request: Request) -> None:
        account = self._accounts[request.tenant.name]
        account.live -= 1
        self._count -= 1
        if account.newcomers.pop(request.id, None) is None:
            del self._entered[bisect_left(self._entered, request.rank[1], key=_entry)]

    def head(self, now: float) -> Request | None:
        self._refill(now)
        waiting = self._in_turn()
        borrower: Request | None = None
        for request in waiting:
            standing = self._accounts[request.tenant.name].standing(request, self._blocks(request))
            if standing == OWN:
                return self._rank(request, OWN)
            if borrower is None and standing is not None:
                borrower = request
        return None if borrower is None else self._rank(borrower, BORROWED)

    def wait_s(self, now: float) -> float:
        if not self._count or self.head(now) is not None:
            return 0.0
        debts = (
            (1.0 - account.tokens) * 60.0 / account.tenant.tokens_a_minute
            for account in self._accounts.values()
            if account.tenant.tokens_a_minute is not None and account.spent and account.live > account.running
        )
        return min(debts, default=0.0)

    def ahead(self, request: Request) -> Iterator[Request]:
        """Of each other tenant, as many as the request's own has waiting by weight: they take turns."""
        name = request.tenant.name
        own = self._accounts.get(name)
        turns = 1 + (0 if own is None else len(own.newcomers))
        queues = (
            account.newcomers.values()
            if account is own
            else islice(account.newcomers.values(), math.ceil(turns * account.tenant.weight / request.tenant.weight))
            for account in self._accounts.values()
        )
        return chain(self._entered, chain.from_iterable(queues))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Request]:
        return chain(self._entered, *(account.newcomers.values() for account in self._accounts.values()))

    # -- those that run

    def started(self, request: Request, computes: int) -> None:
        account = self._accounts[request.tenant.name]
        account.start(request, self._blocks(request))
        if request.rank[1] == self._entries:  # a newcomer
            self._floor = max(self._floor, account.served)
            self._entries += 1
            for child in request.children:
                self._enter(account, child)
        account.serve(computes)

    def stopped(self, request: Request) -> None:
        self._accounts[request.tenant.name].stop(request, self._blocks(request))

    def undone(self, request: Request, computes: int) -> None:
        self._accounts[request.tenant.name].serve(-computes)

    def made(self, request: Request) -> None:
        self._accounts[request.tenant.name].serve(1, OUTPUT_COST)

    # -- what can be asked

    def most_blocks(self, request: Request) -> int | None:
        return request.tenant.kv_blocks if request.tenant.hard else None

    def account(self, tenant: str) -> Account | None:
        """The account of the tenant of that name, to read; None when there is none, or no more."""
        return self._accounts.get(tenant)

    def _in_turn(self) -> Iterator[Request]:
        """One of each that could be next: those with an entry, and each tenant's first, the least served first."""
        waiting = [account for account in self._accounts.values() if account.newcomers]
        waiting.sort(key=lambda account: account.served)
        return chain(self._entered, (next(iter(account.newcomers.values())) for account in waiting))

    def _rank(self, request: Request, first: float) -> Request:
        entry = request.rank[1]
        request.rank = first, self._entries if entry < 0 or request.id in self._account(request).newcomers else entry
        return request

    def _enter(self, account: Account, child: int) -> None:
        """A member of the family that has just come in follows it."""
        request = account.newcomers.pop(child, None)
        if request is not None:
            request.rank = OWN, self._entries
            self._entries += 1
            self._entered.append(request)

    def _blocks(self, request: Request) -> int:
        each = self._blocks_needed(request.total)
        return each * _first_beam(request).n if request.beams else each

    def _refill(self, now: float) -> None:
        if now > self._now:
            self._now = now
            for account in self._accounts.values():
                account.refill(now)

    def _account(self, request: Request) -> Account:
        name = request.tenant.name
        if name not in self._accounts:
            if len(self._accounts) >= MANY_TENANTS:
                self._accounts = {key: each for key, each in self._accounts.items() if each.live or each.owes}
            self._accounts[name] = Account(request.tenant, self._now)
        account = self._accounts[name]
        account.tenant = request.tenant
        return account


def _first_beam(request: Request) -> Request:
    return request if request.parent is None else request.parent


def _entry(request: Request) -> int:
    return request.rank[1]

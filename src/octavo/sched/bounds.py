"""The arithmetic of scheduling: how many run, who fits, how often one may be preempted. Knows no queue.

Rank decides everything: a better sequence is never hurt for a worse one. First come first served ranks by age; what
follows there, where none that arrives ranks before one that is there:

- The best-ranked sequence gets at least one token in every step, so all work ends: a request finishes at the latest
  after as many steps as it and those before it have tokens (prompt and answer), whatever arrives later.
- Only the last that runs may lack more than one token: the next is admitted with budget that it left. So all others,
  which decode, get their token in every step, and the one prompt in the making gets all the rest, which is never less
  than a quarter of the budget (`running_limit`): admitted with blocks, a prompt of L tokens has its first token after
  at most 4 L / max_batched_tokens steps, rounded up.
- A preempted sequence comes back only when every running sequence, itself included, can grow by `horizon` tokens, a
  number that doubles each time. Once it covers all that they may ever need, none of them can be in want again: nobody
  is preempted more than `preemption_bound` times.

Where a later one may rank better (`Policy.overtakes`), each such one can put off all behind it by its own tokens, and
make one that it interrupts compute again what it had; it can preempt each of them once more. All that run still get a
token in every step, and the best-ranked prompt in the making the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.kv import KVCacheManager
from octavo.sched.request import Request


def running_limit(max_batched_tokens: int, max_seqs: int) -> int:
    """Sequences that run at once: `max_seqs`, or fewer where the budget is close to it.

    All of them may be decoding but one, and that one's prompt must still advance, so a quarter of the budget (rounded
    up, while more than one runs) is never given to single tokens.
    """
    return max(1, min(max_seqs, max_batched_tokens - -(-max_batched_tokens // 4)))


def horizon(preemptions: int, block_size: int) -> int:
    """Tokens by which all must be able to grow before a sequence preempted so often is let in: 1, 2, 4... blocks."""
    return block_size << preemptions


def preemption_bound(max_model_len: int, block_size: int) -> int:
    """Most preemptions of one sequence: the doublings after which `horizon` covers the longest sequence."""
    return (-(-max_model_len // block_size) - 1).bit_length()


def room_needed(kv: KVCacheManager, sequences: Iterable[Request], tokens: int) -> int:
    """Blocks, at most, that the open `sequences` take when each grows by `tokens`, or to its end."""
    return sum(_growth(kv, each, tokens) for each in sequences)


def _growth(kv: KVCacheManager, request: Request, tokens: int) -> int:
    """Blocks, at most, that `request` must still be given to be `tokens` longer than now."""
    target = min(len(request.tokens) + tokens, request.total)
    reserved = kv.reserved(request.id)
    if reserved >= target:
        return 0
    # Blocks that it leaves behind its window meanwhile do not count: another sequence may still hold them. So what it
    # needs is what a new sequence of as many blocks would; and each group of a forked one may have to copy its last.
    size = kv.block_size
    new = -(-target // size) - -(-reserved // size)
    copies = len(kv.windows) if request.parent is not None or request.children else 0
    return kv.blocks_needed(new * size) + copies

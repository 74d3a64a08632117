"""Who shares whose blocks: answers to one prompt, beams of one search, prompts that begin alike. Knows no queues.

Answers part where the prompt ends and never meet again. Beams part and are taken over all the time, so any two of one
search may have any beginning in common. Of prompts that begin alike and are here at once, one computes the beginning,
and the others find it in the prefix cache a step later.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv import KVCacheManager
from octavo.sched.bounds import horizon
from octavo.sched.request import Request


def source_for(kv: KVCacheManager, child: Request, running: Sequence[Request]) -> Request | None:
    """The running sequence that `child`, which waits, can be forked from now."""
    if _is_unborn(child):
        return None
    return _nearest_beam(kv, child, running) if child.beams else _parent_at_prompt_end(kv, child)


def must_wait(kv: KVCacheManager, child: Request, running: Sequence[Request]) -> bool:
    """Whether `child` must not be opened by itself now: another one is computing what both have in common, or has it
    and there is no room for the child yet."""
    parent = child.parent
    if parent is not None and parent.slot is not None and kv.committed(parent.id) < parent.prompt_len:
        return True
    beside = [each for each in running if child.is_beam_beside(each)]
    if _is_unborn(child) or any(shares_any_length(kv) or _lacking(kv, each) > 1 for each in beside):
        return True
    return kv.prefix_cache and child.use_cache and any(_computes_for(kv, each, child) for each in running)


def fork(kv: KVCacheManager, source: Request, child: Request) -> None:
    """Open `child` with all committed blocks of `source` that hold tokens of both, the child's last token left out."""
    shared = min(_common(source.tokens, child.tokens), kv.committed(source.id), len(child.tokens) - 1)
    own = child.tokens[shared:]
    child.tokens[shared:] = source.tokens[shared:]  # what is truncated may change afterwards
    kv.fork(source.id, child.id, child.tokens)
    kv.truncate(child.id, shared)
    child.tokens[shared:] = own


def take_over(kv: KVCacheManager, source: Request, request: Request) -> None:
    """`request`, which runs, gives up what it has, for all that `source` has."""
    kv.close(request.id)
    request.tokens[:] = source.tokens
    kv.fork(source.id, request.id, request.tokens)
    request.cut_back = source.cut_back


def is_beam_alone(request: Request, running: Sequence[Request]) -> bool:
    """Whether only beams of its own search run."""
    return request.beams and all(each is request or request.is_beam_beside(each) for each in running)


def horizon_for(request: Request, running: Sequence[Request], block_size: int) -> int:
    """Tokens by which all that run must be able to grow for `request` to come in, or to go on.

    Beams that have the pool for themselves wait for one another: what others are asked for, room for more than the next
    token, must not keep one out. The door has seen to it that all of them fit.
    """
    return 1 if is_beam_alone(request, running) else horizon(request.preemptions, block_size)


def shares_any_length(kv: KVCacheManager) -> bool:
    """Whether a fork can be truncated to any length: no window gave blocks back."""
    return all(window is None for window in kv.windows)


def _computes_for(kv: KVCacheManager, each: Request, other: Request) -> bool:
    """Whether `each`, which goes before, has a chunk in the step that is planned that fills a block of the beginning of
    `other`. It waits for that step alone: `each` has it done then, and nobody would wait who goes before all."""
    size, committed, reserved = kv.block_size, kv.committed(each.id), kv.reserved(each.id)
    end = (committed // size + 1) * size
    chunk = reserved - committed > 1 and end <= reserved and end < len(other.tokens)
    ahead = chunk and each.rank < other.rank and each.namespace == other.namespace
    return ahead and each.tokens[:end] == other.tokens[:end]


def _is_unborn(child: Request) -> bool:
    """Whether the search that `child` is a beam of has not branched yet: its first beam runs alone until then."""
    return child.beams and child.parent is not None and not child.output_len


def _parent_at_prompt_end(kv: KVCacheManager, child: Request) -> Request | None:
    """Children share the prompt's blocks in the one moment when their parent has computed it and nothing more.

    Each then lacks the prompt's last token only, and samples its own first one from it. A child that finds no slot or
    no room now is opened later like any other sequence, through the prefix cache.
    """
    parent = child.parent
    if parent is None or parent.slot is None or child.preemptions:
        return None
    return parent if kv.committed(parent.id) == parent.prompt_len and parent.output_len == 1 else None


def _nearest_beam(kv: KVCacheManager, beam: Request, running: Sequence[Request]) -> Request | None:
    """The beam of the same search that has most in common with `beam`, once all that run have caught up.

    Where a window gave back what they have in common there is none, and `beam` is opened like any other sequence.
    """
    others = [each for each in running if beam.is_beam_beside(each)]
    if not others or any(_lacking(kv, each) > 1 for each in others):
        return None
    nearest = max(others, key=lambda each: _common(each.tokens, beam.tokens))
    kept = shares_any_length(kv) or _common(nearest.tokens, beam.tokens) + 1 >= kv.committed(nearest.id)
    return nearest if kept else None


def _lacking(kv: KVCacheManager, request: Request) -> int:
    return len(request.tokens) - kv.committed(request.id)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Leading tokens that both have."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

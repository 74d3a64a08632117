"""Which requests can ever be served, decided when they arrive. Knows nothing of what runs beside them."""

from __future__ import annotations

from collections.abc import Container

from octavo.errors import InvalidRequest
from octavo.kv import KVCacheManager
from octavo.sched.request import Request
from octavo.sched.sharing import shares_any_length


def check_ids(request: Request, live: Container[int]) -> None:
    """Raise InvalidRequest (`duplicate_id`) where one of its sequences is there already."""
    ids = (request.id, *request.children)
    if request.n != len(ids):
        raise ValueError(f"n is {request.n} and there are {len(request.children)} children, not {request.n - 1}")
    if len(set(ids)) < len(ids) or any(seq in live for seq in ids):
        raise InvalidRequest(f"a sequence of {ids[:8]} is already in use", code="duplicate_id")


def check_width(request: Request, running_limit: int) -> None:
    """Beams of one search run together: InvalidRequest where there are more than can."""
    if request.beams and request.n > running_limit:
        raise InvalidRequest(
            f"beam_width {request.n} is more than the {running_limit} sequences that run at once; lower it, or raise"
            " max_seqs and max_batched_tokens",
            param="beam_width",
        )


def admissible_max_tokens(
    request: Request, kv: KVCacheManager, max_model_len: int, most_blocks: int | None = None
) -> int:
    """The number of new tokens that `request` may have, or `InvalidRequest` with the arithmetic.

    An explicit `max_tokens` must fit both the context and the whole pool, for it would otherwise wait for ever or end
    early without having been told so. None takes what is left of the smaller of the two, and must leave one token.
    most_blocks: a quota, that counts as the pool does.
    """
    prompt, asked = request.prompt_len, request.max_tokens
    if not prompt:
        raise InvalidRequest("the prompt has no tokens; give at least one", param="prompt")
    if prompt + (asked != 0) > max_model_len:
        raise InvalidRequest(
            f"the prompt has {prompt} tokens and the context is {max_model_len}, which leaves nothing to generate;"
            f" shorten the prompt to at most {max_model_len - 1}",
            param="prompt",
            code="context_length_exceeded",
        )
    if asked is not None and prompt + asked > max_model_len:
        raise InvalidRequest(
            f"the prompt's {prompt} tokens and max_tokens {asked} make {prompt + asked}, more than the context of"
            f" {max_model_len}; lower max_tokens to at most {max_model_len - prompt}",
            param="max_tokens",
            code="context_length_exceeded",
        )
    blocks = kv.capacity if most_blocks is None else min(most_blocks, kv.capacity)
    shares = most_blocks is None  # a quota counts the blocks of each sequence, whoever else has them
    holds = pool_capacity(request, kv, max_model_len, blocks, shares=shares)
    if prompt + (1 if asked is None else asked) > holds:
        raise _too_small(request, kv, holds, blocks)
    return holds - prompt if asked is None else asked


def pool_capacity(request: Request, kv: KVCacheManager, limit: int, blocks: int, *, shares: bool = True) -> int:
    """Tokens, at most `limit`, of the longest sequence (all beams of a search that long) that `blocks` hold alone."""
    if blocks_needed(request, kv, limit, shares=shares) <= blocks:
        return limit
    fits, too_long = 0, limit
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if blocks_needed(request, kv, middle, shares=shares) <= blocks:
            fits = middle
        else:
            too_long = middle
    return fits


def blocks_needed(request: Request, kv: KVCacheManager, tokens: int, *, shares: bool = True) -> int:
    """Most blocks that a sequence of `request` holds at once on its way to `tokens` tokens, or all of its beams.

    Other answers to one prompt can run one after another. Beams cannot, so all of them must fit: they share the
    prompt's full blocks (where no window makes them give these back), each has its own of the rest in the worst case,
    and one more in each layer group while it copies one that it shares. shares False: as if they had nothing in common.
    """
    alone = kv.blocks_needed(tokens)
    if not request.beams:
        return alone
    width, groups = 1 + len((request.parent or request).children), len(kv.windows)
    shared = (min(request.prompt_len, tokens) - 1) // kv.block_size * groups if shares and shares_any_length(kv) else 0
    return width * (alone + groups) - (width - 1) * max(shared, 0)


def _too_small(request: Request, kv: KVCacheManager, holds: int, blocks: int) -> InvalidRequest:
    """The pool, or the quota that allows `blocks` of it, is."""
    prompt, asked, pool = request.prompt_len, request.max_tokens, blocks == kv.capacity
    answer = 1 if asked is None else asked
    what = f"the prompt's {prompt} tokens and " + ("one new token" if asked is None else f"max_tokens {asked}")
    beams = f" for {request.n} beams" if request.beams else ""
    needed = blocks_needed(request, kv, prompt + answer, shares=pool)
    pinned = kv.num_blocks - kv.capacity
    beside = f", {pinned} of them pinned" if pinned else ""
    limit = f"the whole pool has {kv.num_blocks}{beside}" if pool else f"the tenant's quota is {blocks}"
    return InvalidRequest(
        f"{what} need {needed} KV blocks of {kv.block_size} tokens{beams} and {limit}, enough for {holds} tokens; "
        + (f"lower max_tokens to at most {holds - prompt}" if holds > prompt else "shorten the prompt")
        + (", lower beam_width" if request.beams else "")
        + (" or enlarge the pool (num_blocks, kv_memory)" if pool else ""),
        param="max_tokens" if holds > prompt else "prompt",
        code="pool_too_small" if pool else "quota_too_small",
    )

"""Which requests can ever be served, decided when they arrive. Knows nothing of what runs beside them."""

from __future__ import annotations

from octavo.errors import InvalidRequest
from octavo.kv import KVCacheManager
from octavo.sched.request import Request


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
    if prompt >= max_model_len:
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
    holds = pool_capacity(kv, max_model_len, blocks)
    if prompt + (1 if asked is None else asked) > holds:
        raise (
            _pool_too_small(prompt, asked, holds, kv)
            if blocks == kv.capacity
            else _quota_too_small(prompt, asked, blocks, kv)
        )
    return holds - prompt if asked is None else asked


def pool_capacity(kv: KVCacheManager, limit: int, blocks: int) -> int:
    """Tokens of the longest sequence that `blocks` can hold alone, at most `limit`."""
    if kv.blocks_needed(limit) <= blocks:
        return limit
    fits, too_long = 0, limit
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if kv.blocks_needed(middle) <= blocks:
            fits = middle
        else:
            too_long = middle
    return fits


def _pool_too_small(prompt: int, asked: int | None, holds: int, kv: KVCacheManager) -> InvalidRequest:
    answer = 1 if asked is None else asked
    what = f"the prompt's {prompt} tokens and " + ("one new token" if asked is None else f"max_tokens {asked}")
    pinned = kv.num_blocks - kv.capacity
    beside = f", {pinned} of them pinned" if pinned else ""
    return InvalidRequest(
        f"{what} need {kv.blocks_needed(prompt + answer)} KV blocks of {kv.block_size} tokens and the whole pool has"
        f" {kv.num_blocks}{beside}, enough for {holds} tokens; "
        + (f"lower max_tokens to at most {holds - prompt}" if holds > prompt else "shorten the prompt")
        + " or enlarge the pool (num_blocks, kv_memory)",
        param="max_tokens" if holds > prompt else "prompt",
        code="pool_too_small",
    )


def _quota_too_small(prompt: int, asked: int | None, blocks: int, kv: KVCacheManager) -> InvalidRequest:
    answer = 1 if asked is None else asked
    return InvalidRequest(
        f"the prompt's {prompt} tokens and {answer} new ones need {kv.blocks_needed(prompt + answer)} KV blocks of"
        f" {kv.block_size} tokens and the tenant's quota is {blocks}; shorten the prompt, or lower max_tokens",
        param="max_tokens",
        code="quota_too_small",
    )

"""Why a row of logits has no token to give, in words. Decides nothing."""

from __future__ import annotations

import math

from octavo.errors import InvalidRequest, OctavoError, RequestFailed
from octavo.ops.sampling import Row


def peak_fault(row: Row, *, masked: bool = False) -> OctavoError:
    """The error of a request whose row has a largest logit that is not finite. masked: the row is the model's no more,
    but what the request's settings left of it; if that is nothing, they are at fault, and would be again."""
    token = int(row.argmax())  # a NaN wins any argmax, so looking at the winner finds it wherever it is
    peak = float(row[token])
    if masked and peak == -math.inf:
        return InvalidRequest(
            f"the request's settings mask all {len(row)} tokens; loosen its grammar, bad_words, min_tokens or stop ids"
        )
    return RequestFailed(f"the model computed {peak} as the logit of token {token}; its weights may be damaged")

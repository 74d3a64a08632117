"""Why a row of logits has no token to give, in words. Decides nothing."""

from __future__ import annotations

import math

from octavo.errors import RequestFailed
from octavo.ops.sampling import Row


def peak_fault(row: Row) -> RequestFailed:
    """The error of a request whose row has a largest logit that is not finite."""
    token = int(row.argmax())  # a NaN wins any argmax, so looking at the winner finds it wherever it is
    peak = float(row[token])
    if peak == -math.inf:
        return RequestFailed(f"all {len(row)} tokens are masked; loosen logit_bias, bad_words, min_tokens or stop ids")
    return RequestFailed(f"the model computed {peak} as the logit of token {token}; its weights may be damaged")

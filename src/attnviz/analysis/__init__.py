"""What heads do, measured: arrays or records in, arrays out.

`attnviz.analysis.patterns`
    How much weight a head gives to the previous token, the same token, what followed it, ...
`attnviz.analysis.heads`
    The same for every head of a stack of a record.
"""

from __future__ import annotations

from attnviz.analysis.heads import (
    PATTERNS,
    all_head_scores,
    head_entropy,
    head_scores,
    patterns_of,
)
from attnviz.analysis.patterns import (
    first_token,
    induction,
    mass_on,
    next_token,
    previous_token,
    repeated_induction,
    same_token,
    self_token,
)

__all__ = [
    "PATTERNS",
    "all_head_scores",
    "first_token",
    "head_entropy",
    "head_scores",
    "induction",
    "mass_on",
    "next_token",
    "patterns_of",
    "previous_token",
    "repeated_induction",
    "same_token",
    "self_token",
]

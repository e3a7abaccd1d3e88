"""What heads do, measured: arrays in, arrays out.

`attnviz.analysis.patterns`
    How much weight a head gives to the previous token, the same token, what followed it, ...
"""

from __future__ import annotations

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
    "first_token",
    "induction",
    "mass_on",
    "next_token",
    "previous_token",
    "repeated_induction",
    "same_token",
    "self_token",
]

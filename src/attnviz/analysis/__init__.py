"""What heads do, measured: arrays or records in, arrays out.

`attnviz.analysis.patterns`
    How much weight a head gives to the previous token, the same token, what followed it, ...
`attnviz.analysis.heads`
    The same for every head of a stack of a record.
`attnviz.embedding.placement`
    Queries and keys of a corpus placed together, and their principal components.
`attnviz.embedding.trust`
    How far the places on such a plot say what attends to what.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from attnviz.embedding.placement import (
        Placed,
        Placing,
        Plots,
        place,
        principal_components,
        problems,
    )
    from attnviz.embedding.trust import HeadTrust, Trust, measure_trust

__all__ = [
    "PATTERNS",
    "HeadTrust",
    "Placed",
    "Placing",
    "Plots",
    "Trust",
    "all_head_scores",
    "first_token",
    "head_entropy",
    "head_scores",
    "induction",
    "mass_on",
    "measure_trust",
    "next_token",
    "patterns_of",
    "place",
    "previous_token",
    "principal_components",
    "problems",
    "repeated_induction",
    "same_token",
    "self_token",
]

# Their code is in `attnviz.embedding`, which imports this package; they load when they are used.
_OF_THE_EMBEDDING = {
    "HeadTrust": "trust",
    "Placed": "placement",
    "Placing": "placement",
    "Plots": "placement",
    "Trust": "trust",
    "measure_trust": "trust",
    "place": "placement",
    "principal_components": "placement",
    "problems": "placement",
}


def __getattr__(name: str) -> Any:
    home = _OF_THE_EMBEDDING.get(name)
    if home is None:
        raise AttributeError(f"module 'attnviz.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attnviz.embedding.{home}"), name)

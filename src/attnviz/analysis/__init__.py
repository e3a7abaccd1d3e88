"""Measures of what attention heads do. The functions take arrays or records and return arrays.

>>> import attnviz as av
>>> av.analysis.head_scores(record, "previous token")                    # doctest: +SKIP

``docs/analysis.md`` describes the formulas, their sources, and the scores of uniform attention.

`attnviz.analysis.patterns`
    Share of a head's weight on the previous token, the next token, earlier equal tokens, ...
`attnviz.analysis.heads`
    These shares, and entropies, for every head of a record or of a stack of layers.
`attnviz.embedding.placement`
    Positions of the queries and keys of a corpus in the same space, and their principal
    components.
`attnviz.embedding.trust`
    Measures of how well distances on a plot of these positions predict attention.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

# `__init__.pyi` lists the names. They are imported on first use. `attnviz.embedding` must not be
# imported here, because it imports this package.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)

"""Measures of what attention heads do. They take arrays or records and return arrays.

>>> import attnviz as av
>>> av.analysis.head_scores(record, "previous token")                    # doctest: +SKIP

``docs/analysis.md`` has the formulas, their sources, and the scores of uniform attention.

`attnviz.analysis.patterns`
    The weight that a head gives to the previous token, the same token, the token after it, ...
`attnviz.analysis.heads`
    The same measures for every head of a record or of a stack.
`attnviz.embedding.placement`
    Joint positions of the queries and keys of a corpus, and their principal components.
`attnviz.embedding.trust`
    How well distances on such a plot predict attention.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

# `__init__.pyi` lists the names. The names of the embedding load on first use, because that package
# imports this one.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)

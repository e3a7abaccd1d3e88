"""What heads do, measured: arrays or records in, arrays out.

>>> import attnviz as av
>>> av.analysis.head_scores(record, "previous token")                    # doctest: +SKIP

``docs/analysis.md`` has the formulas, their sources, and what uniform attention would score.

`attnviz.analysis.patterns`
    How much weight a head gives to the previous token, the same token, what followed it, ...
`attnviz.analysis.heads`
    The same for every head of a record, or of one of its stacks.
`attnviz.embedding.placement`
    Queries and keys of a corpus placed together, and their principal components.
`attnviz.embedding.trust`
    How far the places on such a plot say what attends to what.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

# The names are in `__init__.pyi`. Those of the embedding come from a package that imports this one:
# they load when they are used.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)

"""Measures of what attention heads do, for arrays of weights and for records.

A record has the attention of a model on one text.

>>> import attnviz as av
>>> av.analysis.head_scores(record, "previous token")                    # doctest: +SKIP

``docs/analysis.md`` describes the formulas, their sources, and the scores of uniform attention.

`attnviz.analysis.measures`
    All measures: share of the weight on the previous token, on earlier equal tokens, entropy, ...
`attnviz.analysis.heads`
    Scores of these measures for every head of a record, or of one of its stacks. A stack is the
    attention of one kind, such as self-attention or cross-attention, in all layers.
`attnviz.analysis.patterns`
    Scores for arrays of weights: the share of the weight on a set of query-key pairs.
"""

from __future__ import annotations

import lazy_loader

# `__init__.pyi` lists the names. They are imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

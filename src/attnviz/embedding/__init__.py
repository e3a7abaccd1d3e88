"""The joint query-key embedding of a corpus, in which queries and keys of many texts are points.

A short distance between a query and a key on a plot of the points means a large weight.

`attnviz.embedding.placement`
    Positions of the points in the same space, and their principal components.
`attnviz.embedding.trust`
    Measures of how well distances on a plot of the points predict attention.
"""

import lazy_loader

# `__init__.pyi` lists the names. They are imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

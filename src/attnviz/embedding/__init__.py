"""The joint query-key embedding of a corpus: placement of points, plots, trust figures and views.

`attnviz.embedding.placement`
    Positions of the queries and keys of a corpus in the same space, and their principal
    components.
`attnviz.embedding.trust`
    Measures of how well distances on a plot of these positions predict attention.
"""

import lazy_loader

# `__init__.pyi` lists the names. They are imported on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

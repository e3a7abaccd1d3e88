"""The names of `attnviz.embedding.placement`, under the path that notebooks import them from."""

from attnviz.embedding.placement import (
    Placed,
    Placing,
    Plots,
    place,
    principal_components,
    problems,
)

__all__ = ["Placed", "Placing", "Plots", "place", "principal_components", "problems"]

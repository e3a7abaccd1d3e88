"""Alias of `attnviz.embedding.placement`, the path from which notebooks import its names."""

from attnviz.embedding.placement import (
    Placed,
    Placing,
    Plots,
    place,
    principal_components,
    problems,
)

__all__ = ["Placed", "Placing", "Plots", "place", "principal_components", "problems"]

"""Alias of `attnviz.embedding.placement`, from which notebooks import the same names."""

from attnviz.embedding.placement import (
    Placed,
    Placing,
    Plots,
    place,
    principal_components,
    problems,
)

__all__ = ["Placed", "Placing", "Plots", "place", "principal_components", "problems"]

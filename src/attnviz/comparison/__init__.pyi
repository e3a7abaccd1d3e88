"""Public names of `attnviz.comparison` that `attnviz` itself does not export."""

from .alignment import Alignment as Alignment

__all__: list[str]

"""The public names of attnviz.comparison besides those of attnviz itself."""

from .alignment import Alignment as Alignment

__all__: list[str]

"""Alias of `attnviz.embedding.trust`, the path from which notebooks import its names."""

from attnviz.embedding.trust import HeadTrust, measure_trust

__all__ = ["HeadTrust", "measure_trust"]

"""Alias of `attnviz.embedding.trust`, from which notebooks import the same names."""

from attnviz.embedding.trust import HeadTrust, measure_trust

__all__ = ["HeadTrust", "measure_trust"]

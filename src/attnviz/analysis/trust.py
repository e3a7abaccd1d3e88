"""The names of `attnviz.embedding.trust`, under the path that notebooks import them from."""

from attnviz.embedding.trust import HeadTrust, measure_trust

__all__ = ["HeadTrust", "measure_trust"]

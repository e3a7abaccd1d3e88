"""Parses: which word of a text depends on which, by the tokens of the words."""

from __future__ import annotations

from attnviz.corpus.measuring import Relations
from attnviz.record.tokens import Tokens

__all__ = ["pairs_of_relations"]


def pairs_of_relations(parse: object, tokens: Tokens) -> Relations:
    """For each relation the pairs of tokens, dependent and head."""
    raise NotImplementedError

"""Captured data of an example: stacks, tokens, masks, and weights computed on demand.

A record can be saved and loaded. It can also be created from arrays of any library.
"""

from attnviz.record.from_arrays.tokens import ProjectedKeys
from attnviz.record.images import PatchGrid
from attnviz.record.record import AttentionRecord, load
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Prediction, Tokens

__all__ = [
    "AttentionRecord",
    "AttentionStack",
    "Candidate",
    "PatchGrid",
    "Prediction",
    "ProjectedKeys",
    "Tokens",
    "load",
]

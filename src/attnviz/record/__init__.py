"""What was captured of an example: stacks, tokens, masks, and the weights of any block.

Weights are computed when they are asked for; a record is saved, loaded, and made from arrays of any
library.
"""

from attnviz.record.given.tokens import ProjectedKeys
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

"""The record: the attention of one example, such as a text, in all layers of a model.

A record consists of stacks. A stack contains the layers whose attention has the same query tokens
and the same key tokens. A record is read from a running model or created from arrays of any
library. It can be saved to a file and loaded.
"""

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
    "Tokens",
    "load",
]

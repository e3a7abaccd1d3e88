"""Embedding view

The queries and keys of many texts as points, a plot for each head. Spirals are heads that attend
by position: their queries and keys lie in the order of the tokens.
"""

import importlib
import inspect

import attnviz as av

names = "argparse calendar csv decimal difflib fractions hashlib heapq json random shelve string"
texts = [
    " ".join((inspect.getdoc(importlib.import_module(name)) or "").split())[:500]
    for name in names.split()
]
view = av.show_embedding_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    texts,
    max_points=1500,
    layers=[0, 3],
    color="position",
)

"""attnviz: see how a transformer attends, token by token, head by head.

>>> import attnviz as av
>>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
>>> av.show_head_view(model, "the cat sat", tokenizer=tokenizer)         # doctest: +SKIP

Names load when they are first used: ``import attnviz`` by itself brings neither torch nor
transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz import demos
    from attnviz.corpus.corpus import Corpus
    from attnviz.corpus.extract import extract_corpus
    from attnviz.embedding.show import show_embedding_view
    from attnviz.embedding.view import EmbeddingView
    from attnviz.extraction import extract
    from attnviz.record.given.projected_keys import ProjectedKeys
    from attnviz.record.images import PatchGrid
    from attnviz.record.predictions import Candidate, Prediction
    from attnviz.record.record import AttentionRecord, load
    from attnviz.record.stack import AttentionStack
    from attnviz.record.tokens import Tokens
    from attnviz.views.dashboard import Dashboard
    from attnviz.views.head import HeadView
    from attnviz.views.matrix import MatrixView
    from attnviz.views.model import ModelView
    from attnviz.views.neuron import NeuronView
    from attnviz.views.show import (
        dashboard,
        show_head_view,
        show_matrix_view,
        show_model_view,
        show_neuron_view,
    )

__version__ = "0.1.0"

__all__ = [
    "AttentionRecord",
    "AttentionStack",
    "Candidate",
    "Corpus",
    "Dashboard",
    "EmbeddingView",
    "HeadView",
    "MatrixView",
    "ModelView",
    "NeuronView",
    "PatchGrid",
    "Prediction",
    "ProjectedKeys",
    "Tokens",
    "dashboard",
    "demos",
    "extract",
    "extract_corpus",
    "load",
    "show_embedding_view",
    "show_head_view",
    "show_matrix_view",
    "show_model_view",
    "show_neuron_view",
]

_HOMES = {
    "AttentionRecord": "attnviz.record.record",
    "AttentionStack": "attnviz.record.stack",
    "Candidate": "attnviz.record.predictions",
    "Corpus": "attnviz.corpus.corpus",
    "Dashboard": "attnviz.views.dashboard",
    "EmbeddingView": "attnviz.embedding.view",
    "HeadView": "attnviz.views.head",
    "MatrixView": "attnviz.views.matrix",
    "ModelView": "attnviz.views.model",
    "NeuronView": "attnviz.views.neuron",
    "PatchGrid": "attnviz.record.images",
    "Prediction": "attnviz.record.predictions",
    "ProjectedKeys": "attnviz.record.given.projected_keys",
    "Tokens": "attnviz.record.tokens",
    "dashboard": "attnviz.views.show",
    "extract": "attnviz.extraction",
    "extract_corpus": "attnviz.corpus.extract",
    "load": "attnviz.record.record",
    "show_embedding_view": "attnviz.embedding.show",
    "show_head_view": "attnviz.views.show",
    "show_matrix_view": "attnviz.views.show",
    "show_model_view": "attnviz.views.show",
    "show_neuron_view": "attnviz.views.show",
}


def __getattr__(name: str) -> Any:
    if name == "demos":
        return importlib.import_module("attnviz.demos")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'attnviz' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

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
    from attnviz.corpus import Corpus
    from attnviz.extraction import extract
    from attnviz.extraction.corpus import extract_corpus
    from attnviz.images import PatchGrid
    from attnviz.predictions import Candidate, Prediction
    from attnviz.projected import ProjectedKeys
    from attnviz.record import AttentionRecord, load
    from attnviz.show import (
        dashboard,
        show_head_view,
        show_matrix_view,
        show_model_view,
        show_neuron_view,
    )
    from attnviz.show_embedding import show_embedding_view
    from attnviz.stack import AttentionStack
    from attnviz.tokens import Tokens
    from attnviz.views.dashboard import Dashboard
    from attnviz.views.embedding import EmbeddingView
    from attnviz.views.head import HeadView
    from attnviz.views.matrix import MatrixView
    from attnviz.views.model import ModelView
    from attnviz.views.neuron import NeuronView

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
    "AttentionRecord": "attnviz.record",
    "AttentionStack": "attnviz.stack",
    "Candidate": "attnviz.predictions",
    "Corpus": "attnviz.corpus",
    "Dashboard": "attnviz.views.dashboard",
    "EmbeddingView": "attnviz.views.embedding",
    "HeadView": "attnviz.views.head",
    "MatrixView": "attnviz.views.matrix",
    "ModelView": "attnviz.views.model",
    "NeuronView": "attnviz.views.neuron",
    "PatchGrid": "attnviz.images",
    "Prediction": "attnviz.predictions",
    "ProjectedKeys": "attnviz.projected",
    "Tokens": "attnviz.tokens",
    "dashboard": "attnviz.show",
    "extract": "attnviz.extraction",
    "extract_corpus": "attnviz.extraction.corpus",
    "load": "attnviz.record",
    "show_embedding_view": "attnviz.show_embedding",
    "show_head_view": "attnviz.show",
    "show_matrix_view": "attnviz.show",
    "show_model_view": "attnviz.show",
    "show_neuron_view": "attnviz.show",
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

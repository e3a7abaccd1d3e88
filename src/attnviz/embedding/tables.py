"""What an embedding view says in tables: the points in its lasso, and how far to trust plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tqdm.auto import tqdm

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.server.plots import EmbeddingAnswers

__all__ = ["told_points", "told_trust"]

_PLACES, _PAIRS = ("before", "placed", "plot"), ("allowed", "all_pairs")
_RECALL = ("recall_allowed", "recall_all", "chance_allowed", "chance_all", "queries", "of")


def told_points(corpus: Corpus, stack: str, chosen: Iterable[int]) -> list[dict[str, Any]]:
    """Say what points are.

    Parameters
    ----------
    corpus : Corpus
        Whose points.
    stack : str
        Name of the stack.
    chosen : iterable of int
        Numbers of points.

    Returns
    -------
    list of dict
        As `attnviz.EmbeddingView.selection` says.
    """
    points = corpus.points(stack)
    found = []
    for point in chosen:
        is_query = point < points.num_queries
        place = point if is_query else point - points.num_queries
        texts = points.query_text if is_query else points.key_text
        positions = points.query_position if is_query else points.key_position
        text, position = int(texts[place]), int(positions[place])
        own = corpus.records[text].stack(stack)
        tokens = own.query_tokens if is_query else own.key_tokens
        kind = "query" if is_query else "key"
        told = {"point": point, "kind": kind, "text": text, "position": position}
        found.append(told | {"token": tokens[position]})
    return found


def told_trust(
    answers: EmbeddingAnswers, stack: str, way: Mapping[str, Any], dimensions: int
) -> list[dict[str, Any]]:
    """Say how far the principal components of all heads can be trusted.

    Parameters
    ----------
    answers : EmbeddingAnswers
        Measures.
    stack : str
        Name of the stack.
    way : mapping
        How points are placed.
    dimensions : {2, 3}
        Of the plots.

    Returns
    -------
    list of dict
        As `attnviz.EmbeddingView.trust` says.
    """
    # Of the principal components: a t-SNE of each head would take hours.
    request = {"stack": stack, "way": way, "method": "pca", "dimensions": dimensions}
    corpus = answers.corpus
    layers = corpus.stack(stack).layers
    found = []
    for layer in tqdm(layers, desc="trust", unit="layer", delay=1.0, leave=False):
        heads = list(corpus.stack(stack).kept_heads(layer))
        measured = answers.trust(request | {"layer": layer, "heads": heads})
        problems = answers.problems(stack, layer, way, dimensions)
        for head, figures, problem in zip(heads, measured, problems, strict=True):
            told = {"layer": layer, "head": head} | _flat(figures)
            found.append(told | {"problem": problem})
    return found


def _flat(figures: Mapping[str, Any] | None) -> dict[str, Any]:
    """Figures side by side, as in a table; None of a head that has none."""
    kinds = {f"{place}_{pairs}": (place, pairs) for place in _PLACES for pairs in _PAIRS}
    if figures is None:
        return dict.fromkeys([*kinds, *_RECALL])
    correlations = {name: figures[place][pairs] for name, (place, pairs) in kinds.items()}
    return correlations | {name: figures[name] for name in _RECALL}

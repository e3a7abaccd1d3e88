"""Arguments of the embedding view, looked at before a model reads many texts.

A wrong one would otherwise be found when all of them have been read, and cost what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.view import EmbeddingView
from attnviz.views.position import with_layers

__all__ = ["check_place", "check_traits"]

# Of a corpus, which is not there yet; only their kind can be told.
_OF_CORPUS = frozenset({"stack", "layer", "heads", "token", "key", "text", "selected"})


def check_traits(traits: Mapping[str, Any], columns: Iterable[str] = ()) -> None:
    """Refuse what no corpus can be shown with.

    Parameters
    ----------
    traits : mapping of str to object
        Of an `attnviz.EmbeddingView`, as a caller gave them.
    columns : iterable of str
        Names of the columns that the corpus will have.

    Raises
    ------
    TypeError
        If one is unknown.
    traitlets.TraitError
        If a value is none that the trait can have.
    ImportError
        If `method` needs a package that is not installed.

    Examples
    --------
    >>> check_traits({"color": "author", "dimensions": 3}, columns=["author"])
    """
    EmbeddingView.check_names(traits)
    view = _without_browser(SimpleNamespace(column_names=tuple(columns)))
    known = EmbeddingView.class_traits()
    for name, value in traits.items():
        trait: Any = known[name]
        if value is None and trait.allow_none:
            continue
        if name in _OF_CORPUS:
            trait.validate(view, value)
        else:
            trait._validate(view, value)


def check_place(
    corpus: Corpus, traits: Mapping[str, Any], include_layers: Iterable[int] | None = None
) -> None:
    """Refuse a stack, a layer or heads that a model does not have.

    Parameters
    ----------
    corpus : Corpus
        Of any text that the model has read.
    traits : mapping of str to object
        Of an `attnviz.EmbeddingView`, as a caller gave them.
    include_layers : iterable of int, optional
        The layers that it will offer.

    Raises
    ------
    IndexError
        If no stack has one of `include_layers`.
    traitlets.TraitError
        If there is no such stack, layer or head.
    """
    view = _without_browser(with_layers(corpus, include_layers))
    given = {"stack": view.corpus.stack_names[0]} | dict(traits)
    given.setdefault("heads", [])
    for name in ("stack", "layer", "heads"):
        if name == "layer" and name not in given:
            given[name] = view.corpus.stack(given["stack"]).layers[0]
        trait: Any = EmbeddingView.class_traits()[name]
        # Past the observers, which would tell a browser.
        view._trait_values[name] = trait._validate(view, given[name])


def _without_browser(corpus: Any) -> EmbeddingView:
    """A view that can check values, and opens no channel to a browser as `__init__` does."""
    view = EmbeddingView.__new__(EmbeddingView)
    view._corpus = corpus
    return view

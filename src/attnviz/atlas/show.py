"""One call from a model and many texts to the atlas of its heads on the screen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attnviz.atlas.view import AtlasView
from attnviz.corpus.head_statistics import head_statistics
from attnviz.corpus.statistics import HeadStatistics
from attnviz.views.show import show

__all__ = ["show_atlas_view"]

# Traits whose values can only be checked once there are statistics.
_OF_STATISTICS = ("stack", "layer", "heads", "color", "order")


def show_atlas_view(
    model: Any,
    texts: Any = None,
    *,
    column: str = "text",
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    parse: Sequence[Any] | str | None = None,
    target: Sequence[str] | None = None,
    truncation: bool | int = False,
    tokenizer: Any = None,
    processor: Any = None,
    name: str | None = None,
    layers: int | Iterable[int] | None = None,
    batch_size: int | Literal["auto"] = "auto",
    keep_edges: int = 100,
    seed: int = 0,
    part: tuple[int, int] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    engine: Any = None,
    progress: bool = True,
    **traits: Any,
) -> AtlasView:
    """Show what every head of a model does over a corpus, and how sure that is.

    A grid of all heads, coloured by role or by any statistic; of the head that is chosen its role
    with the evidence, its mean weight by offset, and its strongest and sampled edges in their
    texts, with a search by the tokens at both ends.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline or HeadStatistics
        A transformers model, hub id, folder or pipeline, with `texts`; or, without, what
        `attnviz.head_statistics` gave.
    texts : sequence, datasets.Dataset or DataFrame, optional
        What the model reads, as for `attnviz.head_statistics`.
    column, columns, parse, target, truncation, tokenizer, processor, name, layers, batch_size,
    seed, part, checkpoint, resume, engine, progress : optional
        As for `attnviz.head_statistics`.
    keep_edges : optional
        Its `edges`: here `edges` chooses which kind of edges is listed.
    **traits
        What is shown first: layer, heads, color, order, edges and all others that
        `attnviz.AtlasView` lists.

    Returns
    -------
    AtlasView
        The view, already on the screen (in marimo: to be the cell's last expression). In a script
        the page is written to a file whose path is printed.

    Raises
    ------
    TypeError
        If an argument is missing, of a wrong kind or unknown.
    ValueError
        If an argument does not fit the model or the texts.
    MemoryError, OSError
        As `attnviz.head_statistics`.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
    >>> av.show_atlas_view(model, texts, tokenizer=tokenizer, color="entropy")    # doctest: +SKIP
    """
    AtlasView.check_names(traits)
    _check_traits(traits)
    measuring: dict[str, Any] = {
        "texts": texts,
        "column": column,
        "columns": columns,
        "parse": parse,
        "target": target,
        "truncation": truncation,
        "tokenizer": tokenizer,
        "processor": processor,
        "name": name,
        "layers": layers,
        "batch_size": batch_size,
        "edges": keep_edges,
        "seed": seed,
        "part": part,
        "checkpoint": checkpoint,
        "resume": resume,
        "engine": engine,
    }
    if isinstance(model, HeadStatistics):
        _leave_out(measuring)
        return show(AtlasView(model, **traits))
    if texts is None:
        raise TypeError(
            "texts is missing: what the model reads, for example show_atlas_view(model, texts); "
            "or give statistics alone, show_atlas_view(statistics)"
        )
    statistics = head_statistics(model, progress=progress, **measuring)
    return show(AtlasView(statistics, **traits))


def _check_traits(traits: Mapping[str, Any]) -> None:
    """Refuse values that no statistics can be shown with, before a model reads for hours."""
    # It opens no channel to a browser, as `__init__` would.
    view = AtlasView.__new__(AtlasView)
    own = AtlasView.class_traits()
    for name, value in traits.items():
        trait: Any = own[name]
        if name not in _OF_STATISTICS and not (value is None and trait.allow_none):
            trait._validate(view, value)


_DEFAULTS: Mapping[str, Any] = {
    "column": "text",
    "truncation": False,
    "batch_size": "auto",
    "edges": 100,
    "seed": 0,
    "resume": False,
}
_ARGUMENTS = {"edges": "keep_edges"}


def _leave_out(given: Mapping[str, Any]) -> None:
    """Refuse arguments of the measuring beside statistics that are there already."""
    unused = [
        _ARGUMENTS.get(name, name)
        for name, value in given.items()
        if value is not None and not (name in _DEFAULTS and value == _DEFAULTS[name])
    ]
    if unused:
        raise TypeError(
            "model is statistics, which contain all that is shown; leave out " + ", ".join(unused)
        )

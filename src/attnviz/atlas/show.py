"""One call from a model and many texts to the atlas of its heads on the screen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attnviz.atlas.server import OpenText
from attnviz.atlas.view import AtlasView
from attnviz.corpus.head_statistics import head_statistics
from attnviz.corpus.statistics import HeadStatistics
from attnviz.corpus.texts import Texts
from attnviz.extraction import extract
from attnviz.extraction.models import load
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import shown
from attnviz.views.show import show

__all__ = ["show_head_atlas", "text_opener"]

# Traits whose values can only be checked once there are statistics.
_OF_STATISTICS = ("stack", "layer", "heads", "color", "order")


def show_head_atlas(
    model: Any,
    texts: Any = None,
    *,
    statistics: HeadStatistics | None = None,
    column: str = "text",
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    parse: Sequence[Any] | str | None = None,
    target: Sequence[str] | None = None,
    truncation: bool | int = False,
    tokenizer: Any = None,
    processor: Any = None,
    name: str | None = None,
    layers: int | Iterable[int] | None = None,
    keep_heads: int | Iterable[int] | Mapping[int, Iterable[int]] | None = None,
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
        What the model reads, as for `attnviz.head_statistics`. A text whose edge is clicked is read
        once more and shown as a head view.
    statistics : HeadStatistics, optional
        What was measured of this model and these texts before, which are then not read again but
        for those that a reader opens.
    column, columns, parse, target, truncation, tokenizer, processor, name, layers, batch_size,
    seed, part, checkpoint, resume, engine, progress : optional
        As for `attnviz.head_statistics`.
    keep_heads, keep_edges : optional
        Its `heads` and `edges`: here `heads` chooses among the heads that are measured, and `edges`
        which kind of edges is listed.
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
    >>> av.show_head_atlas(model, texts, tokenizer=tokenizer, color="entropy")    # doctest: +SKIP
    """
    AtlasView.check_names(traits)
    _check_traits(traits)
    measuring: dict[str, Any] = {
        "column": column,
        "columns": columns,
        "parse": parse,
        "target": target,
        "truncation": truncation,
        "name": name,
        "layers": layers,
        "heads": keep_heads,
        "batch_size": batch_size,
        "edges": keep_edges,
        "seed": seed,
        "part": part,
        "checkpoint": checkpoint,
        "resume": resume,
        "engine": engine,
    }
    if isinstance(model, HeadStatistics):
        given = {"texts": texts, "statistics": statistics, "tokenizer": tokenizer}
        given |= {"processor": processor} | measuring
        _leave_out(given, "model is statistics, which contain all that is shown")
        return show(AtlasView(model, **traits))
    if texts is None:
        raise TypeError(
            "texts is missing: what the model reads, for example show_head_atlas(model, texts); "
            "or give statistics alone, show_head_atlas(statistics)"
        )
    loaded = load(model, tokenizer, processor)
    readers = {"tokenizer": loaded.tokenizer, "processor": loaded.processor}
    open_text = text_opener(
        loaded.model, texts, column, target, truncation=truncation, name=name, **readers
    )
    if statistics is None:
        statistics = head_statistics(loaded.model, texts, progress=progress, **readers, **measuring)
    elif not isinstance(statistics, HeadStatistics):
        raise TypeError(
            f"statistics must be what attnviz.head_statistics gave; got {type(statistics).__name__}"
        )
    else:
        for each in ("column", "target", "truncation", "name"):
            del measuring[each]
        _leave_out(measuring, "statistics are there already")
    return show(AtlasView(statistics, open_text=open_text, **traits))


def text_opener(
    model: Any,
    texts: Any,
    column: str = "text",
    target: Sequence[str] | None = None,
    **options: Any,
) -> OpenText:
    """What reads one of the texts by its number, in a forward of its own."""
    given = Texts(texts, column)

    def open_text(number: int) -> AttentionRecord:
        if not 0 <= number < len(given):
            raise IndexError(f"text={shown(number)}: there are texts 0 to {len(given) - 1}")
        wanted = None if target is None else target[number]
        record = extract(model, given[number], target=wanted, progress=False, **options)
        if not isinstance(record, AttentionRecord):
            raise ValueError(f"text={number} holds {len(record)} examples, and a view shows one")
        return record

    return open_text


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
_ARGUMENTS = {"heads": "keep_heads", "edges": "keep_edges"}


def _leave_out(given: Mapping[str, Any], why: str) -> None:
    """Refuse arguments that would have no effect."""
    unused = [
        _ARGUMENTS.get(name, name)
        for name, value in given.items()
        if value is not None and not (name in _DEFAULTS and value == _DEFAULTS[name])
    ]
    if unused:
        raise TypeError(f"{why}; leave out {', '.join(unused)}")

"""The function `show_atlas_view`, which shows the atlas of a model from texts or statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attnviz.atlas.view import AtlasView
from attnviz.corpus.head_statistics import head_statistics
from attnviz.corpus.statistics import HeadStatistics
from attnviz.utils.arguments import given_arguments, refuse_arguments
from attnviz.views.show import show

# Traits whose valid values depend on the statistics, such as the layers of the model.
_TRAITS_OF_STATISTICS = ("stack", "layer", "heads", "color", "order")


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
    engine: Any = None,
    progress: bool = True,
    **traits: Any,
) -> AtlasView:
    """Show the roles and statistics of all heads of a model over a corpus.

    The view is a grid of all heads, coloured by role or by a statistic. For a selected head, it
    shows the roles with their evidence and the mean weight by offset (position of the key minus
    position of the query). It also lists the strongest edges (query-key pairs) and sampled edges of
    the head in their texts.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline or HeadStatistics
        A transformers model, hub id, folder or pipeline that reads `texts`. Or the result of
        `attnviz.head_statistics`. In that case omit all other arguments except traits.
    texts : sequence, datasets.Dataset or DataFrame, optional
        Texts that the model reads, as for `attnviz.head_statistics`.
    column, columns, parse, target, truncation, tokenizer, processor, name, layers, batch_size,
    seed, part, engine, progress : optional
        As for `attnviz.head_statistics`.
    keep_edges : optional
        Number of edges of each head. It is passed to `attnviz.head_statistics` as `edges`. The name
        is different because `edges` is a trait of the view.
    **traits
        Initial values of traits of `attnviz.AtlasView`, such as `layer`, `heads`, `color`, `order`
        and `edges`.

    Returns
    -------
    AtlasView
        The view. In a notebook, it is displayed. In marimo, it is displayed only if it is the last
        expression of the cell. In a script, the page is written to a file, and its path is printed.

    Raises
    ------
    TypeError
        If an argument is missing, unknown or has a wrong type.
    ValueError
        If an argument does not fit the model or the texts.
    MemoryError, OSError
        As for `attnviz.head_statistics`.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
    >>> av.show_atlas_view(model, texts, tokenizer=tokenizer, color="entropy")    # doctest: +SKIP
    """
    given = given_arguments(show_atlas_view, locals())
    AtlasView.check_names(traits)
    # `__init__` is not called, because it would open a channel to a browser.
    AtlasView.__new__(AtlasView).check_values(traits, _TRAITS_OF_STATISTICS)
    if isinstance(model, HeadStatistics):
        given.pop("progress", None)
        refuse_arguments(given, "model is a HeadStatistics, which has the statistics of its texts")
        return show(AtlasView(model, **traits))
    if texts is None:
        raise TypeError(
            "texts is missing. Pass the texts that the model reads, show_atlas_view(model, "
            "texts), or only statistics, show_atlas_view(statistics)."
        )
    given.pop("keep_edges", None)
    statistics = head_statistics(model, edges=keep_edges, **given)
    return show(AtlasView(statistics, **traits))

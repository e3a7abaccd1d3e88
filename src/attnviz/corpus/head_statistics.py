"""Statistics of heads from a model and texts, or from records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from tqdm.auto import tqdm

from attnviz.corpus.columns import is_missing
from attnviz.corpus.statistics import HeadStatistics
from attnviz.corpus.texts import TextColumns, Texts
from attnviz.extraction import extract
from attnviz.extraction.capabilities import TooManyTokensError
from attnviz.extraction.models import load
from attnviz.extraction.options import Heads, Layers
from attnviz.record.record import AttentionRecord

__all__ = ["head_statistics"]


def head_statistics(
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
    layers: Layers = None,
    heads: Heads = None,
    batch_size: int | Literal["auto"] = "auto",
    edges: int = 100,
    effects: Literal["zero", "mean"] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    engine: Any = None,
    progress: bool = True,
) -> HeadStatistics:
    """Measure what every head does over many texts.

    Parameters
    ----------
    model, texts, column, columns, parse, target, truncation, tokenizer, processor, name, layers, \
heads, batch_size, edges, effects, seed, checkpoint, resume, engine, progress
        See the issue.

    Returns
    -------
    HeadStatistics

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.

    Examples
    --------
    >>> import attnviz as av
    >>> statistics = av.head_statistics(model, texts)                      # doctest: +SKIP
    """
    given = Texts(texts, column)
    known = TextColumns(columns, given)
    loaded = load(model, tokenizer, processor)
    statistics = HeadStatistics(edges=edges, seed=seed, columns=list(known.of([])))
    for place in tqdm(range(len(given)), desc="head_statistics", unit="text", disable=not progress):
        text = given[place]
        if is_missing(text) or (isinstance(text, str) and not text.strip()):
            statistics.leave_out(place, "empty")
            continue
        try:
            record = extract(
                loaded.model,
                text,
                tokenizer=loaded.tokenizer,
                processor=loaded.processor,
                target=None if target is None else target[place],
                truncation=truncation,
                name=name,
                layers=layers,
                heads=heads,
                progress=False,
            )
        except TooManyTokensError:
            statistics.leave_out(place, "too long")
            continue
        here = {name: values[0] for name, values in known.of([place]).items()}
        statistics.fold(record, place, columns=here)
    return statistics

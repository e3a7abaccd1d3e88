"""One call from a model and a text to a picture on the screen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attnviz.host import in_marimo, ipython_cell, offer_file
from attnviz.record import AttentionRecord
from attnviz.tokens import Tokens
from attnviz.views.base import AttentionView
from attnviz.views.head import HeadView

__all__ = ["record_of", "show", "show_head_view"]

_View = TypeVar("_View", bound=AttentionView)


def show_head_view(
    model: Any,
    inputs: Any = None,
    *,
    tokens: Sequence[str] | Tokens | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    target: str | None = None,
    sentence_b_start: int | None = None,
    name: str | None = None,
    include_layers: Iterable[int] | None = None,
    **traits: Any,
) -> HeadView:
    """Show how a model attends: a line from every query to the keys that it attends to.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline, AttentionRecord or sequence of arrays
        A transformers model, hub id, folder or pipeline, with `inputs`; a record, without; or a
        model's own ``outputs.attentions``, with `tokens`.
    inputs : object, optional
        What the model reads: a text, a pair of texts, chat messages, a tokenizer's or processor's
        own output, or an image. See `attnviz.extract`.
    tokens : sequence of str or Tokens, optional
        The tokens, where `model` is ``outputs.attentions``.
    tokenizer, processor : object, optional
        Found beside the model by default.
    target : str, optional
        Text that the model is made to produce.
    sentence_b_start : int, optional
        Where the second text of a pair begins, where `model` is ``outputs.attentions``.
    name : str, optional
        Title of the picture; by default the last part of the model's hub id or folder.
    include_layers : iterable of int, optional
        The model's numbers of the layers to offer; all when left out.
    **traits
        What is shown first: layer, heads, stack, token, key, theme and all others that `HeadView`
        lists.

    Returns
    -------
    HeadView
        The view, already on the screen (in marimo: to be the cell's last expression). In a script
        the page is written to a file whose path is printed.

    Raises
    ------
    TypeError
        If an argument is missing, of a wrong kind or unknown.
    ValueError
        If an argument does not fit the model, or several examples are given.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
    >>> av.show_head_view(model, "the cat sat", tokenizer=tokenizer)         # doctest: +SKIP
    """
    # Before a model runs for minutes.
    HeadView.check_names(traits)
    record = record_of(
        model,
        inputs,
        tokens=tokens,
        tokenizer=tokenizer,
        processor=processor,
        target=target,
        sentence_b_start=sentence_b_start,
        name=name,
    )
    return show(HeadView(record, include_layers=include_layers, **traits))


def record_of(
    model: Any,
    inputs: Any = None,
    *,
    tokens: Sequence[str] | Tokens | None = None,
    sentence_b_start: int | None = None,
    **options: Any,
) -> AttentionRecord:
    """Make the record of what a `show_*` function was given.

    Parameters
    ----------
    model, inputs, tokens, sentence_b_start
        As in `show_head_view`.
    **options
        Further arguments of `attnviz.extract`; None is the same as left out.

    Returns
    -------
    AttentionRecord
        One record.

    Raises
    ------
    TypeError
        If what is needed is missing, or what cannot be used is given.
    ValueError
        If several examples are given.
    """
    options = {name: value for name, value in options.items() if value is not None}
    for_weights = {"tokens": tokens, "sentence_b_start": sentence_b_start}
    for_weights = {name: value for name, value in for_weights.items() if value is not None}
    for_models = options if inputs is None else {"inputs": inputs} | options
    if isinstance(model, AttentionRecord):
        _refuse(for_weights | for_models, "model is a record, which holds tokens and weights")
        return model
    if isinstance(model, (list, tuple)) and model and isinstance(model[0], AttentionRecord):
        raise TypeError(
            f"model is a list of {len(model)} records, and a view shows one: give records[i]"
        )
    if isinstance(model, Mapping):
        kinds = [name for name in model if str(name).endswith("attentions")]
        if kinds:
            raise TypeError(
                f"model is a {type(model).__name__}, what a model gave; give its weights, "
                f"outputs.{kinds[0]}, with tokens="
            )
    if _is_weights(model):
        return _record_of_weights(model, for_weights, for_models)
    _refuse(for_weights, "model is a model, whose tokens come from inputs")
    if inputs is None:
        raise TypeError(
            "inputs is missing: the text that the model reads, for example "
            'show_head_view(model, "The cat sat.")'
        )
    from attnviz.extraction import extract

    record: AttentionRecord | list[AttentionRecord] = extract(model, inputs, **options)
    if not isinstance(record, list):
        return record
    if len(record) == 1:
        return record[0]
    raise ValueError(
        f"inputs holds {len(record)} examples and a view shows one: "
        "records = attnviz.extract(model, inputs), then show_head_view(records[i])"
    )


def _record_of_weights(
    weights: Any, for_weights: dict[str, Any], for_models: dict[str, Any]
) -> AttentionRecord:
    title = for_models.pop("name", "")
    _refuse(for_models, "model is weights, which are drawn as they are")
    if "tokens" not in for_weights:
        raise TypeError(
            "tokens is missing: weights alone do not say which tokens they belong to, for "
            "example tokens=tokenizer.convert_ids_to_tokens(input_ids[0])"
        )
    return AttentionRecord.from_weights(weights, model=title, **for_weights)


def _refuse(arguments: dict[str, Any], why: str) -> None:
    if arguments:
        raise TypeError(f"{why}; leave out {', '.join(arguments)}")


def _is_weights(model: Any) -> bool:
    if isinstance(model, (list, tuple)):
        return True
    return hasattr(model, "__array__") or hasattr(model, "detach")


def show(view: _View) -> _View:
    """Put a view on the screen, once.

    Parameters
    ----------
    view : AttentionView
        The view.

    Returns
    -------
    AttentionView
        The same.
    """
    if in_marimo():
        # marimo shows a cell's last expression; anything displayed before would stand twice.
        return view
    cell = ipython_cell()
    if cell is not None:
        from IPython.display import display

        display(view)
        view.shown_in_cell = cell
        return view
    folder = Path(tempfile.mkdtemp(prefix="attnviz-"))
    offer_file(view.save(folder / f"{view.name}_view.html"))
    return view

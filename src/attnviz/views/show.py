"""The `show_*` functions, which extract the attention of a model and display it in a view."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from attnviz.record.from_arrays.weights import NO_WEIGHTS_HINT
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import given_arguments, refuse_arguments, short_repr
from attnviz.utils.docstrings import documented_names
from attnviz.utils.host import in_marimo, ipython_cell, offer_file
from attnviz.utils.progress import show_progress
from attnviz.views.base import View
from attnviz.views.compare import CompareView
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.live import LiveGeneration
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from attnviz.views.record_view import RecordView, check_one_text
from attnviz.views.what_if import INPUT_OPTIONS, WhatIf, no_model_message

_View = TypeVar("_View", bound=View)
_RecordView = TypeVar("_RecordView", bound=RecordView)
_RecordView_co = TypeVar("_RecordView_co", bound=RecordView, covariant=True)


class ShowFunction(Protocol[_RecordView_co]):
    """Signature of the `show_*` functions for one record.

    The docstring of `__call__` is the template for the help of these functions.
    """

    def __call__(
        self,
        model: Any,
        inputs: Any = None,
        *,
        tokens: Sequence[str] | Tokens | None = None,
        tokenizer: Any = None,
        processor: Any = None,
        target: str | None = None,
        generate: Any = None,
        live: bool = False,
        truncation: bool | int = False,
        part: int | None = None,
        steps: Any = None,
        sentence_b_start: int | None = None,
        name: str | None = None,
        words: bool = False,
        passages: Any = None,
        layers: int | Iterable[int] | None = None,
        dtype: Any = None,
        device: Any = "cpu",
        outputs: bool = False,
        index: Any = None,
        spool: Any = None,
        include_layers: int | Iterable[int] | None = None,
        **traits: Any,
    ) -> _RecordView_co:
        """{summary}.

        Parameters
        ----------
        model : PreTrainedModel, str, PathLike, Pipeline, AttentionRecord or sequence of arrays
            A transformers model, hub id, folder or pipeline, which reads `inputs`. Alternatively a
            record, or the weights ``outputs.attentions`` of a model together with `tokens`. For the
            neuron view, weights are not enough, because it shows queries and keys.
        inputs : object, optional
            Input of the model: a text, a pair of texts, chat messages, the output of a tokenizer or
            processor, an image, an image with a text, or a sound. See `attnviz.extract`. If `model`
            is ``outputs.attentions``, `inputs` may contain the tokens.
        tokens : sequence of str or Tokens, optional
            Tokens to which the weights belong, if `model` is ``outputs.attentions``.
        tokenizer, processor : object, optional
            Tokenizer or processor of the model. By default the one that was saved with the model.
            If the encoder and the decoder have different tokenizers, pass a tuple of both.
        target : str, optional
            Text that the model is forced to produce.
        generate : int, mapping or GenerationConfig, optional
            Maximum number of tokens to generate, or arguments of the model's ``generate``. See
            `attnviz.extract`.
        live : bool, default False
            Whether to show the text while it is generated (with `generate`). The view opens after
            the first token and is updated about once a second. The call does not wait for the end,
            so the kernel can run other cells. A button and ``view.stop()`` stop the generation, and
            tokens so far are kept. Outside a notebook, the call waits for the end.
        truncation : bool or int, default False
            Whether to cut a text that is too long for the model. A number is the maximum number of
            tokens. The view states that the text is cut.
        part : int, optional
            Number of the call to show, from 0, if `model` is a pipeline that calls its model
            several times for one input, such as for windows of a long text.
        steps : int, iterable of int, "all" or "mean", optional
            Denoising steps to show, if `model` is a pipeline of diffusers. See `attnviz.extract`.
        sentence_b_start : int, optional
            Position of the first token of the second text of a pair, if `model` is
            ``outputs.attentions``.
        name : str, optional
            Title of the picture. By default the last part of the model's hub id or folder.
        words : bool, default False
            Whether to merge subword tokens into words. The weights of a word are the sum over its
            tokens as keys, and the mean over its tokens as queries. Predictions of the model are
            not shown for words.
        passages : optional
            Named runs of tokens to show instead of tokens, as for `attnviz.extract`. True shows
            those that a record has without this argument, such as the turns of a chat. Weights are
            merged as for `words`.
        outputs : bool, default False
            Whether to also keep the outputs of heads, which ``order="output norm"`` needs.
        index : sequence, optional
            Names of the steps of a time series, such as dates, as for `attnviz.extract`.
        layers, dtype, device, spool : optional
            Layers to read from the model, dtype and device of their queries and keys, and a folder
            for queries and keys that do not fit into memory, as for `attnviz.extract`.
        include_layers : int or iterable of int, optional
            Numbers of the layers that the view offers, as the model counts them. All by default.
        {traits}

        Returns
        -------
        {view}
            The view. A notebook displays it immediately. In marimo, make it the last expression of
            the cell. In a script, the page is written to a file, and its path is printed.

        Raises
        ------
        TypeError
            If an argument is missing, unknown, or has an invalid type.
        ValueError
            If an argument does not fit the model, or `inputs` contains several examples.
        MemoryError
            If the queries and keys do not fit into the free memory.

        Notes
        -----
        If no layer, heads, token, key or order of heads is passed, all views except the model view
        open at the head with the most distinct pattern, such as "previous token" (see
        `attnviz.analysis.distinct_head`). The caption names this pattern. If no head has a distinct
        pattern, or the text is so long that the search would take long, the view opens at the first
        layer.

        Examples
        --------
        >>> import attnviz as av
        >>> model, tokenizer = av.demos.load("decoder")    # doctest: +SKIP
        >>> av.{name}(model, "the cat sat", tokenizer=tokenizer)    # doctest: +SKIP
        """
        ...


def _traits_of(view: type[RecordView]) -> dict[str, str]:
    """Return a docstring entry for each trait that a `show_*` function can set, by name."""
    entries: dict[str, str] = {}
    names = view.state_names()
    for source in view.__mro__:
        for name, kind, words in documented_names(source):
            # Skip a description that only refers to another class ("See ..."). The loop finds the
            # full description in that class.
            if name in names and words and not words.startswith("See "):
                meaning = textwrap.indent(textwrap.fill(words, 92), "    ")
                entries.setdefault(name, f"{name} : {kind}\n{meaning}")
    return {name: entries[name] for name in names}


def _show_function(view: type[_RecordView], name: str, summary: str) -> ShowFunction[_RecordView]:
    """Create the `show_*` function of a view, with the signature and the help that users see.

    `name` is the name of the function. `summary` is the first sentence of its help, without the
    full stop.
    """
    signature = inspect.signature(ShowFunction.__call__)
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "traits")
    ]
    of_views = {"model", "inputs", "include_layers"}
    of_records = {option.name for option in parameters} - of_views

    def function(
        model: Any = None,
        inputs: Any = None,
        *,
        include_layers: int | Iterable[int] | None = None,
        live: bool = False,
        **arguments: Any,
    ) -> _RecordView:
        traits = {key: value for key, value in arguments.items() if key not in of_records}
        # Check the names of traits first, because running the model can take minutes.
        view.check_names(traits)
        options = {key: value for key, value in arguments.items() if key in of_records}
        runs_again = issubclass(view, WhatIf) and _runs_again(model)
        # With these, the tokens in the view are not the tokens of `inputs`, so that another run of
        # the model on `inputs` would not fit the view.
        runs_again = runs_again and options.get("generate") is None
        runs_again = runs_again and not options.get("words") and options.get("passages") is None
        if traits.get("answer") is not None and not runs_again:
            raise TypeError(no_model_message(f"answer={short_repr(traits['answer'])}", view.name))
        with show_progress(name):
            generation = _live_generation(model, inputs, options) if live else None
            if generation is not None:
                record = generation.first_record()
            else:
                record = record_of(model, inputs, **options)
            if runs_again:
                traits |= {name: options[name] for name in INPUT_OPTIONS if name in options}
                traits |= {"model": model, "inputs": inputs}
            made = view(record, include_layers=include_layers, **traits)
        if generation is not None:
            generation.show_in(made)
        return show(made)

    described = _traits_of(view)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = inspect.cleandoc(ShowFunction.__call__.__doc__ or "").format(
        summary=summary, view=view.__name__, name=name, traits="\n".join(described.values())
    )
    # IPython's help and completion read this signature. In it, every trait has the default None,
    # which stands for the default value of the view.
    parameters += [
        inspect.Parameter(trait, inspect.Parameter.KEYWORD_ONLY, default=None)
        for trait in described
    ]
    changed = signature.replace(parameters=parameters, return_annotation=view.__name__)
    function.__signature__ = changed  # type: ignore[attr-defined]
    return cast("ShowFunction[_RecordView]", function)


show_head_view = _show_function(
    HeadView,
    "show_head_view",
    "Show attention as lines from each query to the keys that it attends to",
)
show_model_view = _show_function(
    ModelView,
    "show_model_view",
    "Show all heads of all layers as a grid of small heat maps or small line pictures",
)
show_neuron_view = _show_function(
    NeuronView,
    "show_neuron_view",
    "Show how a weight is computed: query, key, their product, the logit and the softmax",
)
show_matrix_view = _show_function(
    MatrixView,
    "show_matrix_view",
    "Show the weights of a head, or the mean of several, as a heat map of queries and keys",
)
show_dashboard = _show_function(
    Dashboard,
    "show_dashboard",
    "Show model view, head view and matrix view in one widget, linked to each other",
)


def show_compare_view(
    a: Any,
    b: Any = None,
    c: Any = None,
    *,
    names: Sequence[str] | None = None,
    words: bool = False,
    include_layers: int | Iterable[int] | None = None,
    **options: Any,
) -> CompareView:
    """Show the distances between the heads of two texts, models or records, and one head in detail.

    Parameters
    ----------
    a, b, c : object
        Arguments of `attnviz.compare`: two records, a model and two texts, a pair of models and a
        text, or a list of checkpoints and a text. Alternatively, `a` is a `Comparison`, and `b` and
        `c` are omitted.
    names : sequence of str, optional
        Names of the compared records, for example ``("base", "tuned")``.
    words : bool, default False
        Whether to merge tokens into words before they are aligned.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers, as the model counts them. All by default.
    **options
        Initial values of traits of `CompareView`, such as `layer`, `heads`, `stack`, `token`,
        `key`, `member`, `form`, `order` and `theme`. Other names are arguments of `attnviz.compare`
        and `attnviz.extract`, such as `tokenizer` and `layers`.

    Returns
    -------
    CompareView
        The view. A notebook displays it immediately. In marimo, make it the last expression of the
        cell. In a script, the page is written to a file, and its path is printed.

    Raises
    ------
    TypeError
        If an argument is missing, unknown, or has an invalid type.
    ValueError
        If the compared records have no tokens in common.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> av.show_compare_view(model, "the cat sat", "the dog sat", tokenizer=tokenizer)
    ...                                                                        # doctest: +SKIP
    """
    from attnviz.comparison.compare import compare
    from attnviz.comparison.comparison import Comparison

    of_view = set(CompareView.state_names())
    traits = {name: value for name, value in options.items() if name in of_view}
    rest = {name: value for name, value in options.items() if name not in of_view}
    if names is not None:
        rest["names"] = names
    if words:
        rest["words"] = words
    if isinstance(a, Comparison):
        members = {"b": b, "c": c}
        unused = [name for name, value in members.items() if value is not None] + [*rest]
        refuse_arguments(unused, "a is a Comparison, which contains the records")
        return show(CompareView(a, include_layers=include_layers, **traits))
    with show_progress("show_compare_view", shown=bool(rest.get("progress", True))):
        made = CompareView(compare(a, b, c, **rest), include_layers=include_layers, **traits)
    return show(made)


_DISPLAYS = ContextVar("_DISPLAYS", default=True)


@contextmanager
def nothing_displayed() -> Iterator[None]:
    """Prevent `show_*` functions in the ``with`` block from displaying the views that they return.

    The command line uses this context manager.
    """
    before = _DISPLAYS.set(False)
    try:
        yield
    finally:
        _DISPLAYS.reset(before)


def show(view: _View) -> _View:
    """Display a view, and return it.

    In a notebook, the view is displayed in the current cell. In a script, its page is written to a
    temporary file. In marimo, or inside `nothing_displayed`, the view is only returned.
    """
    if not _DISPLAYS.get():
        return view
    if in_marimo():
        # Do nothing, because marimo displays the last expression of a cell itself.
        return view
    cell = ipython_cell()
    if cell is not None:
        from IPython.display import display

        display(view)
        view.shown_in_cell = cell
        return view
    folder = Path(tempfile.mkdtemp(prefix="attnviz-"))
    offer_file(view.save(folder / f"{view.file_name}.html"))
    return view


def _live_generation(model: Any, inputs: Any, options: Mapping[str, Any]) -> LiveGeneration | None:
    """Check the arguments of a call with ``live=True``, and start the generation.

    Return None without starting it if no event loop of a kernel is running, as in a script.
    """
    arguments = given_arguments(ShowFunction.__call__, options)
    if "generate" not in arguments:
        raise ValueError(
            "live=True needs generate=, which is missing. Pass a number of tokens, for example "
            "generate=40."
        )
    if not _runs_again(model) or inputs is None:
        raise TypeError("live=True needs a model and inputs, the prompt that the model continues.")
    unused = {"words", "passages", "outputs", "spool", "target", "tokens", "sentence_b_start"}
    refuse_arguments(
        sorted(unused & set(arguments)), "live=True shows a text while the model generates it"
    )
    if ipython_cell() is None:
        return None
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    from attnviz.extraction.live import extract_live

    return LiveGeneration(partial(extract_live, model, inputs, **arguments), loop)


def record_of(
    model: Any,
    inputs: Any = None,
    *,
    tokens: Sequence[str] | Tokens | None = None,
    sentence_b_start: int | None = None,
    words: bool = False,
    passages: Any = None,
    **options: Any,
) -> AttentionRecord:
    """Return the record that the arguments of a `show_*` function describe.

    If `words` is True, subword tokens are merged into words, and `passages` into passages.
    `options` has further arguments of `attnviz.extract`. Arguments with their default values are
    ignored, so they are not refused if they do not fit `model`.
    """
    if tokens is None and _is_weights(model) and _are_tokens(inputs):
        tokens, inputs = inputs, None
    for_weights = {"tokens": tokens, "sentence_b_start": sentence_b_start}
    for_models = {"inputs": inputs, **options}
    record = _record(
        model,
        given_arguments(ShowFunction.__call__, for_weights),
        given_arguments(ShowFunction.__call__, for_models),
    )
    if words:
        record = record.merge_words()
    if passages is None:
        return record
    return record.merge_passages(None if passages is True else passages)


def _record(model: Any, for_weights: dict[str, Any], for_models: dict[str, Any]) -> AttentionRecord:
    """Return the record that is extracted from a model or created from weights.

    If `model` is a record, return it. `for_weights` has the passed arguments that are only valid if
    `model` is weights. `for_models` has the passed arguments that are only valid if `model` is a
    model. Raise TypeError for arguments that do not fit `model`.
    """
    if isinstance(model, AttentionRecord):
        reason = "model is a record, which contains tokens and weights"
        refuse_arguments(for_weights | for_models, reason)
        return model
    check_one_text("model", model)
    if isinstance(model, Mapping):
        named = [name for name in model if str(name).endswith("attentions") and model[name]]
        remedy = f"Pass its weights, outputs.{named[0]}, with tokens=" if named else NO_WEIGHTS_HINT
        raise TypeError(f"model is a {type(model).__name__}, the output of a model. {remedy}.")
    if model is None or _is_weights(model):
        title = for_models.pop("name", "")
        refuse_arguments(for_models, "model is weights, which are drawn as they are")
        return AttentionRecord.from_weights(model, model=title, **for_weights)
    refuse_arguments(for_weights, "model is a model, whose tokens come from inputs")
    if "inputs" not in for_models:
        raise TypeError(
            "inputs is missing. Pass the text that the model reads, for example "
            'show_head_view(model, "The cat sat."). If model is the file of a record, pass '
            "attnviz.load(path)."
        )
    from attnviz.extraction import extract

    record: AttentionRecord | list[AttentionRecord] = extract(model, **for_models)
    if isinstance(record, AttentionRecord):
        return record
    if len(record) != 1:
        raise ValueError(
            f"inputs has {len(record)} examples, but a view shows one. Pass one of them."
        )
    return record[0]


def _runs_again(model: Any) -> bool:
    """Whether the first argument of a `show_*` function is a model whose attention can be changed.

    It may also be a record, weights, or a pipeline of diffusers.
    """
    if isinstance(model, AttentionRecord) or _is_weights(model):
        return False
    from attnviz.extraction.models import is_pipeline

    return not is_pipeline(model)


def _are_tokens(inputs: Any) -> bool:
    """Whether the second argument of a `show_*` function is a list of tokens, as in BertViz."""
    return isinstance(inputs, Tokens | list | tuple) and all(isinstance(t, str) for t in inputs)


def _is_weights(model: Any) -> bool:
    if isinstance(model, (list, tuple)):
        return True
    return hasattr(model, "__array__") or hasattr(model, "detach")

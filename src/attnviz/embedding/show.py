"""The function `show_embedding_view`, which shows queries and keys of many texts as points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.view import EmbeddingView
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import as_list, given_arguments, refuse_arguments, whole_numbers
from attnviz.utils.progress import show_progress
from attnviz.views.show import show

# Traits whose valid values depend on all texts.
_OF_TEXTS = frozenset({"token", "key", "text", "selected", "color"})


def show_embedding_view(
    model: Any,
    texts: Any = None,
    *,
    column: str = "text",
    max_points: int = 10_000,
    seed: int = 0,
    columns: Mapping[str, Any] | Iterable[str] | None = None,
    target: Sequence[str] | None = None,
    truncation: bool | int = False,
    part: int | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    name: str | None = None,
    layers: int | Iterable[int] | None = None,
    dtype: Any = None,
    device: Any = "cpu",
    batch_size: int | Literal["auto"] = "auto",
    include_layers: int | Iterable[int] | None = None,
    **traits: Any,
) -> EmbeddingView:
    """Show queries and keys of many texts as points, where a short distance means a large weight.

    The view is based on AttentionViz (Yeh et al. 2023, arXiv 2305.03210). It shows all heads as
    small plots. Each plot has figures that state how well its distances predict attention. One head
    can be enlarged. Its plot offers search, colours by a property, selection with a lasso, and the
    text of a clicked point.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline, Corpus or sequence of AttentionRecord
        A transformers model, hub id, folder or pipeline, which reads `texts`. Alternatively a
        corpus, or the records of several texts of one model with queries and keys. `texts` is then
        omitted.
    texts : sequence or datasets.Dataset, optional
        Inputs of the model: texts, pairs of texts, images, or a dataset or one of its columns. The
        model reads them in random order until a head has `max_points` points.
    column : str, default "text"
        Column of the dataset with the text or image.
    max_points : int, default 10,000
        Maximum number of points of a head, which are its queries and keys together.
    seed : int, default 0
        Seed of the random order, and of t-SNE and UMAP.
    columns : mapping of str to values, or iterable of str, optional
        Properties of texts or tokens, for the colours of points. A mapping has, for each name, one
        value per text, or one sequence per text with a value for each token. If `texts` is a
        dataset, an iterable names its columns.
    target : sequence of str, optional
        Text that the model is forced to produce, one for each input.
    truncation : bool or int, default False
        Whether to cut texts that are too long for the model. A number cuts longer texts to this
        many tokens. By default, texts that are too long are left out.
    part : int, optional
        Number of the call to read, from 0, if `model` is a pipeline that calls its model several
        times for one text, such as for windows of a long text.
    tokenizer, processor : object, optional
        Tokenizer or processor of the model. By default the one that was saved with the model.
    name : str, optional
        Title of the picture. By default the last part of the model's hub id or folder.
    layers, dtype, device : optional
        Layers to read from the model, and dtype and device of their queries and keys, as for
        `attnviz.extract_corpus`.
    batch_size : int or "auto"
        Number of texts per forward, as for `attnviz.extract_corpus`.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers, as the model counts them. All by default.
    **traits
        Initial values of traits of `attnviz.EmbeddingView`, such as `layer`, `heads`, `enlarged`,
        `color`, `method`, `dimensions` and `search`. With ``method="tsne"`` or ``"umap"``, the
        neighbours of a point are points with a similar direction (cosine distance). With
        ``lift=True`` they are points at a small Euclidean distance.

    Returns
    -------
    EmbeddingView
        The view. A notebook displays it immediately. In marimo, make it the last expression of the
        cell. In a script, the page is written to a file, and its path is printed.

    Raises
    ------
    TypeError
        If an argument is missing, unknown, or has an invalid type.
    ValueError
        If `texts` is empty, an argument does not fit the model, or records are of several models.
    MemoryError
        If the queries and keys do not fit into the free memory.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                              # doctest: +SKIP
    >>> texts = ["the cat sat on the table", "the dog ran home"]                   # doctest: +SKIP
    >>> av.show_embedding_view(model, texts, tokenizer=tokenizer, layer=1)       # doctest: +SKIP
    """
    given = given_arguments(show_embedding_view, locals())
    for argument in ("include_layers", "seed"):
        given.pop(argument, None)
    if include_layers is not None:
        include_layers = whole_numbers("include_layers", as_list(include_layers))
    if isinstance(columns, Iterator):
        given["columns"] = list(columns)
    with show_progress("show_embedding_view"):
        corpus = _corpus_of(model, given, seed=seed, include_layers=include_layers, traits=traits)
        view = EmbeddingView(corpus, include_layers=include_layers, seed=seed, **traits)
    return show(view)


def _corpus_of(
    model: Any,
    given: dict[str, Any],
    *,
    seed: int,
    include_layers: int | Iterable[int] | None,
    traits: Mapping[str, Any],
) -> Corpus:
    """Return the corpus that the arguments of `show_embedding_view` describe.

    `given` has the arguments without their defaults. If a model reads texts, `include_layers` and
    most of `traits` are checked after the first text, before the model reads the other texts.
    """
    EmbeddingView.check_names(traits)
    if isinstance(model, Corpus):
        refuse_arguments(given, "model is a corpus, which contains all that is shown")
        return model
    if isinstance(model, Sequence) and model and isinstance(model[0], AttentionRecord):
        of_corpus = {name: given.pop(name) for name in ("max_points", "columns") if name in given}
        reason = "model is a list of records, which contain tokens, queries and keys"
        refuse_arguments(given, reason)
        return Corpus(model, seed=seed, **of_corpus)
    if isinstance(model, (AttentionRecord, list, tuple)):
        raise TypeError(
            f"model is a {type(model).__name__}. Pass a model with texts=, a corpus, or a list of "
            "the records of several texts (weights alone have no queries and keys)."
        )
    if "texts" not in given:
        raise TypeError(
            "texts is missing. Pass the texts that the model reads, for example "
            'show_embedding_view(model, ["The cat sat.", "It rained."])'
        )
    from attnviz.corpus.extract import extract_corpus

    def check(first: Corpus) -> None:
        known = {name: value for name, value in traits.items() if name not in _OF_TEXTS}
        EmbeddingView(first, include_layers=include_layers, **known).close()

    return extract_corpus(
        model,
        given.pop("texts"),
        check=check,
        seed=seed,
        **given,
    )

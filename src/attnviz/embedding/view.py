"""The embedding view: queries and keys of many texts as points, so that near means attending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import traitlets

from attnviz.corpus.columns import COLORINGS
from attnviz.corpus.corpus import Corpus
from attnviz.embedding.exports import EmbeddingPages
from attnviz.embedding.projection import missing_package
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.embedding.server.server import CorpusServer
from attnviz.embedding.tables import told_points, told_trust
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.server.kernel import Server
from attnviz.views.trait_types import Index, Numbers

__all__ = ["COLORINGS", "EmbeddingView"]

_LARGEST_SEED = 2**32 - 1


class EmbeddingView(EmbeddingPages):
    """Queries and keys of a corpus as points: all heads as small plots, or one head enlarged.

    The joint query-key embedding of AttentionViz (Yeh et al. 2023, arXiv 2305.03210): per head,
    queries and keys of all texts are scaled and moved so that a query's weight falls with the
    distance of the key, and projected together. On every plot stands how far to trust it.

    Parameters
    ----------
    corpus : Corpus or sequence of AttentionRecord
        Several records of one model, with queries and keys.
    include_layers : iterable of int, optional
        The layers to offer.
    **traits
        Initial values of the traits below and of those that all views share (see
        `attnviz.views.place.PlacedWidget`: stack, layer, heads, token, key, theme). The first of
        `heads` is the head that is enlarged. `token` and `key` are a query and a key of `text`:
        the chosen point.

    Attributes
    ----------
    text : int or None
        Which of the corpus's records `token` and `key` belong to; None is the first. `record` is
        that record.
    enlarged : bool
        One head, or all heads as small plots.
    shown : {"plot", "aggregate"}
        The points, or the mean weight by the positions of query and key.
    method : {"pca", "tsne", "umap"}
        How the enlarged head is projected; small plots show principal components. t-SNE and UMAP
        need ``attnviz[embedding]``. They take points for near whose directions are alike (cosine
        distance), with `lift` those at a small Euclidean distance; `trust` is always of Euclidean
        distances.
    dimensions : {2, 3}
        Of the enlarged plot.
    scaling : {"norms", "search", "none"}
        What queries are divided by and keys multiplied by: by their median norms, the best of a
        grid, or nothing.
    translate : bool
        Keys are moved onto the queries.
    lift : bool
        Keys get a coordinate that makes a query's order of distances that of its products.
    perplexity : int
        Of t-SNE, 2 or more.
    neighbors : int
        Of UMAP, 2 or more.
    seed : int
        Of t-SNE and UMAP.
    color : str
        ``"type"``, ``"position"``, ``"position mod 5"``, ``"norm"``, ``"frequency"``,
        ``"punctuation"``, ``"text"``, or the name of one of the corpus's columns.
    points : {"both", "queries", "keys"}
        Which points are drawn.
    search : str
        Tokens to find.
    match_case : bool
        Whether the search tells capitals from small letters.
    selected : list of int
        Numbers of the points in the lasso, ascending; see `selection`.
    leave_out, renormalize
        Of the chosen text's own picture; as in `attnviz.HeadView`.

    Raises
    ------
    TypeError
        If `corpus` is neither, or a keyword is unknown or of no effect here (scores, order,
        least_score, pair, prediction, as_query).
    ValueError
        If the records are none, or not of one model, or have no queries and keys.
    ImportError
        If `method` needs a package that is not installed.
    traitlets.TraitError
        If a trait's value does not fit the corpus.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> records = [av.extract(model, text, tokenizer=tokenizer) for text in texts]  # doctest: +SKIP
    >>> view = EmbeddingView(records, color="position", layer=1, heads=[2])       # doctest: +SKIP
    >>> view.enlarged = True                                                      # doctest: +SKIP
    """

    name: ClassVar[str] = "embedding"
    without_effect: ClassVar[frozenset[str]] = frozenset(
        {"scores", "order", "least_score", "pair", "prediction", "as_query"}
    )

    _by_reader = False

    text = Index(None, allow_none=True).tag(sync=True)
    enlarged = traitlets.Bool(default_value=False).tag(sync=True)
    shown = traitlets.Enum(["plot", "aggregate"], "plot").tag(sync=True)
    method = traitlets.Enum(["pca", "tsne", "umap"], "pca").tag(sync=True)
    dimensions = Index(2).tag(sync=True)
    scaling = traitlets.Enum(["norms", "search", "none"], "norms").tag(sync=True)
    translate = traitlets.Bool(default_value=True).tag(sync=True)
    lift = traitlets.Bool(default_value=False).tag(sync=True)
    perplexity = Index(50).tag(sync=True)
    neighbors = Index(15).tag(sync=True)
    seed = Index(0).tag(sync=True)
    color = traitlets.Unicode("type").tag(sync=True)
    points = traitlets.Enum(["both", "queries", "keys"], "both").tag(sync=True)
    search = traitlets.Unicode("").tag(sync=True)
    match_case = traitlets.Bool(default_value=False).tag(sync=True)
    selected = Numbers(traitlets.Int()).tag(sync=True)
    leave_out = traitlets.List(
        traitlets.Union([traitlets.Enum(["special", "first"]), traitlets.Int(min=0)])
    ).tag(sync=True)
    renormalize = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self,
        corpus: Corpus | Sequence[AttentionRecord],
        *,
        include_layers: Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(cast("Any", corpus), include_layers=include_layers, **traits)

    @property
    def corpus(self) -> Corpus:
        """What is shown."""
        return self._corpus

    @property
    def record(self) -> AttentionRecord:
        """The record of `text`, the first where none is chosen."""
        text, records = self.text, self._corpus.records
        # While several traits are set at once the text may not have been looked at yet.
        return records[text if text is not None and 0 <= text < len(records) else 0]

    def selection(self) -> list[dict[str, Any]]:
        """The points in the lasso.

        Returns
        -------
        list of dict
            One a point, in their order: ``point``, its number; ``kind``, ``"query"`` or ``"key"``;
            ``text``, the index of its record; ``position`` in that text; ``token``, as it is shown.

        Examples
        --------
        >>> pandas.DataFrame(view.selection()).token.value_counts()    # doctest: +SKIP
        """
        return told_points(self._corpus, self.stack, self.selected)

    def trust(self) -> list[dict[str, Any]]:
        """How far the plots of principal components can be trusted, for all heads of the stack.

        Returns
        -------
        list of dict
            One a head: ``layer``, ``head``; means over queries of the correlation of distance with
            product, -1 at best, of the vectors as they are, as they were placed and on the plot,
            over the keys that each query may attend to (``before_allowed``, ``placed_allowed``,
            ``plot_allowed``) and over all (``before_all_pairs``, ...); ``recall_allowed`` and
            ``recall_all``, the share of a query's ten strongest keys that are among its ten
            nearest, with what chance would give; ``queries`` measured, ``of`` how many;
            ``problem``, why a head shows nothing. None where a figure cannot be computed.

        Examples
        --------
        >>> pandas.DataFrame(view.trust()).plot_allowed.median()    # doctest: +SKIP
        """
        way = {"scaling": self.scaling, "translate": self.translate, "lift": self.lift}
        return told_trust(self._answers(), self.stack, way, self.dimensions)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the browser says.

        Parameters
        ----------
        sync_data : dict
            Values by trait.
        """
        self._by_reader = True
        try:
            super().set_state(sync_data)
        finally:
            self._by_reader = False

    def _take(self, given: Any, include_layers: Iterable[int] | None) -> None:
        corpus = given if isinstance(given, Corpus) else Corpus(given)
        try:
            self._corpus = corpus if include_layers is None else corpus.only(include_layers)
        except IndexError as error:
            raise IndexError(f"include_layers: {error}") from None

    def _server(self) -> Server:
        self._corpus_server = CorpusServer(self._corpus, page=self._page_of)
        return self._corpus_server

    def close(self) -> None:
        """Take the view from the screen, and end a t-SNE or UMAP that runs for it."""
        # Also called of a view whose corpus was refused, which never came so far.
        if hasattr(self, "_corpus_server"):
            self._answers().running.close()
        super().close()

    def _answers(self) -> EmbeddingAnswers:
        return self._corpus_server.answers

    @traitlets.validate("stack")
    def _validate_stack(self, proposal: Mapping[str, Any]) -> str:
        return self._stack_named(proposal["value"]).name

    @traitlets.validate("text")
    def _validate_text(self, proposal: Mapping[str, Any]) -> int | None:
        text: int | None = proposal["value"]
        count = len(self._corpus.records)
        if text is not None and not 0 <= text < count:
            raise traitlets.TraitError(f"text={text!r}: the corpus has texts 0 to {count - 1}")
        return text

    @traitlets.validate("method")
    def _validate_method(self, proposal: Mapping[str, Any]) -> str:
        method = proposal["value"]
        missing = missing_package(method)
        # A reader's choice is answered in the picture, where the reader looks.
        if missing is not None and not self._by_reader:
            raise ImportError(f"method={method!r}: {missing}")
        return cast("str", method)

    @traitlets.validate("dimensions", "perplexity", "neighbors", "seed")
    def _validate_number(self, proposal: Mapping[str, Any]) -> int:
        name: str = proposal["trait"].name
        value: int = proposal["value"]
        least, most = {"dimensions": (2, 3), "seed": (0, _LARGEST_SEED)}.get(name, (2, None))
        if value < least or (most is not None and value > most):
            bounds = f"{least} or more" if most is None else f"from {least} to {most}"
            raise traitlets.TraitError(f"{name}={value!r} must be {bounds}")
        return value

    @traitlets.validate("color")
    def _validate_color(self, proposal: Mapping[str, Any]) -> str:
        color: str = proposal["value"]
        known = [*COLORINGS, *self._corpus.column_names]
        if color not in known:
            raise traitlets.TraitError(
                f"color={color!r} must be one of {', '.join(map(repr, known))}; columns of your "
                "own are given with columns="
            )
        return color

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: Mapping[str, Any]) -> list[int]:
        selected = sorted(set(proposal["value"]))
        count = len(self._corpus.points(self._stack_named(self.stack).name))
        if selected and not 0 <= selected[0] <= selected[-1] < count:
            wrong = selected[0] if selected[0] < 0 else selected[-1]
            raise traitlets.TraitError(
                f"selected: there is no point {wrong}; stack {self.stack!r} has points 0 to "
                f"{count - 1}"
            )
        return selected

    @traitlets.observe("text")
    def _fit_to_text(self, change: Mapping[str, Any]) -> None:
        """A place that the new text does not have is none."""
        del change
        if not self.stack:
            return
        stack = self._stack_named(self.stack)
        for name, tokens in (("token", stack.query_tokens), ("key", stack.key_tokens)):
            position = getattr(self, name)
            if position is not None and position >= len(tokens):
                setattr(self, name, None)
        self._walk_on()

    @traitlets.observe("stack")
    def _forget_selected(self, change: Mapping[str, Any]) -> None:
        """Points of one stack mean nothing in another."""
        if change["old"] and change["old"] != change["new"]:
            self.selected = []

    def _stack_named(self, name: str) -> AttentionStack:
        try:
            self._corpus.stack(name)
        except KeyError as error:
            raise traitlets.TraitError(error.args[0]) from None
        return self.record.stack(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._corpus!r}>"

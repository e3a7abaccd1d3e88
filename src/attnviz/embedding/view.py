"""The embedding view: queries and keys of many texts as points, near if the weight is large."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

import traitlets

from attnviz.corpus.columns import COLORINGS
from attnviz.corpus.corpus import Corpus
from attnviz.embedding.page import (
    MAX_BYTES,
    embedding_page_steps,
    layer_figure,
    make_embedding_page,
)
from attnviz.embedding.placement import Placing, Scaling
from attnviz.embedding.projection import missing_package
from attnviz.embedding.server.plots import EmbeddingAnswers, PlotOptions
from attnviz.embedding.server.server import CorpusServer
from attnviz.pages.figure import FigureArguments
from attnviz.pages.limits import PagePrecision, check_file_kind, check_options, check_top_keys
from attnviz.pages.saved_picture import make_saved_still
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.kernel import Server
from attnviz.utils.bars import Bar
from attnviz.utils.progress import Steps, run_steps
from attnviz.views.head_roles import HeadRoles
from attnviz.views.lifetime import weakly
from attnviz.views.position import with_layers
from attnviz.views.trait_types import Choice, Index, Keys, Numbers, with_controls

__all__ = ["COLORINGS", "EmbeddingView"]

_LARGEST_SEED = 2**32 - 1
# Fields of `HeadTrust` in the table of `trust`.
_TRUST_FIGURES = (
    "before",
    "placed",
    "plot",
    "recall",
    "recall_baseline",
    "num_queries",
    "num_total",
)


class EmbeddingView(HeadRoles):
    """Queries and keys of a corpus as points: all heads as small plots, or one head enlarged.

    This is the joint query-key embedding of AttentionViz (Yeh et al. 2023, arXiv 2305.03210). For
    each head, queries and keys of all texts are scaled and moved so that a query's weight falls
    with the distance of the key, and projected together. Each plot states how well its distances
    predict attention.

    Parameters
    ----------
    corpus : Corpus or sequence of AttentionRecord
        Corpus, or several records of one model, with queries and keys.
    include_layers : int or iterable of int, optional
        Layers to offer.
    **traits
        Initial values of the traits below and of the traits that all views share: `stack`, `layer`,
        `heads`, `token`, `key` and `theme` (see `attnviz.views.position.PositionedView`). The first
        of `heads` is enlarged. `token` and `key` are a query and a key of `text`: the chosen point.

    Attributes
    ----------
    text : int or None
        Index of the corpus's record that contains `token` and `key`. None is the first. The
        property `record` returns this record.
    enlarged : bool
        Whether one head is enlarged. If not, all heads are shown as small plots.
    content : {"plot", "aggregate"}
        The points, or the mean weight by the positions of query and key.
    method : {"pca", "tsne", "umap"}
        Projection of the enlarged head. Small plots show principal components. t-SNE and UMAP need
        ``attnviz[embedding]``. Their neighbours are points with similar directions (cosine
        distance), or with `lift` points at a small Euclidean distance. `trust` always uses
        Euclidean distances.
    dimensions : {2, 3}
        Number of dimensions of the enlarged plot.
    scaling : {"norms", "none"}
        Factor by which queries are divided and keys multiplied: the square root of the ratio of
        their median norms, or 1.
    translate : bool
        Whether keys are moved so that their mean is the mean of the queries.
    lift : bool
        Whether keys get an additional coordinate that makes the order of a query's keys by distance
        equal to their order by product.
    perplexity : int
        Perplexity of t-SNE, at least 2.
    neighbors : int
        Number of neighbours in UMAP, at least 2.
    seed : int
        Seed of t-SNE and UMAP.
    color : str
        Property that determines the colours of points: ``"type"``, ``"position"``,
        ``"position mod 5"``, ``"norm"``, ``"frequency"``, ``"punctuation"``, ``"text"``, or the
        name of one of the corpus's columns.
    order : {"number", "correlation", "recall", "role"}
        Order of the small plots: by head number, by a trust figure, or by the `roles` of heads.
    roles : dict
        Roles of heads over a corpus, such as `HeadStatistics` of the same model (see
        `attnviz.views.head_roles.HeadRoles`).
    points : {"both", "queries", "keys"}
        Points that are drawn.
    search : str
        Tokens to find.
    match_case : bool
        Whether the search is case-sensitive.
    selected : list of int
        Numbers of the points in the lasso, ascending (see `selection`).
    leave_out, renormalize
        Options for the picture of the chosen text, as in `attnviz.HeadView`.

    Raises
    ------
    TypeError
        If `corpus` has another type, or a keyword is unknown.
    ValueError
        If the corpus is empty, its records are of several models, or they have no queries and keys.
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

    _by_reader = False

    text = Index(None, allow_none=True).tag(sync=True)
    enlarged = traitlets.Bool(default_value=False).tag(sync=True)
    content = Choice(["plot", "aggregate"], "plot").tag(sync=True)
    method = Choice(["pca", "tsne", "umap"], "pca").tag(sync=True)
    dimensions = Index(2).tag(sync=True)
    scaling = Choice(["norms", "none"], "norms").tag(sync=True)
    translate = traitlets.Bool(default_value=True).tag(sync=True)
    lift = traitlets.Bool(default_value=False).tag(sync=True)
    perplexity = Index(50).tag(sync=True)
    neighbors = Index(15).tag(sync=True)
    seed = Index(0).tag(sync=True)
    color = traitlets.Unicode("type").tag(sync=True)
    order = Choice(["number", "correlation", "recall", "role"], "number").tag(sync=True)
    points = Choice(["both", "queries", "keys"], "both").tag(sync=True)
    search = traitlets.Unicode("").tag(sync=True)
    match_case = traitlets.Bool(default_value=False).tag(sync=True)
    selected = Numbers(traitlets.Int()).tag(sync=True)
    leave_out = Keys().tag(sync=True)
    renormalize = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self,
        corpus: Corpus | Sequence[AttentionRecord],
        *,
        include_layers: int | Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        self.check_names(traits)
        made = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
        self._corpus = with_layers(made, include_layers)
        # The text comes first, because tokens are looked up in it.
        text = {"text": traits["text"]} if "text" in traits else {}
        super().__init__(**text | traits)

    @property
    def corpus(self) -> Corpus:
        """The corpus that is shown."""
        return self._corpus

    @property
    def record(self) -> AttentionRecord:
        """The record of `text`, or the first record if `text` is None."""
        text, records = self.text, self._corpus.records
        # If several traits are set at once, `text` may not be validated yet.
        return records[text if text is not None and 0 <= text < len(records) else 0]

    def to_html(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
        controls: str | bool | None = None,
    ) -> str:
        """Return the view as one HTML page that works offline.

        The page contains the first two principal components of all heads with the placement of this
        view, their trust figures, norms and mean weights by position, and the finished plots of
        other methods. Without `top_keys` it draws no attention lines.

        Parameters
        ----------
        precision : {"auto"}
            Precision of the coordinates. There is one: 16 bits.
        max_mb : float, optional
            Maximum size of the page in megabytes. The default is 40.
        top_keys : int, default 0
            Number of strongest keys to embed per query. The page draws their lines when a reader
            chooses a query. `page_size` returns the size of such a page.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Controls of the page. By default those of the view.

        Returns
        -------
        str
            The page with its data, its code and the state of this view. It loads nothing from
            elsewhere.

        Raises
        ------
        TypeError, ValueError
            If the page would be too large (the message lists remedies), or an argument has an
            invalid type or value.
        ImportError, RuntimeError
            If the projection of the enlarged head cannot be computed.

        Examples
        --------
        >>> page = view.to_html(top_keys=5)              # doctest: +SKIP
        """
        state = with_controls(self.state, controls)
        return self._embedding_page(state, precision, max_mb, top_keys, wait=True)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
        controls: str | bool | None = None,
        **figure: Unpack[FigureArguments],
    ) -> Path:
        """Write the view to a file. The suffix determines the format.

        Parameters
        ----------
        path : path-like
            ``"x.html"`` is the interactive page, ``"x.pdf"`` and ``"x.svg"`` are vector graphics
            for a paper, and ``"x.png"`` is pixels. An installed Chromium or Chrome draws pictures.
        precision, max_mb, top_keys : optional
            Options of the page, also if it is drawn as a picture. See `to_html`. A picture has
            lines if one head is enlarged and a query is chosen: ``enlarged=True``, ``token=...``.
        controls : optional
            Controls of the page. See `to_html`. Pictures have none.
        **figure
            Style of a picture: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`. See `to_svg`.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        TypeError, ValueError
            If the suffix is unknown, the page would be too large, or `top_keys` is passed for a
            picture without lines.
        OSError
            If the file cannot be written. No incomplete file is left.
        ImportError, RuntimeError
            If the projection of the enlarged head cannot be computed, or a picture needs a browser
            and none is found.

        Examples
        --------
        >>> view.save("embedding.html", top_keys=5)     # doctest: +SKIP
        """
        lines = self.enlarged and self.content == "plot" and self.token is not None
        if check_top_keys(top_keys) and check_file_kind(path) != "html" and not lines:
            raise ValueError(
                f"top_keys={top_keys}: this picture has no lines. Choose a query with "
                'enlarged=True, content="plot" and token=..., or omit top_keys.'
            )
        return self._write(
            path,
            lambda state: self._embedding_page(
                with_controls(state, controls), precision, max_mb, top_keys, wait=True
            ),
            figure,
        )

    def snapshot(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
    ) -> None:
        """Display static outputs that need no kernel: a picture, and the page in a frame.

        A reader sees the page where frames and scripts are allowed, and the picture elsewhere.

        Parameters
        ----------
        precision, max_mb, top_keys : optional
            Options of the page. See `to_html`. The page is stored in the notebook.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the page would be too large, or an argument has an invalid type or value.

        Examples
        --------
        >>> view.snapshot(max_mb=6)    # doctest: +SKIP
        """
        controls = self._controls_in_a_frame()
        self._show_static(
            lambda: self.to_html(
                precision=precision, max_mb=max_mb, top_keys=top_keys, controls=controls
            )
        )

    def page_size(self, top_keys: int = 0) -> int:
        """Return the size of a page.

        Parameters
        ----------
        top_keys : int, default 0
            Number of keys per query, as in `save`.

        Returns
        -------
        int
            Bytes, without any limit. The page is built to count them.

        Examples
        --------
        >>> view.page_size(top_keys=5) - view.page_size()    # doctest: +SKIP
        """
        page = make_embedding_page(self._answers(), self.state, top_keys=top_keys, max_bytes=None)
        return len(page.encode())

    def selection(self) -> list[dict[str, Any]]:
        """Return the points in the lasso.

        Returns
        -------
        list of dict
            One dict per point, in ascending order, with its number ``point``, its ``kind``
            (``"query"`` or ``"key"``), the index of its record ``text``, its ``position`` in that
            text, and its ``token`` as the view shows it.

        Examples
        --------
        >>> pandas.DataFrame(view.selection()).token.value_counts()    # doctest: +SKIP
        """
        return [_described(self._corpus, self.stack, point) for point in self.selected]

    def trust(self) -> list[dict[str, Any]]:
        """Return the trust figures of all heads of the stack, for plots of principal components.

        Returns
        -------
        list of dict
            One dict per head, with ``layer`` and ``head``. ``before``, ``placed`` and ``plot`` are
            means over queries of the correlation between distance and product, over the keys that
            each query may attend to: for the vectors of the model, for the placed vectors, and for
            the plot. The best is -1. ``recall`` is the share of a query's ten strongest keys that
            are among its ten nearest, and ``recall_baseline`` its expected value for random
            positions. ``num_queries`` of ``num_total`` were measured. ``problem`` says why a head
            shows nothing. Figures that cannot be computed are None.

        Examples
        --------
        >>> pandas.DataFrame(view.trust()).plot.median()    # doctest: +SKIP
        """
        placing = Placing(cast("Scaling", self.scaling), self.translate, self.lift)
        # Always for principal components: t-SNE of each head would take hours.
        answers, stack = self._answers(), self._corpus.stack(self.stack)
        rows: list[dict[str, Any]] = []
        for layer in Bar(stack.layers, desc="trust", unit="layer", delay=1.0, leave=False):
            heads = list(range(stack.num_heads(layer)))
            options = PlotOptions(self.stack, layer, placing, "pca", self.dimensions)
            measured = run_steps(answers.trust(options, heads))
            problems = answers.problems(self.stack, layer, placing, self.dimensions)
            rows += [
                {"layer": layer, "head": head}
                | {name: None if trust is None else trust[name] for name in _TRUST_FIGURES}
                | {"problem": problem}
                for head, trust, problem in zip(heads, measured, problems, strict=True)
            ]
        return rows

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Set traits to values from the browser.

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

    def _server(self) -> Server:
        self._corpus_server = CorpusServer(self._corpus, page=weakly(self._page_of))
        return self._corpus_server

    def close(self) -> None:
        """Remove the view from the screen, and stop its t-SNE or UMAP if it runs."""
        # The attribute is missing if `__init__` raised an error for the corpus.
        if hasattr(self, "_corpus_server"):
            self._answers().running.close()
        super().close()

    def _still(self) -> str:
        figure = run_steps(layer_figure(self._answers(), self.state))
        return make_saved_still(self._corpus.model, self.name, figure)

    def _answers(self) -> EmbeddingAnswers:
        return self._corpus_server.answers

    def _page(self, state: Mapping[str, Any]) -> str:
        # The browser requested the page, and a reply must not take minutes.
        return self._embedding_page(state, "auto", None, 0, wait=False)

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        return embedding_page_steps(self._answers(), state, wait=False)

    def _whole_page(self, state: Mapping[str, Any]) -> str:
        return self._embedding_page(state, "auto", None, 0, wait=True)

    def _embedding_page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision,
        max_mb: float | None,
        top_keys: int,
        *,
        wait: bool,
    ) -> str:
        if precision != "auto":
            raise ValueError(
                f'precision={precision!r} must be "auto": pages of this view have one precision, '
                "16 bits per coordinate"
            )
        limit = check_options(precision, max_mb)
        return make_embedding_page(
            self._answers(),
            state,
            top_keys=top_keys,
            max_bytes=MAX_BYTES if limit is None else limit,
            wait=wait,
        )

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
        # If the reader chose the method, the view shows the missing package.
        if missing is not None and not self._by_reader:
            raise ImportError(f"method={method!r}: {missing}")
        return cast("str", method)

    @traitlets.validate("dimensions", "perplexity", "neighbors", "seed")
    def _validate_number(self, proposal: Mapping[str, Any]) -> int:
        name: str = proposal["trait"].name
        value: int = proposal["value"]
        minimum, maximum = {"dimensions": (2, 3), "seed": (0, _LARGEST_SEED)}.get(name, (2, None))
        if value < minimum or (maximum is not None and value > maximum):
            bounds = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
            raise traitlets.TraitError(f"{name}={value!r} must be {bounds}")
        return value

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        if proposal["value"] == "role" and not self.roles:
            raise traitlets.TraitError(
                'order="role" needs roles=, such as attnviz.head_statistics(model, texts)'
            )
        return str(proposal["value"])

    @traitlets.observe("roles")
    def _forget_role_order(self, change: Mapping[str, Any]) -> None:
        """Order plots by number if the roles were removed."""
        if self.order == "role" and not change["new"]:
            self.order = "number"

    @traitlets.validate("color")
    def _validate_color(self, proposal: Mapping[str, Any]) -> str:
        color: str = proposal["value"]
        valid = [*COLORINGS, *self._corpus.column_names]
        if color not in valid:
            raise traitlets.TraitError(
                f"color={color!r} must be one of {', '.join(map(repr, valid))}. Pass your own "
                "columns with columns=."
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
        """Unpin tokens that the new text does not have."""
        del change
        if self.stack:
            self._clip_tokens(self._stack_named(self.stack))

    @traitlets.observe("stack")
    def _forget_selected(self, change: Mapping[str, Any]) -> None:
        """Clear the selection, because points of one stack mean nothing in another."""
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


def _described(corpus: Corpus, stack: str, point: int) -> dict[str, Any]:
    """Describe a point, as in `EmbeddingView.selection`."""
    points = corpus.points(stack)
    is_query = point < points.num_queries
    number = point if is_query else point - points.num_queries
    texts = points.query_text if is_query else points.key_text
    positions = points.query_position if is_query else points.key_position
    text, position = int(texts[number]), int(positions[number])
    own = corpus.records[text].stack(stack)
    tokens = own.query_tokens if is_query else own.key_tokens
    kind = "query" if is_query else "key"
    described = {"point": point, "kind": kind, "text": text, "position": position}
    return described | {"token": tokens[position]}

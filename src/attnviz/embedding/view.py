"""The embedding view, which draws queries and keys of many texts as points.

A short distance between a query and a key means a large weight.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

import traitlets

from attnviz.corpus.columns import COLORINGS
from attnviz.corpus.corpus import Corpus
from attnviz.embedding.page import (
    MAX_BYTES,
    embedding_figure,
    finish_projection,
    make_embedding_page,
)
from attnviz.embedding.placement import Placing, Scaling
from attnviz.embedding.server.plots import EmbeddingAnswers, PlotOptions
from attnviz.embedding.server.server import CorpusServer
from attnviz.embedding.trust import HeadTrust
from attnviz.embedding.tsne_umap import NAMES
from attnviz.pages.figure import FigureArguments
from attnviz.pages.limits import check_options, check_top_keys
from attnviz.pages.saved_picture import make_saved_still
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.base import BaseServer
from attnviz.utils.progress import part_of, with_progress
from attnviz.views.lifetime import weakly
from attnviz.views.position import PositionedView, with_layers
from attnviz.views.trait_types import Choice, Index, Numbers, as_trait_errors, with_controls

if TYPE_CHECKING:
    from attnviz.pages.image import Drawing

# Tags of traits that the address of a page does not have.
_HIDDEN: dict[str, Any] = {"sync": True, "address": "never"}
_NO_FIGURES = dict.fromkeys(field.name for field in fields(HeadTrust) if field.name != "head")


class EmbeddingView(PositionedView):
    """Queries and keys of a corpus as points, with small plots of all heads or one enlarged head.

    This is the joint query-key embedding of AttentionViz (Yeh et al. 2023, arXiv 2305.03210). For
    each head, the queries and keys of all texts are scaled and moved, so that keys near a query
    have large weights, and are projected together. Each plot states how well its distances predict
    attention.

    Parameters
    ----------
    corpus : Corpus or sequence of AttentionRecord
        Corpus, or several records of one model, with queries and keys.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers. All by default.
    **traits
        Initial values of the traits below and of the traits that all views share: `stack`, `layer`,
        `heads`, `token`, `key` and `theme` (see `attnviz.views.position.PositionedView`). The first
        head in `heads` is the head that can be enlarged. The chosen point is the query `token` or
        the key `key` of the record `text`. If both are set, it is the query.

    Attributes
    ----------
    text : int or None
        Index of the corpus's record that contains `token` and `key`. None is the first record. The
        property `record` returns this record.
    enlarged : bool
        Whether one head is enlarged. If False, all heads are shown as small plots.
    method : {"pca", "tsne", "umap"}
        Projection of the enlarged head. Small plots always show principal components. t-SNE and
        UMAP need ``attnviz[embedding]``. They keep points with a similar direction close to each
        other (cosine distance) or, if `lift` is True, points at a small Euclidean distance. The
        method `trust` always uses Euclidean distances.
    dimensions : {2, 3}
        Number of dimensions of the enlarged plot.
    scaling : {"norms", "none"}
        Factor by which queries are divided and keys are multiplied. ``"norms"`` makes the median
        norms of queries and keys equal: it is ``sqrt(median|q| / median|k|)``. ``"none"`` is 1.
    translate : bool
        Whether keys are moved so that their mean is the mean of the queries.
    lift : bool
        Whether keys get an additional coordinate. With this coordinate, the order of the keys by
        their distance from a query is exactly the order by their products with the query.
    perplexity : int
        Perplexity of t-SNE, at least 2.
    neighbors : int
        Number of neighbours of a point in UMAP, including the point itself, at least 2.
    seed : int
        Seed of t-SNE and UMAP.
    color : str
        Property that determines the colours of points: ``"type"``, ``"position"``,
        ``"position mod 5"``, ``"norm"``, ``"frequency"``, ``"punctuation"``, ``"text"``, or the
        name of one of the corpus's columns.
    points : {"both", "queries", "keys"}
        Points that are drawn.
    search : str
        Text to find in tokens.
    selected : list of int
        Numbers of the points that are selected with the lasso, ascending. All queries are numbered
        before the keys. The method `selection` describes these points.

    Raises
    ------
    TypeError
        If `corpus` has another type, or a keyword is unknown.
    ValueError
        If the corpus is empty, its records come from several models, or they have no queries and
        keys.
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
    _bundle: ClassVar[str] = "embedding"

    text = Index(None, allow_none=True).tag(sync=True, min=0)
    enlarged = traitlets.Bool(default_value=False).tag(sync=True)
    method = Choice(["pca", "tsne", "umap"], "pca").tag(
        **_HIDDEN, group="projection", label="Method", labels=NAMES
    )
    dimensions = Index(2, min=2, max=3).tag(**_HIDDEN)
    scaling = Choice(["norms", "none"], "norms").tag(
        **_HIDDEN, group="placing", label="Scale", labels={"norms": "by norms", "none": "no"}
    )
    translate = traitlets.Bool(default_value=True).tag(
        **_HIDDEN, group="placing", label="move keys onto the queries"
    )
    lift = traitlets.Bool(default_value=False).tag(**_HIDDEN, group="placing", label="lift")
    perplexity = Index(50, min=2).tag(**_HIDDEN)
    neighbors = Index(15, min=2).tag(**_HIDDEN)
    seed = Index(0, min=0, max=2**32 - 1).tag(
        **_HIDDEN, group="projection", label="Seed", when=("method",)
    )
    color = traitlets.Unicode("type").tag(sync=True)
    points = Choice(["both", "queries", "keys"], "both").tag(
        sync=True, label="Points", labels={"both": "queries and keys"}, group="points"
    )
    search = traitlets.Unicode("").tag(sync=True)
    selected = Numbers(traitlets.Int()).tag(**_HIDDEN)

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
        # Set `text` before `token` and `key`, because these are looked up in the text.
        text = {"text": traits["text"]} if "text" in traits else {}
        super().__init__(**text | traits)

    @property
    def corpus(self) -> Corpus:
        """Corpus that is shown."""
        return self._corpus

    @property
    def record(self) -> AttentionRecord:
        """Record with the index `text`, or the first record if `text` is None."""
        text, records = self.text, self._corpus.records
        # Check the range of `text`: if several traits are set at once, it may not be validated yet.
        return records[text if text is not None and 0 <= text < len(records) else 0]

    def to_html(
        self,
        *,
        max_mb: float | None = None,
        top_keys: int = 0,
        controls: str | bool | None = None,
    ) -> str:
        """Return the view as one HTML page that works offline.

        For all heads, the page contains the first two principal components with the current
        placement, trust figures, and norms. For another projection, it contains the plot of the
        enlarged head. It draws attention lines only if `top_keys` is positive.

        Parameters
        ----------
        max_mb : float, optional
            Maximum size of the page in megabytes. The default is 40.
        top_keys : int, default 0
            Number of strongest keys per query in the page. When a reader chooses a query, the page
            draws a line to each of them.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Controls of the page. By default the controls of the view.

        Returns
        -------
        str
            The page, which contains its data, its code and the state of this view.

        Raises
        ------
        TypeError, ValueError
            If the page would be larger than `max_mb` (the message lists remedies), or an argument
            has an invalid type or value.
        RuntimeError
            If the projection of the enlarged head cannot be computed.

        Examples
        --------
        >>> page = view.to_html(top_keys=5)              # doctest: +SKIP
        """
        return self._page(with_controls(self.state, controls), max_mb, top_keys)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        max_mb: float | None = None,
        top_keys: int = 0,
        controls: str | bool | None = None,
        **figure: Unpack[FigureArguments],
    ) -> Path:
        """Write the view to a file. The suffix determines the format.

        Parameters
        ----------
        path : path-like
            ``"x.html"`` writes an interactive page, ``"x.pdf"`` and ``"x.svg"`` vector graphics for
            a paper, and ``"x.png"`` an image of pixels. The last three need an installed Chromium
            or Chrome.
        max_mb, top_keys : optional
            Options of the page. See `to_html`. They cannot be passed for pictures. A picture has
            the attention lines of the view: if one head is enlarged and a query is chosen
            (``enlarged=True``, ``token=...``), a line to each of its keys.
        controls : optional
            Controls of the page. See `to_html`. Pictures have no controls.
        **figure
            Style of a picture: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`. See `to_svg`.

        Returns
        -------
        Path
            Path of the file.

        Raises
        ------
        TypeError, ValueError
            If the suffix is unknown, the page would be larger than `max_mb`, or `max_mb` or
            `top_keys` is passed for a picture.
        OSError
            If the file cannot be written. In this case no incomplete file remains.
        RuntimeError
            If the projection of the enlarged head cannot be computed, or a picture needs a browser
            and none is found.

        Examples
        --------
        >>> view.save("embedding.html", top_keys=5)     # doctest: +SKIP
        """
        check_top_keys(top_keys)
        return self._write(path, figure, controls, max_mb=max_mb, top_keys=top_keys)

    def snapshot(
        self,
        *,
        max_mb: float | None = None,
        top_keys: int = 0,
    ) -> None:
        """Display a copy of the view that needs no kernel, as the output of the notebook's cell.

        The output contains an interactive page in a frame, and a picture. Programs that allow
        frames and scripts show the page. Other programs show the picture.

        Parameters
        ----------
        max_mb, top_keys : optional
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
        self._show_static(max_mb=max_mb, top_keys=top_keys)

    def selection(self) -> list[dict[str, Any]]:
        """Return the points that are selected with the lasso.

        Returns
        -------
        list of dict
            One dict per point, in the order of their numbers. ``point`` is the number, ``kind`` is
            ``"query"`` or ``"key"``, ``text`` is the index of the record, ``position`` is the
            position in this text, and ``token`` is the token as the view shows it.

        Examples
        --------
        >>> pandas.DataFrame(view.selection()).token.value_counts()    # doctest: +SKIP
        """
        return [_described(self._corpus, self.stack, point) for point in self.selected]

    @with_progress
    def trust(self) -> list[dict[str, Any]]:
        """Return trust figures of all heads of the stack: how well distances predict attention.

        The figures are about the plots of principal components, for any `method`.

        Returns
        -------
        list of dict
            One dict per head, with these entries. Figures that cannot be computed are None.

            - ``layer``, ``head``: numbers of the layer and the head.
            - ``plot``: correlation between the distance of a query and a key on the plot and their
              product, averaged over queries. The best value is -1. Only keys that the query may
              attend to are used.
            - ``recall``: share of a query's ten strongest keys that are among its ten nearest keys
              on the plot, averaged over queries.
            - ``recall_baseline``: expected recall for random positions.
            - ``num_queries``, ``num_total``: number of measured queries, and of all queries.
            - ``problem``: reason why the plot of the head shows nothing, or None.

        Examples
        --------
        >>> pandas.DataFrame(view.trust()).plot.median()    # doctest: +SKIP
        """
        placing = Placing(cast("Scaling", self.scaling), self.translate, self.lift)
        # Measure plots of principal components, because t-SNE of every head would take hours.
        answers, stack = self._answers(), self._corpus.stack(self.stack)
        rows: list[dict[str, Any]] = []
        for number, layer in enumerate(stack.layers):
            options = PlotOptions(self.stack, layer, placing, "pca", self.dimensions)
            with part_of("layers", number, len(stack.layers)):
                measured = answers.trust(options)
                plots = answers.plots(options)
            rows += [
                {"layer": layer, "head": head} | (trust or _NO_FIGURES) | {"problem": plot.problem}
                for head, (trust, plot) in enumerate(zip(measured, plots, strict=True))
            ]
        return rows

    def _server(self) -> BaseServer:
        return CorpusServer(self._corpus, page=weakly(self._page_of))

    def _still(self) -> str:
        heads = self.heads[:1] if self.enlarged else None
        figure = embedding_figure(self._answers(), self.state, [self.layer], heads or None)
        return make_saved_still(self._corpus.model, self.name, figure)

    def _answers(self) -> EmbeddingAnswers:
        return cast("CorpusServer", self._served).answers

    def _page_for_browser(self, state: Mapping[str, Any]) -> str:
        # Finishing a projection can take minutes. The page may have intermediate results instead.
        return self._page(state, wait=False)

    def _page(
        self,
        state: Mapping[str, Any],
        max_mb: float | None = None,
        top_keys: int = 0,
        *,
        wait: bool = True,
    ) -> str:
        limit = check_options("auto", max_mb) or MAX_BYTES
        return make_embedding_page(
            self._answers(), state, top_keys=top_keys, max_bytes=limit, wait=wait
        )

    def _drawing(self, state: Mapping[str, Any]) -> Drawing:
        finish_projection(self._answers(), state)
        return super()._drawing(state)

    @traitlets.validate("text")
    def _validate_text(self, proposal: Mapping[str, Any]) -> int | None:
        text: int | None = proposal["value"]
        count = len(self._corpus.records)
        if text is not None and not 0 <= text < count:
            raise traitlets.TraitError(f"text={text!r}: the corpus has texts 0 to {count - 1}")
        return text

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
        """Set `token` and `key` to None if these positions do not exist in the new text."""
        del change
        if self.stack:
            self._refit()

    @traitlets.observe("stack")
    def _forget_selected(self, change: Mapping[str, Any]) -> None:
        """Clear the selection, because the new stack has other points."""
        if change["old"] and change["old"] != change["new"]:
            self.selected = []

    def _siblings(self) -> list[list[str]]:
        # A corpus leaves out linear layers, so its stacks have no siblings.
        return []

    def _stack_named(self, name: str) -> AttentionStack:
        with as_trait_errors():
            self._corpus.stack(name)
        return self.record.stack(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._corpus!r}>"


def _described(corpus: Corpus, stack: str, point: int) -> dict[str, Any]:
    """Return the entry of `EmbeddingView.selection` for one point."""
    points = corpus.points(stack)
    text, position = points.location(point)
    own = corpus.records[text].stack(stack)
    is_query = point < points.num_queries
    kind, tokens = ("query", own.query_tokens) if is_query else ("key", own.key_tokens)
    described = {"point": point, "kind": kind, "text": text, "position": position}
    return described | {"token": tokens[position]}

"""The embedding view: queries and keys of many texts as points, so that near means attending."""

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
# Figures of `HeadTrust` that a table shows.
_TRUST_FIGURES = ("before", "placed", "plot", "recall", "chance", "queries", "num_total")


class EmbeddingView(HeadRoles):
    """Queries and keys of a corpus as points: all heads as small plots, or one head enlarged.

    The joint query-key embedding of AttentionViz (Yeh et al. 2023, arXiv 2305.03210): per head,
    queries and keys of all texts are scaled and moved so that a query's weight falls with the
    distance of the key, and projected together. On every plot stands how far to trust it.

    Parameters
    ----------
    corpus : Corpus or sequence of AttentionRecord
        Several records of one model, with queries and keys.
    include_layers : int or iterable of int, optional
        The layers to offer.
    **traits
        Initial values of the traits below, and of those that all views share: `stack`, `layer`,
        `heads`, `token`, `key` and `theme` (see `attnviz.views.position.PositionedView`). The first
        of `heads` is the head that is enlarged. `token` and `key` are a query and a key of `text`:
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
    scaling : {"norms", "none"}
        What queries are divided by and keys multiplied by: the root of the ratio of their median
        norms, or 1.
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
    order : {"number", "correlation", "recall", "role"}
        How small plots are ordered: by their heads' numbers, by how far to trust them, or by the
        `roles` of their heads.
    roles : dict
        Roles of heads; see `attnviz.views.head_roles.HeadRoles`.
    points : {"both", "queries", "keys"}
        Which points are drawn.
    search : str
        Tokens to find.
    match_case : bool
        Whether the search distinguishes capitals from small letters.
    selected : list of int
        Numbers of the points in the lasso, ascending; see `selection`.
    leave_out, renormalize
        Of the chosen text's own picture; as in `attnviz.HeadView`.

    Raises
    ------
    TypeError
        If `corpus` is neither, or a keyword is unknown.
    ValueError
        If there are no records, or they are not of one model, or have no queries and keys.
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
    shown = Choice(["plot", "aggregate"], "plot").tag(sync=True)
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
        # First, because tokens are looked up in that text.
        text = {"text": traits["text"]} if "text" in traits else {}
        super().__init__(**text | traits)

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

    def to_html(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
        controls: str | bool | None = None,
    ) -> str:
        """The view as one HTML page that works offline.

        The page contains the principal components of all heads in two dimensions, placed as this
        view places them, with their trust, norms and means by position; of other methods those
        plots that are finished. Without `top_keys` it draws no attention lines.

        Parameters
        ----------
        precision : {"auto"}
            There is one: coordinates in 16 bits.
        max_mb : float, optional
            Megabytes that the page may have; 40 when left out.
        top_keys : int, default 0
            How many keys are embedded for each query, the strongest, for its lines, which a page
            draws where a reader chooses a query; `page_size` says what that takes.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Of the page; the view's own when left out.

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere.

        Raises
        ------
        TypeError, ValueError
            If the page would be larger than it may be, with ways out, or an argument has
            another value.
        ImportError, RuntimeError
            If the enlarged head's plot is by a method that cannot run here.

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
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.pdf"``, ``"x.svg"``: vectors for a paper;
            ``"x.png"``: pixels. Pictures are drawn by an installed Chromium or Chrome.
        precision, max_mb, top_keys : optional
            Of the page, also where it is drawn as a picture; see `to_html`. A picture has lines
            where one head is enlarged and a query of it chosen: ``enlarged=True``, ``token=...``.
        controls : optional
            Of the page; see `to_html`. Pictures have none.
        **figure
            How a picture looks: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`; see `to_svg`.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        TypeError, ValueError
            If the ending is none of these, or the page would be larger than it may be; if a picture
            has no lines that `top_keys` could be of.
        OSError
            If the file cannot be written; nothing is left half written.
        ImportError, RuntimeError
            If the enlarged head's plot is by a method that cannot run here, or a picture
            is asked for and no browser is found.

        Examples
        --------
        >>> view.save("embedding.html", top_keys=5)     # doctest: +SKIP
        """
        lines = self.enlarged and self.shown == "plot" and self.token is not None
        if check_top_keys(top_keys) and check_file_kind(path) != "html" and not lines:
            raise ValueError(
                f"top_keys={top_keys}: this picture has no lines; choose a query with "
                'enlarged=True, shown="plot" and token=..., or leave top_keys out'
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
        """Show static outputs that survive without a kernel: a picture, or the page in a frame.

        A reader sees the page where frames and scripts are allowed, and elsewhere the picture.

        Parameters
        ----------
        precision, max_mb, top_keys : optional
            Of the page; see `to_html`. A notebook is as large as the pages in it.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the page would be larger than it may be, or an argument has another value.

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
        """How large a page would be.

        Parameters
        ----------
        top_keys : int, default 0
            How many keys it contains for each query, as in `save`.

        Returns
        -------
        int
            Bytes, whatever the limit; the page is made to count them.

        Examples
        --------
        >>> view.page_size(top_keys=5) - view.page_size()    # doctest: +SKIP
        """
        page = make_embedding_page(self._answers(), self.state, top_keys=top_keys, max_bytes=None)
        return len(page.encode())

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
        return [_described(self._corpus, self.stack, point) for point in self.selected]

    def trust(self) -> list[dict[str, Any]]:
        """How far the plots of principal components can be trusted, for all heads of the stack.

        Returns
        -------
        list of dict
            One a head: ``layer``, ``head``; means over queries of the correlation of distance with
            product, -1 at best, over the keys that each query may attend to: ``before``, of the
            vectors as they are, ``placed``, as they were placed, and ``plot``, on the plot;
            ``recall``, the share of a query's ten strongest keys that are among its ten nearest,
            and ``chance``, what chance would give; ``queries`` measured, of ``num_total``;
            ``problem``, why a head shows nothing. None where a figure cannot be computed.

        Examples
        --------
        >>> pandas.DataFrame(view.trust()).plot.median()    # doctest: +SKIP
        """
        placing = Placing(cast("Scaling", self.scaling), self.translate, self.lift)
        # Of the principal components: a t-SNE of each head would take hours.
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

    def _server(self) -> Server:
        self._corpus_server = CorpusServer(self._corpus, page=weakly(self._page_of))
        return self._corpus_server

    def close(self) -> None:
        """Take the view from the screen, and end a t-SNE or UMAP that runs for it."""
        # Also called of a view whose corpus was refused, which never came so far.
        if hasattr(self, "_corpus_server"):
            self._answers().running.close()
        super().close()

    def _still(self) -> str:
        figure = run_steps(layer_figure(self._answers(), self.state))
        return make_saved_still(self._corpus.model, self.name, figure)

    def _answers(self) -> EmbeddingAnswers:
        return self._corpus_server.answers

    def _page(self, state: Mapping[str, Any]) -> str:
        # The browser asked, and a reply may not take minutes.
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
                "16 bits a coordinate"
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

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        if proposal["value"] == "role" and not self.roles:
            raise traitlets.TraitError(
                'order="role": give roles=, such as attnviz.head_statistics(model, texts)'
            )
        return str(proposal["value"])

    @traitlets.observe("roles")
    def _forget_role_order(self, change: Mapping[str, Any]) -> None:
        """Without roles plots are not ordered by them."""
        if self.order == "role" and not change["new"]:
            self.order = "number"

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
        """Unpin tokens that the new text does not have."""
        del change
        if self.stack:
            self._clip_tokens(self._stack_named(self.stack))

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


def _described(corpus: Corpus, stack: str, point: int) -> dict[str, Any]:
    """What a point is, as `EmbeddingView.selection` has it."""
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

"""The atlas view: roles and statistics of all heads of a model over a corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import traitlets

from attnviz.atlas.page import MAX_BYTES, atlas_figure, atlas_page_steps, make_atlas_page
from attnviz.atlas.server import AtlasServer
from attnviz.corpus.roles import SINK_ROLES
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.pages.figure import FigureArguments
from attnviz.pages.limits import check_options
from attnviz.pages.saved_picture import make_saved_still
from attnviz.server.kernel import Server
from attnviz.utils.arguments import short_repr
from attnviz.utils.filenames import file_stem
from attnviz.utils.progress import Steps
from attnviz.views.lifetime import weakly
from attnviz.views.position import HeadsView
from attnviz.views.trait_types import Choice, Index, Numbers, with_controls

__all__ = ["AtlasView"]

# Estimated height in pixels: everything but the grid, a row of the grid, and the maximum.
_HEIGHT_OF_REST, _ROW_HEIGHT, _MAX_HEIGHT = 560, 24, 1_600


class AtlasView(HeadsView):
    """View of all heads of a model over a corpus: a grid of roles, with the evidence for each head.

    The grid is coloured by role or by a statistic. The selected head shows its roles with their
    evidence, its statistics with their baselines, its mean weight by offset, and its strongest and
    sampled edges in their texts. Edges can be searched by their query and key tokens.

    Parameters
    ----------
    statistics : HeadStatistics
        Result of `attnviz.head_statistics` or `HeadStatistics.load`.
    **traits
        Initial values of the traits below.

    Attributes
    ----------
    stack : str
        Name of the stack that is shown.
    layer : int
        The model's number of the layer of the selected head. Negative numbers count from the end.
    heads : list of int
        Selected heads of that layer. The first is the head whose evidence is shown. `layer` and
        `heads` can be linked to those of other views.
    color : str
        Colouring of the grid: ``"role"`` or the name of a statistic.
    order : str
        Order of the heads. ``"number"`` has a row for each layer. ``"role"`` and the name of a
        statistic make one list of the heads of all layers, the largest first.
    edges : {"sampled", "strongest"}
        Kind of edges in the list: a uniform sample, which represents all of the head's attention,
        or those with the largest weights, which do not.
    offsets : list of int or None
        ``[from, to]`` lists only edges with an offset, key position minus query position, in this
        range. -1 is the token before the query. None lists all.
    query_search, key_search : str
        Lists only edges whose query or key token matches: a part of the token, or ``class:value``
        such as ``"kind:punctuation"`` or, with a column "pos", ``"pos:VERB"``.
    text : int or None
        Number of the open text, which shows the tokens near its edges.
    edge : list of int or None
        ``[query, key]``, the positions of the open edge in `text`.
    theme : {"auto", "light", "dark"}
        Colour theme. ``"auto"`` follows the notebook or the page.
    controls : {"auto", "full", "compact", "none"}
        Visible controls; see `attnviz.views.base.View`.

    Raises
    ------
    TypeError
        If `statistics` is not a `HeadStatistics`, or a keyword is unknown.
    ValueError
        If `statistics` has no texts yet.
    traitlets.TraitError
        If a trait's value does not fit the statistics.

    Examples
    --------
    >>> import attnviz as av
    >>> statistics = av.head_statistics(model, texts)                        # doctest: +SKIP
    >>> view = av.AtlasView(statistics, color="entropy", layer=1, heads=2)   # doctest: +SKIP
    >>> view.save("atlas.html")                                              # doctest: +SKIP
    """

    name: ClassVar[str] = "atlas"
    offers_layers: ClassVar[bool] = False

    color = traitlets.Unicode("role").tag(sync=True)
    order = traitlets.Unicode("number").tag(sync=True)
    edges = Choice(["sampled", "strongest"], "sampled").tag(sync=True)
    offsets = Numbers(traitlets.Int(), None, allow_none=True).tag(sync=True)
    query_search = traitlets.Unicode("").tag(sync=True)
    key_search = traitlets.Unicode("").tag(sync=True)
    text = Index(None, allow_none=True).tag(sync=True)
    edge = Numbers(traitlets.Int(), None, allow_none=True).tag(sync=True)

    def __init__(self, statistics: HeadStatistics, **traits: Any) -> None:
        self.check_names(traits)
        if not isinstance(statistics, HeadStatistics):
            raise TypeError(
                f"statistics must be a HeadStatistics, not {type(statistics).__name__}. Use "
                "attnviz.head_statistics(model, texts) or HeadStatistics.load(path)."
            )
        if not statistics.stack_names:
            raise ValueError("statistics has no texts yet. Add one with statistics.add(record).")
        self._statistics = statistics
        super().__init__(**self._opening(traits) | traits)

    def _opening(self, traits: Mapping[str, Any]) -> dict[str, Any]:
        """Select the head whose role most exceeds its baseline, unless a head is given."""
        name = traits.get("stack", self._first_stack())
        if {"layer", "heads"} & set(traits) or name not in self._statistics.stack_names:
            return {}
        stack = self._statistics.stack(name)
        roles = stack.roles()
        named = [
            (roles.of(layer, head)[0], layer, head)
            for layer, names in zip(stack.layers, roles.names, strict=True)
            for head, role in enumerate(names)
            if role is not None
        ]
        if not named:
            return {}
        _, layer, head = max(
            named,
            key=lambda candidate: (candidate[0].name not in SINK_ROLES, candidate[0].difference),
        )
        return {"layer": layer, "heads": [head]}

    @property
    def statistics(self) -> HeadStatistics:
        """Statistics that the view shows."""
        return self._statistics

    @property
    def file_name(self) -> str:
        """Default file name without extension: the names of the model and the view."""
        return "-".join(filter(None, [file_stem(self._statistics.model), "atlas-view"]))

    def to_html(self, *, max_mb: float | None = None, controls: str | bool | None = None) -> str:
        """Return the view as one HTML page that works offline.

        The page contains the statistics, roles and offsets of all heads, and as many edges of each
        head, with the tokens near them, as fit. Its caption gives their number.

        Parameters
        ----------
        max_mb : float, optional
            Maximum size of the page in megabytes. By default 5.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Visible controls of the page. By default those of the view.

        Returns
        -------
        str
            The page with its data, its code and the state of this view. It loads nothing else.

        Raises
        ------
        TypeError, ValueError
            If not even a page without edges fits, or if an argument is invalid.

        Examples
        --------
        >>> page = view.to_html(max_mb=2)              # doctest: +SKIP
        """
        return self._atlas_page(with_controls(self.state, controls), max_mb)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        max_mb: float | None = None,
        controls: str | bool | None = None,
        **figure: Unpack[FigureArguments],
    ) -> Path:
        """Save the view as a page or a picture, depending on the file extension.

        Parameters
        ----------
        path : path-like
            ``"x.html"`` is the interactive page, ``"x.pdf"`` and ``"x.svg"`` are vector graphics,
            and ``"x.png"`` is a bitmap. An installed Chromium or Chrome draws pictures.
        max_mb, controls : optional
            Options of the page; see `to_html`. Pictures have no controls.
        **figure
            Options of a picture: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`; see `to_svg`.

        Returns
        -------
        Path
            Path of the file.

        Raises
        ------
        TypeError, ValueError
            If the extension is none of these, or not even a page without edges fits.
        OSError
            If the file cannot be written. No incomplete file remains.
        ImportError, RuntimeError
            If `path` is a picture and no browser is found.

        Examples
        --------
        >>> view.save("atlas.html")     # doctest: +SKIP
        """
        return self._write(
            path, lambda state: self._atlas_page(with_controls(state, controls), max_mb), figure
        )

    def snapshot(self, *, max_mb: float | None = None) -> None:
        """Display static outputs that need no kernel: a picture, and the page in a frame.

        Parameters
        ----------
        max_mb : float, optional
            Maximum size of the page in megabytes; see `to_html`. The notebook contains the page.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If not even a page without edges fits, or if an argument is invalid.

        Examples
        --------
        >>> view.snapshot(max_mb=2)    # doctest: +SKIP
        """
        controls = self._controls_in_a_frame()
        self._show_static(lambda: self.to_html(max_mb=max_mb, controls=controls))

    def page_size(self) -> int:
        """Return the size of a page with all edges.

        Returns
        -------
        int
            Size in bytes, ignoring any limit. The page is created to measure it.

        Examples
        --------
        >>> view.page_size()    # doctest: +SKIP
        """
        return len(make_atlas_page(self._statistics, self.state, max_bytes=None).encode())

    def _still(self) -> str:
        figure = atlas_figure(self._statistics, self.stack)
        return make_saved_still(self._statistics.model, self.name, figure)

    def _server(self) -> Server:
        return AtlasServer(self._statistics, page=weakly(self._page_of))

    def _page(self, state: Mapping[str, Any]) -> str:
        return self._atlas_page(state, None)

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        return atlas_page_steps(self._statistics, state)

    def _atlas_page(self, state: Mapping[str, Any], max_mb: float | None) -> str:
        limit = check_options("auto", max_mb)
        return make_atlas_page(
            self._statistics, state, max_bytes=MAX_BYTES if limit is None else limit
        )

    def _estimated_height(self) -> int:
        rows = max(
            len(self._statistics.stack(name).layers) for name in self._statistics.stack_names
        )
        return min(_HEIGHT_OF_REST + _ROW_HEIGHT * rows, _MAX_HEIGHT)

    def _first_stack(self) -> str:
        return self._statistics.stack_names[0]

    def _stack_named(self, name: str) -> StackStatistics:
        names = self._statistics.stack_names
        if name not in names:
            raise traitlets.TraitError(
                f"stack={short_repr(name)}: the statistics have the stacks "
                f"{', '.join(map(repr, names))}"
            )
        return self._statistics.stack(name)

    @traitlets.validate("color", "order")
    def _validate_statistic(self, proposal: Mapping[str, Any]) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        # A statistic of any stack is valid: `stack` may be set in the same step.
        valid = ["number"] if name == "order" else []
        valid.append("role")
        for stack in self._statistics.stack_names:
            for score in self._statistics.stack(stack).score_names:
                if score not in valid:
                    valid.append(score)
        if value not in valid:
            raise traitlets.TraitError(
                f"{name}={short_repr(value)} must be one of {', '.join(map(repr, valid))}"
            )
        return str(value)

    @traitlets.validate("offsets", "edge")
    def _validate_pair(self, proposal: Mapping[str, Any]) -> list[int] | None:
        name, value = proposal["trait"].name, proposal["value"]
        if value is None:
            return None
        pair = list(value)
        if name == "offsets":
            if len(pair) != 2 or pair[0] > pair[1]:
                raise traitlets.TraitError(
                    f"offsets={short_repr(value)} must be [from, to], key position minus query "
                    "position, such as [-3, -1] for keys up to three tokens before their query. "
                    "Pass None for all."
                )
        elif len(pair) != 2 or min(pair) < 0:
            raise traitlets.TraitError(
                f"edge={short_repr(value)} must be [query, key], positions in the text, or None"
            )
        return pair

    @traitlets.validate("text")
    def _validate_text(self, proposal: Mapping[str, Any]) -> int | None:
        text: int | None = proposal["value"]
        if text is not None and text < 0:
            raise traitlets.TraitError(f"text={text!r} must be at least 0, the number of a text")
        return text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._statistics!r}>"

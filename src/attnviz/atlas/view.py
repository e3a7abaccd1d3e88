"""The class `AtlasView`: roles and statistics of all heads of a model over a corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import traitlets

from attnviz.atlas.answers import sibling_stacks
from attnviz.atlas.page import MAX_BYTES, atlas_figure, make_atlas_page
from attnviz.atlas.server import AtlasServer
from attnviz.corpus.roles import is_sink
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.pages.figure import FigureArguments
from attnviz.pages.limits import check_options
from attnviz.pages.saved_picture import make_saved_still
from attnviz.server.base import BaseServer
from attnviz.utils.arguments import short_repr
from attnviz.utils.filenames import file_stem
from attnviz.views.lifetime import weakly
from attnviz.views.position import HeadsView
from attnviz.views.trait_types import Choice, as_trait_errors, with_controls

# Heights in pixels to estimate the height of the view: of everything except the grid, of one row of
# the grid, and the maximum of the whole view.
_HEIGHT_OF_REST, _ROW_HEIGHT, _MAX_HEIGHT = 560, 24, 1_600


class AtlasView(HeadsView):
    """View of all heads of a model over a corpus: a grid of roles, with the evidence for each head.

    The grid of a hybrid model has the layers of all kinds in the order of the model. A mark of two
    colours and the word "linear" distinguish linear layers, whose weights are shares of the
    absolute weights of a query. A statistic colours and orders only the layers of one kind.

    The grid is coloured by role or by a statistic. For a selected head, the view shows the roles
    with their evidence, the statistics with their baselines, and the mean weight by offset
    (position of the key minus position of the query). It also lists the strongest edges (query-key
    pairs) and sampled edges of the head in their texts.

    Parameters
    ----------
    statistics : HeadStatistics
        Result of `attnviz.head_statistics` or `HeadStatistics.load`.
    **traits
        Initial values of the attributes below.

    Attributes
    ----------
    stack : str
        Name of the stack that is shown.
    layer : int
        Number of the layer of the selected heads. Negative numbers count from the end.
    heads : list of int
        Selected heads of this layer. The view shows the evidence for the first of them. `layer` and
        `heads` can be linked to those of other views.
    color : str
        Colouring of the grid: ``"role"`` or the name of a statistic.
    order : str
        Order of the heads. With ``"number"``, the grid has one row per layer. With ``"role"`` or
        the name of a statistic, the heads of all layers are sorted in descending order.
    edges : {"sampled", "strongest"}
        Kind of edges in the list. ``"sampled"`` is a random sample that represents all attention of
        the head. ``"strongest"`` are the edges with the largest weights, which are not
        representative.
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
        If the value of an attribute is invalid, for example a layer that does not exist.

    Examples
    --------
    >>> import attnviz as av
    >>> statistics = av.head_statistics(model, texts)                        # doctest: +SKIP
    >>> view = av.AtlasView(statistics, color="entropy", layer=1, heads=2)   # doctest: +SKIP
    >>> view.save("atlas.html")                                              # doctest: +SKIP
    """

    name: ClassVar[str] = "atlas"
    _bundle: ClassVar[str] = "atlas"
    offers_layers: ClassVar[bool] = False

    color = traitlets.Unicode("role").tag(sync=True)
    order = traitlets.Unicode("number").tag(sync=True)
    edges = Choice(["sampled", "strongest"], "sampled").tag(sync=True)

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
        """Return the layer and the head that are selected at first.

        This is the head whose score exceeds the baseline of its main role most. Heads with the role
        of a sink are selected only if no head has another role. Return an empty dict if the user
        passed `layer` or `heads`, or if no head has a role.
        """
        name = traits.get("stack", self._first_stack())
        if {"layer", "heads"} & set(traits) or name not in self._statistics.stack_names:
            return {}
        named = self._statistics.stack(name).roles().main_roles()
        if not named:
            return {}
        layer, head, _ = max(named, key=lambda row: (not is_sink(row[2].name), row[2].difference))
        return {"layer": layer, "heads": [head]}

    @property
    def statistics(self) -> HeadStatistics:
        """Statistics that the view shows."""
        return self._statistics

    @property
    def file_name(self) -> str:
        """Default file name without extension, from the name of the model: "gpt2-atlas-view"."""
        return "-".join(filter(None, [file_stem(self._statistics.model), "atlas-view"]))

    def to_html(self, *, max_mb: float | None = None, controls: str | bool | None = None) -> str:
        """Return the view as one HTML page that works offline.

        The page contains the statistics, roles and mean weights of all heads. It also contains as
        many edges of each head as `max_mb` allows, with the tokens near them. Its caption states
        the number of edges.

        Parameters
        ----------
        max_mb : float, optional
            Maximum size of the page in megabytes, 5 by default.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Visible controls of the page. By default the same as in the view.

        Returns
        -------
        str
            HTML with the data, the code and the state of this view. The page loads no other files.

        Raises
        ------
        TypeError, ValueError
            If a page without edges is larger than `max_mb`, or if an argument is invalid.

        Examples
        --------
        >>> page = view.to_html(max_mb=2)              # doctest: +SKIP
        """
        return self._page(with_controls(self.state, controls), max_mb)

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
            File to write. The extension ``.html`` saves the interactive page, ``.pdf`` and ``.svg``
            save vector graphics, and ``.png`` a bitmap. Pictures need an installed Chromium or
            Chrome.
        max_mb, controls : optional
            Options of the page; see `to_html`. Pictures have no controls, and `max_mb` cannot be
            passed for them.
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
            If the file has another extension, a page without edges is larger than `max_mb`, or
            `max_mb` is passed for a picture.
        OSError
            If the file cannot be written. No incomplete file is left.
        ImportError, RuntimeError
            If `path` is a picture and no browser is found.

        Examples
        --------
        >>> view.save("atlas.html")     # doctest: +SKIP
        """
        return self._write(path, figure, controls, max_mb=max_mb)

    def snapshot(self, *, max_mb: float | None = None) -> None:
        """Display the view as static output, which does not need a kernel: a picture and the page.

        Parameters
        ----------
        max_mb : float, optional
            Maximum size of the page in megabytes; see `to_html`. The page is saved in the notebook.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If a page without edges is larger than `max_mb`, or if an argument is invalid.

        Examples
        --------
        >>> view.snapshot(max_mb=2)    # doctest: +SKIP
        """
        self._show_static(max_mb=max_mb)

    def page_size(self) -> int:
        """Return the size of the page with all edges.

        Returns
        -------
        int
            Size in bytes. The complete page is made to measure it.

        Examples
        --------
        >>> view.page_size()    # doctest: +SKIP
        """
        return len(make_atlas_page(self._statistics, self.state, max_bytes=None).encode())

    def _still(self) -> str:
        figure = atlas_figure(self._statistics, self.stack)
        return make_saved_still(self._statistics.model, self.name, figure)

    def _server(self) -> BaseServer:
        return AtlasServer(self._statistics, page=weakly(self._page_of))

    def _page(self, state: Mapping[str, Any], max_mb: float | None = None) -> str:
        limit = check_options("auto", max_mb) or MAX_BYTES
        return make_atlas_page(self._statistics, state, max_bytes=limit)

    def _estimated_height(self) -> int:
        stacks = list(map(self._statistics.stack, self._statistics.stack_names))
        counts = [len(stack.layers) for stack in stacks]
        # The layers of a hybrid model are in one grid.
        rows = sum(counts) if any(stack.linear for stack in stacks) else max(counts)
        return min(_HEIGHT_OF_REST + _ROW_HEIGHT * rows, _MAX_HEIGHT)

    def _siblings(self) -> list[list[str]]:
        return [[stack["name"] for stack in group] for group in sibling_stacks(self._statistics)]

    def _first_stack(self) -> str:
        return self._statistics.stack_names[0]

    def _stack_named(self, name: str) -> StackStatistics:
        with as_trait_errors():
            return self._statistics.stack(name)

    @traitlets.validate("color", "order")
    def _validate_statistic(self, proposal: Mapping[str, Any]) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        # The statistics of all stacks are valid, because `stack` may change in the same update.
        stacks = map(self._statistics.stack, self._statistics.stack_names)
        scores = dict.fromkeys(score for stack in stacks for score in stack.score_names)
        valid = [*(["number"] if name == "order" else []), "role", *scores]
        if value not in valid:
            raise traitlets.TraitError(
                f"{name}={short_repr(value)} must be one of {', '.join(map(repr, valid))}"
            )
        return str(value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._statistics!r}>"

"""The atlas of heads: what every head of a model does over a corpus, and how sure that is."""

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
from attnviz.pages.saved_picture import saved_still
from attnviz.server.kernel import Server
from attnviz.utils.arguments import short_repr
from attnviz.utils.filenames import file_stem
from attnviz.utils.progress import Steps
from attnviz.views.lifetime import weakly
from attnviz.views.position import HeadsView
from attnviz.views.trait_types import Choice, Index, Numbers, with_controls

__all__ = ["AtlasView"]

# In a usual column, in pixels: what stands around the grid of heads, and a row of it.
_AROUND, _ROW, _HIGHEST = 560, 24, 1_600


class AtlasView(HeadsView):
    """All heads of a model over a corpus: a grid of roles, and for each head the evidence.

    The grid is coloured by role or by any statistic. A chosen head shows its roles with their
    evidence, its statistics beside their baselines, its mean weight by offset, and its strongest
    and its sampled edges in their texts, which can be searched by the tokens at both ends.

    Parameters
    ----------
    statistics : HeadStatistics
        What `attnviz.head_statistics` gives, or `HeadStatistics.load`.
    **traits
        Initial values of the traits below.

    Attributes
    ----------
    stack : str
        Name of the stack that is shown.
    layer : int
        The model's number of the layer whose head is looked at. May be set from the end.
    heads : list of int
        Heads of that layer; the first is the one that is looked at. `layer` and `heads` link to
        those of other views.
    color : str
        What colours the grid: ``"role"``, or the name of a statistic.
    order : str
        How heads are ordered: by ``"number"``, a row a layer; or those of all layers in one list,
        by ``"role"`` or by a statistic, the largest first.
    edges : {"sampled", "strongest"}
        Which edges are listed: a uniform sample, which stands for all of the head's attention, or
        those with the largest weights, which do not.
    offsets : list of int or None
        ``[from, to]``: only edges whose key lies so many tokens from the query are listed; -1 is
        the token before. None lists all.
    query_search, key_search : str
        Only edges whose query, or key, is such a token: a part of the token's text, or
        ``class:value`` such as ``"kind:punctuation"`` or, of a column, ``"pos:VERB"``.
    text : int or None
        The number of the text that is open, with the tokens around its edges.
    edge : list of int or None
        ``[query, key]``: the positions of the edge that is open in `text`.
    theme : {"auto", "light", "dark"}
        ``"auto"`` follows the notebook or the page.
    controls : {"auto", "full", "compact", "none"}
        Which controls are in sight; see `attnviz.views.base.View`.

    Raises
    ------
    TypeError
        If `statistics` is no `HeadStatistics`, or a keyword is unknown.
    ValueError
        If no text was folded into `statistics` yet.
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
                "statistics must be HeadStatistics, of attnviz.head_statistics(model, texts) or "
                f"HeadStatistics.load(path); got {type(statistics).__name__}"
            )
        if not statistics.stack_names:
            raise ValueError("statistics are of no text yet: fold one, statistics.fold(record)")
        self._statistics = statistics
        super().__init__(**self._opening(traits) | traits)

    def _opening(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The head to open at where none is named: the one that is most sure of its role."""
        name = given.get("stack", self._first_stack())
        if {"layer", "heads"} & set(given) or name not in self._statistics.stack_names:
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
            named, key=lambda each: (each[0].name not in SINK_ROLES, each[0].difference)
        )
        return {"layer": layer, "heads": [head]}

    @property
    def statistics(self) -> HeadStatistics:
        """What is shown."""
        return self._statistics

    @property
    def file_name(self) -> str:
        """A file's name without its ending: the model's name and the view's."""
        return "-".join(filter(None, [file_stem(self._statistics.model), "atlas-view"]))

    def to_html(self, *, max_mb: float | None = None, controls: str | bool | None = None) -> str:
        """The view as one HTML page that works offline.

        The page contains the statistics, roles and offsets of all heads, and of each head as many
        edges with the tokens around them as there is room for; its caption says how many.

        Parameters
        ----------
        max_mb : float, optional
            Megabytes that the page may have; 5 when left out.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Of the page; the view's own when left out.

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere.

        Raises
        ------
        TypeError, ValueError
            If not even a page without edges fits, with ways out, or an argument has another value.

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
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.pdf"``, ``"x.svg"``: vectors for a paper;
            ``"x.png"``: pixels. Pictures are drawn by an installed Chromium or Chrome.
        max_mb, controls : optional
            Of the page; see `to_html`. Pictures have no controls.
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
            If the ending is none of these, or not even a page without edges fits.
        OSError
            If the file cannot be written; nothing is left half written.
        ImportError, RuntimeError
            If a picture is asked for and no browser is found.

        Examples
        --------
        >>> view.save("atlas.html")     # doctest: +SKIP
        """
        return self._write(
            path, lambda state: self._atlas_page(with_controls(state, controls), max_mb), figure
        )

    def snapshot(self, *, max_mb: float | None = None) -> None:
        """Show static outputs that survive without a kernel: a picture, and the page in a frame.

        Parameters
        ----------
        max_mb : float, optional
            Of the page; see `to_html`. A notebook is as large as the pages in it.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If not even a page without edges fits, or an argument has another value.

        Examples
        --------
        >>> view.snapshot(max_mb=2)    # doctest: +SKIP
        """
        controls = self._controls_in_a_frame()
        self._show_static(lambda: self.to_html(max_mb=max_mb, controls=controls))

    def page_size(self) -> int:
        """How large a page with all edges would be.

        Returns
        -------
        int
            Bytes, whatever the limit; the page is made to count them.

        Examples
        --------
        >>> view.page_size()    # doctest: +SKIP
        """
        return len(make_atlas_page(self._statistics, self.state, max_bytes=None).encode())

    def _still(self) -> str:
        figure = atlas_figure(self._statistics, self.stack)
        return saved_still(self._statistics.model, self.name, figure)

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
        return min(_AROUND + _ROW * rows, _HIGHEST)

    def _first_stack(self) -> str:
        return self._statistics.stack_names[0]

    def _stack_named(self, name: str) -> StackStatistics:
        names = self._statistics.stack_names
        if name not in names:
            raise traitlets.TraitError(
                f"stack={short_repr(name)}: these statistics have {', '.join(map(repr, names))}"
            )
        return self._statistics.stack(name)

    @traitlets.validate("color", "order")
    def _validate_statistic(self, proposal: Mapping[str, Any]) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        # Of another stack as well: both may be set at once.
        known = ["number"] if name == "order" else []
        known.append("role")
        for stack in self._statistics.stack_names:
            for each in self._statistics.stack(stack).score_names:
                if each not in known:
                    known.append(each)
        if value not in known:
            raise traitlets.TraitError(
                f"{name}={short_repr(value)} must be one of {', '.join(map(repr, known))}"
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
                    f"offsets={short_repr(value)} must be [from, to], tokens from query to key, "
                    "such "
                    "as [-3, -1] for keys one to three before their query; None is all"
                )
        elif len(pair) != 2 or min(pair) < 0:
            raise traitlets.TraitError(
                f"edge={short_repr(value)} must be [query, key], positions in the text; None is "
                "none"
            )
        return pair

    @traitlets.validate("text")
    def _validate_text(self, proposal: Mapping[str, Any]) -> int | None:
        text: int | None = proposal["value"]
        if text is not None and text < 0:
            raise traitlets.TraitError(f"text={text!r} must be the number of a text, from 0")
        return text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._statistics!r}>"

"""What every view has: a record, the place in it that is shown, and ways to take it along."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from attnviz.pages.bundles import bundle
from attnviz.pages.file_kinds import check_file_kind
from attnviz.pages.html import Carried, make_page
from attnviz.pages.limits import PagePrecision
from attnviz.record.record import AttentionRecord
from attnviz.record.storage.safetensors_file import write_whole
from attnviz.server.kernel import KernelChannel, Server
from attnviz.server.server import RecordServer
from attnviz.utils.host import ipython_cell
from attnviz.views.place import PlacedWidget
from attnviz.views.trait_types import checked_scores

__all__ = ["AttentionView"]


class AttentionView(PlacedWidget):
    """Base of all views.

    Parameters
    ----------
    record : AttentionRecord
        One example. Of several, give ``records[i]``.
    include_layers : iterable of int, optional
        The model's numbers of the layers to offer; all when left out.
    **traits
        Initial values of the view's traits.

    Attributes
    ----------
    stack, layer, heads, token, key, prediction, as_query, pair, order, least_score, scores, theme
        See `attnviz.views.place.PlacedWidget`.

    Raises
    ------
    TypeError
        If `record` is no record, is a list of them, or a keyword is unknown.
    traitlets.TraitError
        If a trait's value does not fit the record. All traits can be set later, too, and change
        when the reader uses the view.
    """

    name: ClassVar[str]
    #: What an exported page has to carry beside the description and the small maps.
    carries: ClassVar[frozenset[Carried]] = frozenset({"weights"})
    #: Shared traits that change nothing here.
    without_effect: ClassVar[frozenset[str]] = frozenset()
    #: The notebook cell that shows this view already (see `attnviz.views.show.show`).
    shown_in_cell: int | None = None

    def __init__(
        self,
        record: AttentionRecord,
        *,
        include_layers: Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        self.check_names(traits)
        if include_layers is not None and not isinstance(include_layers, Iterable):
            raise TypeError(
                "include_layers must be the model's numbers of layers, such as [0, 1]; got "
                f"{include_layers!r}"
            )
        self._take(record, include_layers)
        stack = self._stack_named(traits.setdefault("stack", self.record.stack().name))
        traits.setdefault("layer", stack.layers[0])
        if "scores" in traits:
            traits["scores"] = checked_scores(traits["scores"], stack)
            traits.setdefault("order", next(iter(traits["scores"]), "number"))
        super().__init__(**self.defaults(stack, traits["layer"]) | traits)
        # What nobody chose follows the stack; what somebody chose is kept, or lost with a word.
        if "heads" not in traits:
            self._default_heads = list(self.heads)
        self._channel = KernelChannel(self._server(), self._send_message)
        self.on_msg(self._receive_message)

    def _take(self, given: Any, include_layers: Iterable[int] | None) -> None:
        """Keep what was given, as far as this view can show it."""
        _check_record(given)
        try:
            record = given if include_layers is None else given.only(include_layers)
        except IndexError as error:
            raise IndexError(f"include_layers: {error}") from None
        self._record = self.fit(record)

    def _server(self) -> Server:
        """What answers the browser."""
        return RecordServer(self._record, page=self._page_of)

    @classmethod
    def state_names(cls) -> list[str]:
        """Names of the traits that say what is shown.

        Returns
        -------
        list of str
            Those that this project defines and the browser shares.
        """
        synced = cls.class_traits(sync=True)
        return [
            name
            for name, trait in synced.items()
            if not name.startswith("_")
            and trait.this_class is not None
            and issubclass(trait.this_class, PlacedWidget)
        ]

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Refuse names of arguments that the view does not have.

        Parameters
        ----------
        names : iterable of str
            Names of traits.

        Raises
        ------
        TypeError
            If one is unknown, or changes nothing in this view; says which there are.
        """
        own = [name for name in cls.state_names() if name not in cls.without_effect]
        unknown = sorted(set(names) - set(own))
        if unknown:
            idle = unknown[0] in cls.without_effect
            raise TypeError(
                f"{cls.__name__} "
                + (f"shows nothing of {unknown[0]}=" if idle else f"has no argument {unknown[0]!r}")
                + f"; it takes include_layers, {', '.join(own)}"
            )

    def fit(self, record: AttentionRecord) -> AttentionRecord:
        """The part of a record that this view can show.

        Parameters
        ----------
        record : AttentionRecord
            What was given.

        Returns
        -------
        AttentionRecord

        Raises
        ------
        ValueError
            If the view can show nothing of it; says which views can.
        """
        return record

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits that say what is shown."""
        return {name: getattr(self, name) for name in self.state_names()}

    def to_html(self, *, precision: PagePrecision = "auto", max_mb: float | None = None) -> str:
        """The view as one HTML page that works offline.

        Parameters
        ----------
        precision : {"auto", "exact"}, default "auto"
            ``"auto"``: the most exact page that stays small. Every weight is carried, off by at
            most 0.004, while the page has no more than 6 MB; above, each query's strongest keys
            with at least 95% of the weight, or queries and keys from which the page computes the
            weights, whichever is smaller; where the limit has no room for that, as much of the
            weight as fits. The page says which, how much of the weight it is and the largest error.
            ``"exact"``: every weight, or queries and keys as they are where that is smaller.
        max_mb : float, optional
            Megabytes that the page may have; every weight is then carried where they fit. By
            default 6, and for a long text 64 bytes for each query of each head (128 where queries
            look ahead) up to 40 MB (80 MB).

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere. It
            says how exact it is, in the neuron view by what rounding queries and keys does, if
            they are rounded.

        Raises
        ------
        TypeError, ValueError
            If the record is too large for such a page, or an argument is none of its values.

        Examples
        --------
        >>> page = view.to_html()                        # doctest: +SKIP
        >>> page = view.to_html(max_mb=2)                # doctest: +SKIP
        >>> page = view.to_html(precision="exact")       # doctest: +SKIP
        """
        return self._page(self.state, precision, max_mb)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> Path:
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.svg"``: vectors for a paper; ``"x.png"``:
            pixels. SVG and PNG are drawn by an installed Chromium or Chrome.
        precision, max_mb : optional
            Of the page, also where it is drawn as a picture; see `to_html`.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        TypeError, ValueError
            If the ending is none of these, the record is too large for a page, or an argument is
            none of its values.
        OSError
            If the file cannot be written; nothing is left half written.
        RuntimeError
            If an SVG or PNG is asked for and no browser is found; says how to get one.

        Examples
        --------
        >>> view.save("attention.svg")                # doctest: +SKIP
        >>> view.save("attention.html", max_mb=2)     # doctest: +SKIP
        """
        return self._write(path, lambda: self.to_html(precision=precision, max_mb=max_mb))

    def snapshot(self, *, precision: PagePrecision = "auto", max_mb: float | None = None) -> None:
        """Show static outputs that survive without a kernel.

        Two outputs: a picture of its own (or, where no browser can draw one, a table of the
        strongest weights), which shows even in an untrusted notebook, and the interactive page
        in a frame.

        Parameters
        ----------
        precision, max_mb : optional
            Of the page; see `to_html`. A notebook is as large as the pages in it.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the record is too large for a page, or an argument is none of its values.

        Examples
        --------
        >>> view.snapshot()            # doctest: +SKIP
        >>> view.snapshot(max_mb=1)    # doctest: +SKIP
        """
        self._show_static(self.to_html(precision=precision, max_mb=max_mb))

    def _write(self, path: str | os.PathLike[str], page: Callable[[], str]) -> Path:
        """Write a page, or a picture of it, as the ending says; refused before it is made."""
        kind = check_file_kind(path)
        if kind == "html":
            return write_whole(path, page().encode())
        from attnviz.pages.image import draw

        return write_whole(path, draw(page(), kind))

    def _show_static(self, page: str) -> None:
        from attnviz.pages.notebook import show_snapshot

        show_snapshot(self.record, page, self.state)

    def _page_of(self, state: Mapping[str, Any]) -> tuple[str, str]:
        known = {name: value for name, value in state.items() if name in self.state_names()}
        return f"{self.name}-view.html", self._page(self.state | known)

    def _page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> str:
        return make_page(
            self._record,
            self.name,
            state,
            carries=self.carries,
            precision=precision,
            max_mb=max_mb,
        )

    def _ipython_display_(self) -> None:
        """Stay silent as the last expression of the cell that shows this view already."""
        if self.shown_in_cell is not None and self.shown_in_cell == ipython_cell():
            return
        from IPython.display import display

        data, metadata = self._repr_mimebundle_() or ({}, {})
        display(data, metadata=metadata, raw=True)

    def _receive_message(self, widget: Any, message: Any, buffers: Any) -> None:
        del widget, buffers
        self._channel.receive(message)

    def _send_message(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.send(message, buffers=buffers)

    @property
    def _esm(self) -> str:
        # Read when a widget is made, not when the class is: a missing bundle is then an error
        # of that call, with its way out, and a rebuilt one is taken up without a restart.
        return bundle(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record!r}>"


def _check_record(record: object) -> None:
    if isinstance(record, AttentionRecord):
        return
    if isinstance(record, (list, tuple)) and record and isinstance(record[0], AttentionRecord):
        raise TypeError(
            f"record is a list of {len(record)} records, and a view shows one: give records[i]"
        )
    raise TypeError(
        f"record must be an AttentionRecord, got {type(record).__name__}; "
        "attnviz.extract(model, inputs) makes one"
    )

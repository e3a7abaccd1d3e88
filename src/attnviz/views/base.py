"""What every view is: a widget that answers the browser, and that becomes a page or a picture."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

import anywidget
import ipywidgets
import traitlets

from attnviz.pages.figure import FigureArguments, parse_figure_options
from attnviz.pages.html import widget_code, widget_loader
from attnviz.pages.limits import check_file_kind
from attnviz.record.record import AttentionRecord
from attnviz.server.kernel import KernelChannel, Server
from attnviz.utils.arguments import as_path, did_you_mean
from attnviz.utils.filenames import file_stem
from attnviz.utils.files import write_atomic
from attnviz.utils.host import has_kernel, in_marimo, ipython_cell, warn_caller
from attnviz.utils.options import options
from attnviz.utils.progress import Steps
from attnviz.views.lifetime import end_with_cell, forget_result, hold_weakly, weakly
from attnviz.views.trait_types import Choice, Controls

if TYPE_CHECKING:
    from attnviz.pages.image import PictureKind

__all__ = ["View"]

# Names that other libraries, or other functions of this one, have for a view's traits.
_OTHER_NAMES = {"include_heads": "heads", "query": "token", "display_mode": "theme"}
# Arguments of BertViz that have no name here, and what does the same.
_OF_BERTVIZ = {
    "prettify_tokens": "give tokens=Tokens.of(tokens), which stay as they are",
    "html_action": "view.to_html() gives the page, and view.save('view.html') writes it",
    "model_type": "it is not needed",
    "sentence_a": "give the text, or (sentence_a, sentence_b), after the model",
    "sentence_b": "give (sentence_a, sentence_b) after the model",
    **dict.fromkeys(
        (f"{each}_{what}" for each in ("encoder", "decoder") for what in ("attention", "tokens")),
        "give AttentionRecord.from_weights(encoder_attentions=..., encoder_tokens=..., "
        "decoder_attentions=..., cross_attentions=..., decoder_tokens=...)",
    ),
}
_OF_BERTVIZ["cross_attention"] = _OF_BERTVIZ["encoder_attention"]

# By what a browser makes a widget and the box that it stands in.
_EMBEDDED_TRAITS = [
    name for name in ipywidgets.DOMWidget.class_traits(sync=True) if name != "_view_count"
]


_logger = logging.getLogger(__name__)


def _to_browser(value: None, view: View) -> Mapping[str, Any] | None:
    """The description, where the widget opens: in no other message, and not kept."""
    del value
    return view._describe_now() if view._opens else None


class View(anywidget.AnyWidget):
    """Base of all views.

    Attributes
    ----------
    theme : {"auto", "light", "dark"}
        ``"auto"`` follows the notebook or the page.
    controls : {"auto", "full", "compact", "none"}
        ``"full"``: all controls, in rows; ``"compact"``: layer and heads in one row, the rest
        behind a button; ``"none"`` (or False): none, while title, picture, legend and captions
        stay. ``"auto"`` (or True) is ``"full"``, and ``"compact"`` in a page whose window or frame
        is lower than 600 pixels or narrower than 480. Keys work in all of them.
    """

    name: ClassVar[str]
    #: Whether `include_layers` chooses the layers that are offered.
    offers_layers: ClassVar[bool] = True
    #: The notebook cell that shows this view already (see `attnviz.views.show.show`).
    shown_in_cell: int | None = None

    theme = Choice(["auto", "light", "dark"], "auto").tag(sync=True)
    controls = Controls("auto").tag(sync=True)

    #: The view's code, deflated, which `_esm` loads once for all widgets in a browser's page.
    _code = traitlets.Unicode(read_only=True).tag(sync=True)

    # Read when a widget is made, not when the class is: a missing bundle is then an error of that
    # call, with its way out, and a rebuilt one is taken up without a restart.
    _esm = traitlets.Unicode(read_only=True).tag(sync=True)

    # What anywidget adds to each widget that does not have it.
    _anywidget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    #: The description, which the browser asks for first; it takes it out of the widget's state.
    _description = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_to_browser)

    # The name `sys` may be gone from this module before the last view is.
    _at_the_end = staticmethod(sys.is_finalizing)
    # Whether the message is made that opens the widget in the browser.
    _opens = False

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        # Weakly, so that a view ends with the last variable that holds it, and not when Python
        # next looks for circles: it may have a large record.
        self._channel = KernelChannel(self._served, weakly(self._send_message))
        self.on_msg(weakly(self._receive_message))
        hold_weakly(self.layout)

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown."""
        raise NotImplementedError

    def to_html(self) -> str:
        """The view as one HTML page that works offline."""
        raise NotImplementedError

    def to_svg(self, **figure: Unpack[FigureArguments]) -> str:
        """The view as an SVG picture, drawn by an installed Chromium or Chrome.

        Parameters
        ----------
        width : str or float, optional
            Of the whole picture: ``"84mm"``, ``"3.3in"``, ``"240pt"``, ``"12cm"``, or a number of
            CSS pixels (96 to the inch). The picture is laid out for this width. By default it is as
            on a page 1,100 pixels wide, without what is blank at its sides.
        font_size : float or str, optional
            Of the smallest text: a number of points, or ``"8pt"``, ``"3mm"``. With a stated width
            it is 8 points by default, and all texts but the title have it.
        font : str or tuple of str, optional
            Name of an installed font; of two, for words and for tokens.
        scale : float, default 2
            Of a PNG: its pixels to a CSS pixel.
        dpi : float, optional
            Of a PNG, in place of `scale`: its pixels to the inch of the stated width.
        title : str, optional
            Above the picture in place of the model's name; ``""`` for none.
        caption : bool, default True
            Whether the two sentences below the picture are drawn: what it shows, and what it leaves
            out. Without them they are in the file's description.
        legend : bool, default True
            Whether the legends and the scale of colours are drawn.
        theme : {"light", "dark", "auto"}, optional
            In place of the view's.
        background : str, optional
            ``"transparent"``, or a colour such as ``"#ffffff"``.
        colors : sequence of str, optional
            Of the chosen heads, in order, such as ``["#1b6ab3", "#d96f0e"]``.

        Returns
        -------
        str
            The picture as text, with real text in it, of fonts that the reader's machine has.

        Raises
        ------
        TypeError, ValueError
            If an argument has another value, or the picture needs more width; says which.
        ImportError, RuntimeError
            If no browser is found; says how to get one.

        Examples
        --------
        >>> svg = view.to_svg(width="84mm", font_size=8)      # doctest: +SKIP
        """
        return self._draw("svg", self._whole_page, figure).decode()

    def save(self, path: str | os.PathLike[str], **figure: Unpack[FigureArguments]) -> Path:
        """Write the view as a file: a page (.html, or no suffix), or a picture (.svg, .png, .pdf).

        For `figure` see `to_svg`.
        """
        return self._write(path, self._whole_page, figure)

    def to_iframe(self, *, height: float | Literal["auto"] = "auto", **page: Any) -> str:
        """The view as an HTML frame, for the pages of other programs.

        Parameters
        ----------
        height : "auto" or float, default "auto"
            Of the frame, in pixels. ``"auto"``: the frame follows its content where the page
            around it lets the frame's own `onload` run; elsewhere it keeps an estimate.
        **page : optional
            Of the page in the frame: the arguments of `to_html`, such as `controls` and `max_mb`.

        Returns
        -------
        str
            An ``<iframe srcdoc=... sandbox="allow-scripts allow-downloads">``: the page of
            `to_html`, which fetches nothing and cannot reach the page around it.

        Raises
        ------
        TypeError, ValueError
            If `height` is neither, or an argument of the page has another value.

        Examples
        --------
        >>> text = view.to_iframe()                                   # doctest: +SKIP
        >>> text = view.to_iframe(height=420, controls="compact")     # doctest: +SKIP
        """
        from attnviz.pages.iframe import check_height, iframe

        wanted = check_height(height)
        if wanted == "auto" and page.get("controls") in (None, True, "auto"):
            given = page.get("controls")
            page["controls"] = "full" if given is not None else self._controls_in_a_frame()
        make: Callable[..., str] = self.to_html
        return iframe(make(**page), wanted, self._estimated_height())

    def snapshot(self) -> None:
        """Show static outputs that survive without a kernel: a picture, and the page in a frame."""
        self._show_static(self.to_html)

    @property
    def file_name(self) -> str:
        """A file's name without its ending: the model's name and the view's."""
        view = self.name if self.name == "dashboard" else f"{self.name}-view"
        return "-".join(filter(None, [file_stem(self.record.model), view]))

    def _server(self) -> Server:
        """What answers the browser."""
        raise NotImplementedError

    @cached_property
    def _served(self) -> Server:
        """The one server of this view, which describes it before the widget is open."""
        return self._server()

    def _describe_now(self) -> Mapping[str, Any] | None:
        """The description of what is shown, if it is short; None without a Jupyter kernel.

        If None, the browser asks for it, and gets the error if there is one.
        """
        if not has_kernel():
            return None
        try:
            reply = self._served.reply("describe", {})
        except Exception:
            _logger.debug("the view does not open with its description", exc_info=True)
            return None
        return None if "pending" in reply.header or reply.data is not None else reply.header

    def open(self) -> None:
        """Open the widget in the browser, which gets the description with it.

        Examples
        --------
        >>> view.open()                                  # doctest: +SKIP
        """
        self._opens = True
        try:
            super().open()
        finally:
            self._opens = False
        end_with_cell(self)

    def _page(self, state: Mapping[str, Any]) -> str:
        """The page that the browser asks for, with the state that the reader sees."""
        raise NotImplementedError

    def _whole_page(self, state: Mapping[str, Any]) -> str:
        """The page of a state with all that it may wait for."""
        return self._page(state)

    @classmethod
    def state_names(cls) -> list[str]:
        """Names of the traits that say what is shown.

        Returns
        -------
        list of str
            Those that this project defines and the browser shares, and that can be set.
        """
        synced = cls.class_traits(sync=True)
        return [
            name
            for name, trait in synced.items()
            if not name.startswith("_")
            and not trait.read_only
            and trait.this_class is not None
            and issubclass(trait.this_class, View)
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
            If one is unknown; says which there are.
        """
        own = cls.state_names()
        unknown = sorted(set(names) - set(own))
        if unknown:
            instead = did_you_mean(unknown[0], own, _OTHER_NAMES)
            if unknown[0] in _OF_BERTVIZ:
                raise TypeError(
                    f"{cls.__name__} has no argument {unknown[0]!r}: {_OF_BERTVIZ[unknown[0]]}"
                )
            takes = ["include_layers", *own] if cls.offers_layers else own
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}{instead}; it takes "
                + ", ".join(takes)
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse attributes that no view has: one that is misspelt would change nothing."""
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}"
                + did_you_mean(name, self.state_names(), _OTHER_NAMES)
            )
        super().__setattr__(name, value)

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits that say what is shown."""
        return {name: getattr(self, name) for name in self.state_names()}

    def _controls_in_a_frame(self) -> str:
        """The controls of a page whose frame is as high as the page: a low one is not small."""
        return "full" if self.controls == "auto" else str(self.controls)

    def _write(
        self,
        path: str | os.PathLike[str],
        page: Callable[[Mapping[str, Any]], str],
        figure: FigureArguments,
    ) -> Path:
        """Write the page of a state, or a picture of it; arguments are checked before."""
        kind = check_file_kind(path)
        if kind != "html":
            return write_atomic(path, self._draw(kind, page, figure))
        file = as_path("path", path, "file")
        if not file.suffix:
            file = file.with_suffix(".html")
        parse_figure_options(figure, self.theme)
        if figure:
            raise ValueError(
                f"{next(iter(figure))}= is of pictures, and path={str(path)!r} is a page: end it "
                "in .svg, .png or .pdf"
            )
        return write_atomic(file, page(self.state).encode())

    def _draw(
        self,
        kind: PictureKind,
        page: Callable[[Mapping[str, Any]], str],
        figure: FigureArguments,
    ) -> bytes:
        """A picture of the page of this view's state."""
        from attnviz.pages.image import check_browser, draw

        options = parse_figure_options(figure, self.theme)
        # What is missing is said before anything is computed.
        check_browser()
        state = self.state if options.theme is None else self.state | {"theme": options.theme}
        return draw(page(state), kind, options)

    def _estimated_height(self) -> float:
        """About how high the view is in a usual column, in pixels, where it cannot be measured."""
        from attnviz.pages.iframe import estimate_height

        return estimate_height(self.name, self.record, self.state)

    def _show_static(self, page: Callable[[], str]) -> None:
        from attnviz.pages.notebook import show_snapshot

        show_snapshot(page, self._estimated_height())

    def _page_of(self, state: Mapping[str, Any]) -> Steps[tuple[str, str]]:
        """The name and the text of a page, of a state that the browser sent."""
        names = self.state_names()
        sent = {name: value for name, value in state.items() if name in names}
        page = yield from self._page_steps(self.state | sent)
        return f"{self.file_name}.html", page

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        """The same as `_page`, step by step where it may take long."""
        yield from ()
        return self._page(state)

    def _ipython_display_(self) -> None:
        """Stay silent as the last expression of the cell that shows this view already."""
        if self.shown_in_cell is not None and self.shown_in_cell == ipython_cell():
            return
        from IPython.display import display

        if self.comm is None:
            # `close` put None in the place of the method.
            self.__dict__.pop("_repr_mimebundle_", None)
            self.open()
        data, metadata = self._repr_mimebundle_() or ({}, {})
        display(data, metadata=metadata, raw=True)
        if has_kernel() and options.snapshot is not False:
            self._show_saved()

    def _show_saved(self) -> None:
        """Store a picture, or the page as well, for readers without the kernel."""
        from attnviz.pages.notebook import show_saved

        try:
            still = self._still()
        except Exception:
            # The view is on the screen, and says what is wrong with its numbers.
            _logger.warning("no picture of the view is saved in the notebook", exc_info=True)
            return
        if options.snapshot == "page":
            controls = self._controls_in_a_frame()
            make: Callable[..., str] = self.to_html
            page = partial(make, controls=controls)
            show_saved(still, page, self._estimated_height())
        else:
            show_saved(still)

    def _still(self) -> str:
        """The picture that is saved with the view, as HTML: drawn without a browser, and small."""
        raise NotImplementedError

    def close(self) -> None:
        """Take the view from the screen wherever it is, and let go of it.

        ipywidgets and IPython's history hold it no longer: its record is freed when no variable
        holds the view or the record. A view that is displayed again is opened again.

        Examples
        --------
        >>> view.close()                                 # doctest: +SKIP
        """
        super().close()
        forget_result(self)

    def __del__(self) -> None:
        # At Python's end the names that closing needs are gone.
        if not self._at_the_end():
            super().__del__()

    def _get_embed_state(self, *options: Any, **named: Any) -> dict[str, Any]:
        """What `ipywidgets.embed` writes into a page without a kernel: the exported page, framed.

        What anywidget needs is in it also where defaults are dropped.
        """
        from attnviz.pages.iframe import make_module

        del options, named
        try:
            shown = self.to_iframe()
        except ValueError as error:
            # All views are written, also those that were not asked for.
            warn_caller(f"a view is not embedded: {error}")
            shown = f"<p>This view was not embedded: {escape(str(error))}</p>"
        names = [*_EMBEDDED_TRAITS, "_esm", "_anywidget_id"]
        state = self.get_state(names) | {"_esm": make_module(shown)}
        model = ("_model_name", "_model_module", "_model_module_version")
        return {name[1:]: state[name] for name in model} | {"state": state}

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take values from the browser, but no code.

        Parameters
        ----------
        sync_data : dict
            Values by trait.
        """
        code = ("_code", "_esm", "_css", "_description", "_record_number")
        super().set_state({name: sync_data[name] for name in sync_data if name not in code})

    @traitlets.observe("comm")
    def _comm_changed(self, change: Mapping[str, Any]) -> None:
        super()._comm_changed(change)
        if self.comm is not None and not in_marimo():
            self.comm.on_msg(weakly(self._handle_msg))
            # The browser closed it, and with it all that it shows of this view.
            self.comm.on_close(weakly(self._comm_closed))

    def _comm_closed(self, message: Any) -> None:
        del message
        self.close()

    def _receive_message(self, widget: Any, message: Any, buffers: Any) -> None:
        del widget, buffers
        self._channel.receive(message)

    def _send_message(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.send(message, buffers=buffers)

    def add_traits(self, **traits: Any) -> None:
        """Add traits that the view's class does not have.

        A widget with added traits has a class by itself: making it takes as long as all else, and
        it stays until Python looks for circles.

        Parameters
        ----------
        **traits
            As for `traitlets.HasTraits.add_traits`.
        """
        new = {name: trait for name, trait in traits.items() if not self.has_trait(name)}
        if new:
            super().add_traits(**new)

    @traitlets.default("_esm")
    def _default_esm(self) -> str:
        return widget_loader(self._code)

    @traitlets.default("_anywidget_id")
    def _default_anywidget_id(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}"

    @traitlets.default("_code")
    def _default_code(self) -> str:
        return widget_code(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record!r}>"

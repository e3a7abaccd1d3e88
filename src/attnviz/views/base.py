"""Base class of all views: a widget that answers requests of the browser and can be exported."""

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

# Names that BertViz or other functions of attnviz use for traits of a view.
_OTHER_NAMES = {"include_heads": "heads", "query": "token", "display_mode": "theme"}
# Arguments of BertViz that do not exist here, each with its replacement.
_BERTVIZ_ARGUMENTS = {
    "prettify_tokens": "pass tokens=Tokens.of(tokens), which are shown unchanged",
    "html_action": "view.to_html() returns the page, and view.save('view.html') writes it",
    "model_type": "it is not needed",
    "sentence_a": "pass the text, or (sentence_a, sentence_b), after the model",
    "sentence_b": "pass (sentence_a, sentence_b) after the model",
    **dict.fromkeys(
        (f"{stack}_{kind}" for stack in ("encoder", "decoder") for kind in ("attention", "tokens")),
        "pass AttentionRecord.from_weights(encoder_attentions=..., encoder_tokens=..., "
        "decoder_attentions=..., cross_attentions=..., decoder_tokens=...)",
    ),
}
_BERTVIZ_ARGUMENTS["cross_attention"] = _BERTVIZ_ARGUMENTS["encoder_attention"]

# Traits from which a browser creates a widget and its layout.
_EMBEDDED_TRAITS = [
    name for name in ipywidgets.DOMWidget.class_traits(sync=True) if name != "_view_count"
]


_logger = logging.getLogger(__name__)


def _to_browser(value: None, view: View) -> Mapping[str, Any] | None:
    """Return the description while the widget opens, and None in every other message."""
    del value
    return view._describe_now() if view._is_opening else None


class View(anywidget.AnyWidget):
    """Base class of all views.

    Attributes
    ----------
    theme : {"auto", "light", "dark"}
        ``"auto"`` follows the theme of the notebook or page.
    controls : {"auto", "full", "compact", "none"}
        Controls to show. ``"full"`` shows all controls in rows. ``"compact"`` shows layer and heads
        in one row, and a button that opens the other controls. ``"none"`` (or False) shows no
        controls: title, picture, legend and captions stay. ``"auto"`` (or True) is ``"full"``, or
        ``"compact"`` on a page whose window or frame is lower than 600 pixels or narrower than 480.
        Keyboard shortcuts always work.
    """

    name: ClassVar[str]
    #: Whether `include_layers` chooses the layers that are offered.
    offers_layers: ClassVar[bool] = True
    #: Notebook cell that already displays this view (see `attnviz.views.show.show`).
    shown_in_cell: int | None = None

    theme = Choice(["auto", "light", "dark"], "auto").tag(sync=True)
    controls = Controls("auto").tag(sync=True)

    #: Code of the view, compressed with deflate. `_esm` loads it once for each page of a browser.
    _code = traitlets.Unicode(read_only=True).tag(sync=True)

    # Read when a widget is created, not when the class is defined. A missing bundle then raises an
    # error in this call, with the remedy, and a rebuilt bundle is used without a restart.
    _esm = traitlets.Unicode(read_only=True).tag(sync=True)

    # anywidget adds this trait to each widget that lacks it.
    _anywidget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    #: Description, which the browser requests first. It removes it from the widget's state.
    _description = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_to_browser)

    # `__del__` may run after Python deleted the name `sys` of this module.
    _is_finalizing = staticmethod(sys.is_finalizing)
    # Whether the message that opens the widget in the browser is being created.
    _is_opening = False

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        # Weak references: a view is freed with the last variable that refers to it, and not at the
        # next garbage collection. It may have a large record.
        self._channel = KernelChannel(self._served, weakly(self._send_message))
        self.on_msg(weakly(self._receive_message))
        hold_weakly(self.layout)

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return the view as one HTML page that works offline."""
        raise NotImplementedError

    def to_svg(self, **figure: Unpack[FigureArguments]) -> str:
        """Return the view as an SVG picture, drawn by an installed Chromium or Chrome.

        Parameters
        ----------
        width : str or float, optional
            Width of the whole picture: ``"84mm"``, ``"3.3in"``, ``"240pt"``, ``"12cm"``, or a
            number of CSS pixels (96 per inch). The layout fits this width. The default is the
            layout of a page 1,100 pixels wide, without the blank margins.
        font_size : float or str, optional
            Size of the smallest text: a number of points, or ``"8pt"``, ``"3mm"``. If `width` is
            passed, the default is 8 points, and all texts except the title have this size.
        font : str or tuple of str, optional
            Name of an installed font, or two names: for words and for tokens.
        scale : float, default 2
            Pixels of a PNG per CSS pixel.
        dpi : float, optional
            Pixels of a PNG per inch of `width`, in place of `scale`.
        title : str, optional
            Title above the picture in place of the model's name. ``""`` draws none.
        caption : bool, default True
            Whether the sentences below the picture are drawn: what it shows, and what it leaves
            out. If not, they are in the file's description.
        legend : bool, default True
            Whether the legends and the colour scale are drawn.
        theme : {"light", "dark", "auto"}, optional
            Theme of the picture in place of the view's theme.
        background : str, optional
            ``"transparent"``, or a colour such as ``"#ffffff"``.
        colors : sequence of str, optional
            Colours of the chosen heads, in order, such as ``["#1b6ab3", "#d96f0e"]``.

        Returns
        -------
        str
            The picture as SVG code. Its texts are text elements in fonts of the reader's machine.

        Raises
        ------
        TypeError, ValueError
            If an argument has an invalid type or value, or the picture needs more width.
        ImportError, RuntimeError
            If no browser is found. The message says how to install one.

        Examples
        --------
        >>> svg = view.to_svg(width="84mm", font_size=8)      # doctest: +SKIP
        """
        return self._draw("svg", self._whole_page, figure).decode()

    def save(self, path: str | os.PathLike[str], **figure: Unpack[FigureArguments]) -> Path:
        """Write the view to a file: a page (.html, or no suffix), or a picture (.svg, .png, .pdf).

        `to_svg` describes `figure`.
        """
        return self._write(path, self._whole_page, figure)

    def to_iframe(self, *, height: float | Literal["auto"] = "auto", **page: Any) -> str:
        """Return the view as an HTML frame that other programs can put into their pages.

        Parameters
        ----------
        height : "auto" or float, default "auto"
            Height of the frame in pixels. ``"auto"`` fits the frame to its content if the page
            around it runs the frame's `onload`, and is an estimate otherwise.
        **page : optional
            Arguments of `to_html` for the page in the frame, such as `controls` and `max_mb`.

        Returns
        -------
        str
            An ``<iframe srcdoc=... sandbox="allow-scripts allow-downloads">`` that contains the
            page of `to_html`. It makes no requests and cannot reach the page around it.

        Raises
        ------
        TypeError, ValueError
            If `height` is invalid, or an argument of the page has an invalid type or value.

        Examples
        --------
        >>> text = view.to_iframe()                                   # doctest: +SKIP
        >>> text = view.to_iframe(height=420, controls="compact")     # doctest: +SKIP
        """
        from attnviz.pages.iframe import check_height, iframe

        frame_height = check_height(height)
        if frame_height == "auto" and page.get("controls") in (None, True, "auto"):
            controls = page.get("controls")
            page["controls"] = "full" if controls is not None else self._controls_in_a_frame()
        make: Callable[..., str] = self.to_html
        return iframe(make(**page), frame_height, self._estimated_height())

    def snapshot(self) -> None:
        """Display static outputs that need no kernel: a picture, and the page in a frame."""
        self._show_static(self.to_html)

    @property
    def file_name(self) -> str:
        """Name of a file without its suffix: the model's name and the view's name."""
        view = self.name if self.name == "dashboard" else f"{self.name}-view"
        return "-".join(filter(None, [file_stem(self.record.model), view]))

    def _server(self) -> Server:
        """Create the server that answers the browser."""
        raise NotImplementedError

    @cached_property
    def _served(self) -> Server:
        """Server of this view. It describes the record before the widget opens."""
        return self._server()

    def _describe_now(self) -> Mapping[str, Any] | None:
        """Return the description if it is short, or None without a Jupyter kernel.

        If None, the browser requests the description, and shows the error if there is one.
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
        """Open the widget in the browser, and send the description in the same message.

        Examples
        --------
        >>> view.open()                                  # doctest: +SKIP
        """
        self._is_opening = True
        try:
            super().open()
        finally:
            self._is_opening = False
        end_with_cell(self)

    def _page(self, state: Mapping[str, Any]) -> str:
        """Return the page that the browser requests, with the state that the reader sees."""
        raise NotImplementedError

    def _whole_page(self, state: Mapping[str, Any]) -> str:
        """Return the page of a state, including data whose computation may take long."""
        return self._page(state)

    @classmethod
    def state_names(cls) -> list[str]:
        """Return the names of the traits that define what is shown.

        Returns
        -------
        list of str
            Traits that attnviz defines, that are shared with the browser, and that can be set.
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
        """Raise TypeError for names of arguments that the view does not have.

        Parameters
        ----------
        names : iterable of str
            Names of traits.

        Raises
        ------
        TypeError
            If a name is unknown. The message lists the valid names.
        """
        own = cls.state_names()
        unknown = sorted(set(names) - set(own))
        if unknown:
            instead = did_you_mean(unknown[0], own, _OTHER_NAMES)
            if unknown[0] in _BERTVIZ_ARGUMENTS:
                raise TypeError(
                    f"{cls.__name__} has no argument {unknown[0]!r}: "
                    f"{_BERTVIZ_ARGUMENTS[unknown[0]]}"
                )
            takes = ["include_layers", *own] if cls.offers_layers else own
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}{instead}; it takes "
                + ", ".join(takes)
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raise AttributeError for an unknown public name."""
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}"
                + did_you_mean(name, self.state_names(), _OTHER_NAMES)
            )
        super().__setattr__(name, value)

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits that define what is shown."""
        return {name: getattr(self, name) for name in self.state_names()}

    def _controls_in_a_frame(self) -> str:
        """Return the controls of a page in a frame that fits the page, so "auto" is "full"."""
        return "full" if self.controls == "auto" else str(self.controls)

    def _write(
        self,
        path: str | os.PathLike[str],
        page: Callable[[Mapping[str, Any]], str],
        figure: FigureArguments,
    ) -> Path:
        """Check the arguments, then write the page of the current state, or a picture of it."""
        kind = check_file_kind(path)
        if kind != "html":
            return write_atomic(path, self._draw(kind, page, figure))
        file = as_path("path", path, "file")
        if not file.suffix:
            file = file.with_suffix(".html")
        parse_figure_options(figure, self.theme)
        if figure:
            raise ValueError(
                f"{next(iter(figure))}= is for pictures, but path={str(path)!r} is a page. Pass a "
                "path that ends in .svg, .png or .pdf."
            )
        return write_atomic(file, page(self.state).encode())

    def _draw(
        self,
        kind: PictureKind,
        page: Callable[[Mapping[str, Any]], str],
        figure: FigureArguments,
    ) -> bytes:
        """Return a picture of the page of this view's state."""
        from attnviz.pages.image import check_browser, draw

        options = parse_figure_options(figure, self.theme)
        # Raise the error for a missing browser before anything is computed.
        check_browser()
        state = self.state if options.theme is None else self.state | {"theme": options.theme}
        return draw(page(state), kind, options)

    def _estimated_height(self) -> float:
        """Return an estimate of the view's height in pixels, for hosts that cannot measure it."""
        from attnviz.pages.iframe import estimate_height

        return estimate_height(self.name, self.record, self.state)

    def _show_static(self, page: Callable[[], str]) -> None:
        from attnviz.pages.notebook import show_snapshot

        show_snapshot(page, self._estimated_height())

    def _page_of(self, state: Mapping[str, Any]) -> Steps[tuple[str, str]]:
        """Return the file name and the HTML of a page with the state that the browser sent."""
        names = self.state_names()
        sent = {name: value for name, value in state.items() if name in names}
        page = yield from self._page_steps(self.state | sent)
        return f"{self.file_name}.html", page

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        """Build the page of `_page` in steps, if this may take long."""
        yield from ()
        return self._page(state)

    def _ipython_display_(self) -> None:
        """Display the view, unless the current cell already displays it."""
        if self.shown_in_cell is not None and self.shown_in_cell == ipython_cell():
            return
        from IPython.display import display

        if self.comm is None:
            # `close` replaced the method with None.
            self.__dict__.pop("_repr_mimebundle_", None)
            self.open()
        data, metadata = self._repr_mimebundle_() or ({}, {})
        display(data, metadata=metadata, raw=True)
        if has_kernel() and options.snapshot is not False:
            self._show_saved()

    def _show_saved(self) -> None:
        """Store a picture, and the page if the options say so, for readers without a kernel."""
        from attnviz.pages.notebook import show_saved

        try:
            still = self._still()
        except Exception:
            # The view is on the screen, and shows the problem with its numbers.
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
        """Return the small picture that is saved with the view, as HTML drawn without a browser."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove the view from the screen and release it.

        ipywidgets and IPython's history no longer refer to the view. Its record is freed when no
        variable refers to the view or the record. Displaying the view again opens it again.

        Examples
        --------
        >>> view.close()                                 # doctest: +SKIP
        """
        super().close()
        forget_result(self)

    def __del__(self) -> None:
        # At shutdown, modules that `close` needs may be gone.
        if not self._is_finalizing():
            super().__del__()

    def _get_embed_state(self, *options: Any, **named: Any) -> dict[str, Any]:
        """Return what `ipywidgets.embed` writes into a page: the exported page in a frame.

        The state includes the traits that anywidget needs, even if `ipywidgets.embed` drops
        default values.
        """
        from attnviz.pages.iframe import make_module

        del options, named
        try:
            html = self.to_iframe()
        except ValueError as error:
            # `ipywidgets.embed` writes all views, including those that the user did not choose.
            warn_caller(f"a view is not embedded: {error}")
            html = f"<p>This view was not embedded: {escape(str(error))}</p>"
        names = [*_EMBEDDED_TRAITS, "_esm", "_anywidget_id"]
        state = self.get_state(names) | {"_esm": make_module(html)}
        model = ("_model_name", "_model_module", "_model_module_version")
        return {name[1:]: state[name] for name in model} | {"state": state}

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Set traits to values from the browser, except those that contain code.

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
            # The browser closed the comm, and no longer shows this view.
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

        A widget with added traits gets its own class. Creating this class takes as long as
        creating the widget, and the class is freed only by the garbage collector.

        Parameters
        ----------
        **traits
            Passed to `traitlets.HasTraits.add_traits`.
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

"""Base class of all views. A view is a widget for a browser, and can be exported to files."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack
from weakref import WeakValueDictionary

import anywidget
import ipywidgets
import traitlets

from attnviz.pages.figure import FigureArguments, parse_figure_options
from attnviz.pages.limits import check_file_kind, check_options
from attnviz.record.record import AttentionRecord
from attnviz.server.base import BaseServer
from attnviz.server.kernel import KernelChannel
from attnviz.utils.arguments import as_path, did_you_mean
from attnviz.utils.bars import Output
from attnviz.utils.filenames import file_stem
from attnviz.utils.files import write_atomic
from attnviz.utils.host import display_options, has_kernel, in_marimo, ipython_cell, warn_caller
from attnviz.utils.options import options
from attnviz.utils.progress import show_progress
from attnviz.utils.refusals import short_refusals
from attnviz.views.lifetime import end_with_cell, forget_result, hold_weakly, weakly
from attnviz.views.saved import SavedPicture
from attnviz.views.trait_types import Choice, Controls, with_controls
from attnviz.views.widget_code import WidgetCode, loader, shared_code

if TYPE_CHECKING:
    from attnviz.pages.image import Drawing, PictureKind

# Names that BertViz or other functions of attnviz use for traits of views, with the names of these
# traits. If a user passes such a name, the error message suggests the trait.
_OTHER_NAMES = {"include_heads": "heads", "query": "token", "display_mode": "theme"}
# Names of the traits that a page needs to create a widget without a kernel. These are the traits
# that every displayed widget shares with the browser, such as `layout`. Only `_view_count` is not
# needed: ipywidgets counts in it how often a page displays the widget.
_EMBEDDED_TRAITS = [
    name for name in ipywidgets.DOMWidget.class_traits(sync=True) if name != "_view_count"
]


_logger = logging.getLogger(__name__)

# View in each output that has a display id (`display(view, display_id=True)`), by this id.
_displayed: WeakValueDictionary[str | None, View] = WeakValueDictionary()


def _to_browser(value: None, view: View) -> Mapping[str, Any] | None:
    """Serialize the trait `_description` for a message to the browser.

    The message that opens the widget has the result of `View._describe_now`. In all other messages,
    the value is None, because the browser needs the description only once.
    """
    del value
    return view._describe_now() if view._is_opening else None


class View(anywidget.AnyWidget):
    """Base class of all views.

    Attributes
    ----------
    theme : {"auto", "light", "dark"}
        Theme of the view. ``"auto"`` uses the theme of the notebook or page.
    controls : {"auto", "full", "compact", "none"}
        Controls that the view shows. ``"full"`` shows all controls in rows. ``"compact"`` shows the
        controls of the layer and of the heads in one row, and a button that opens all others.
        ``"none"`` (or False) shows only title, picture, legend and captions. ``"auto"`` (or True)
        is ``"compact"`` on a page whose window or frame is lower than 600 pixels or narrower than
        480 pixels, and ``"full"`` otherwise. Keyboard shortcuts always work.
    """

    name: ClassVar[str]
    #: Name of the JavaScript bundle that contains the code of the view. The file in
    #: ``js/src/widgets`` from which the bundle is built has the same name.
    _bundle: ClassVar[str] = "records"
    #: Whether the view has the argument `include_layers`.
    offers_layers: ClassVar[bool] = True
    #: Execution number of the notebook cell that already displays this view, or None. It is set by
    #: `attnviz.views.show.show`.
    shown_in_cell: int | None = None

    theme = Choice(["auto", "light", "dark"], "auto").tag(sync=True)
    controls = Controls("auto").tag(sync=True)

    #: JavaScript code of the view: a widget that contains the code or, in marimo, the code itself.
    #: The module in `_esm` loads the code once for all views in a browser tab that have the same
    #: code.
    _code = traitlets.Union(
        [traitlets.Instance(WidgetCode), traitlets.Unicode()], read_only=True
    ).tag(sync=True, **ipywidgets.widget_serialization)

    # JavaScript module of the widget. Its default is computed when a view is created, not when the
    # class is defined. Therefore a missing bundle does not prevent the import of attnviz, and a
    # bundle that was built again is used without a restart of the kernel.
    _esm = traitlets.Unicode(read_only=True).tag(sync=True)

    # If the class did not have this trait, anywidget would add it to each view, which is slow (see
    # `add_traits`).
    _anywidget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    #: Always None in Python. In the message that opens the widget, the value is the description of
    #: the record, if it is ready (see `_describe_now`). The browser can then draw without a further
    #: request. It reads the description once, and removes it from the state of the widget.
    _description = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_to_browser)

    #: HTML of the picture that a page of marimo without a kernel shows. "" in other hosts, in which
    #: the picture is an output of the cell.
    _picture = traitlets.Unicode(read_only=True).tag(sync=True)

    # Store this function in the class for `__del__`. At shutdown, Python may delete the global name
    # `sys` before it calls `__del__`.
    _is_finalizing = staticmethod(sys.is_finalizing)
    # Whether the message that opens the widget in the browser is being created.
    _is_opening = False
    # Picture that the notebook stores after the view, or None.
    _saved: SavedPicture | None = None

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        # Use weak references. A reference cycle would keep the view and its record in memory until
        # the next garbage collection, even if nothing else refers to the view.
        self._channel = KernelChannel(self._served, weakly(self._send_message))
        self.on_msg(weakly(self._receive_message))
        hold_weakly(self.layout)

    @property
    def record(self) -> AttentionRecord:
        """Record that is shown."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return the view as one HTML page that works offline."""
        raise NotImplementedError

    def to_svg(self, **figure: Unpack[FigureArguments]) -> str:
        """Return the view as an SVG picture, drawn by an installed Chromium or Chrome.

        Parameters
        ----------
        content : {"view", "image", "layers"}, default "view"
            ``"image"`` draws only the image that the model reads, with the weights over it: a row
            of images with one image for each head of a head view, or the image of a matrix view.
            ``"layers"`` draws these images for each layer of the stack, in a row for each head.
        width : str or float, optional
            Width of the whole picture: a string such as ``"84mm"``, ``"3.3in"``, ``"240pt"`` or
            ``"12cm"``, or a number of CSS pixels (96 per inch). The view is laid out for this
            width. By default it is laid out for a page with a width of 1,100 pixels, and blank
            margins are cut off.
        font_size : float or str, optional
            Size of the smallest text: a number of points, or a string such as ``"8pt"`` or
            ``"3mm"``. If `width` is passed, the default is 8 points, and all texts except the title
            have this size.
        font : str or tuple of str, optional
            Name of an installed font. A tuple of two names has the font of words and the font of
            tokens.
        scale : float, default 2
            Number of PNG pixels per CSS pixel.
        dpi : float, optional
            Number of PNG pixels per inch of `width`. If passed, it replaces `scale`.
        title : str, optional
            Title above the picture. The default is the name of the model, and ``""`` draws no
            title.
        caption : bool, default True
            Whether to draw the caption below the picture, which states what the picture shows and
            what it leaves out. If False, the caption is only in the description of the file.
        legend : bool, default True
            Whether to draw the legends and the colour scale.
        theme : {"light", "dark", "auto"}, optional
            Theme of the picture. The default is the theme of the view.
        background : str, optional
            Background colour, such as ``"#ffffff"``, or ``"transparent"``.
        colors : sequence of str, optional
            Colours of the chosen heads in their order, such as ``["#1b6ab3", "#d96f0e"]``.

        Returns
        -------
        str
            The picture as SVG code. Texts are text elements, which are drawn with the fonts of the
            reader's machine.

        Raises
        ------
        TypeError, ValueError
            If an argument has an invalid type or value, or the picture does not fit into `width`.
        ImportError, RuntimeError
            If no browser is found. The message says how to install one.

        Examples
        --------
        >>> svg = view.to_svg(width="84mm", font_size=8)      # doctest: +SKIP
        """
        return self._draw("svg", figure).decode()

    def save(self, path: str | os.PathLike[str], **figure: Unpack[FigureArguments]) -> Path:
        """Write the view to a file.

        The suffix ``.html``, or no suffix, writes a page. ``.svg``, ``.png`` and ``.pdf`` write a
        picture. `figure` has the options of a picture (see `to_svg`).
        """
        return self._write(path, figure)

    def to_iframe(self, *, height: float | Literal["auto"] = "auto", **page: Any) -> str:
        """Return the view as an HTML iframe, to insert into the page of another program.

        Parameters
        ----------
        height : "auto" or float, default "auto"
            Height of the frame in pixels. ``"auto"`` starts with an estimate and then uses the
            height of the content. If the outer page does not run the frame's `onload` attribute,
            the estimate remains.
        **page : optional
            Arguments of `to_html` for the page in the frame, such as `controls` and `max_mb`.

        Returns
        -------
        str
            An ``<iframe srcdoc=... sandbox="allow-scripts allow-downloads">`` that contains the
            page of `to_html`. The page makes no network requests and cannot access the outer page.

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
        """Display a copy of the view that needs no kernel: a picture, and the page in a frame."""
        self._show_static()

    @property
    def file_name(self) -> str:
        """Default file name of the view without suffix: the names of the model and of the view."""
        view = self.name if self.name == "dashboard" else f"{self.name}-view"
        return "-".join(filter(None, [file_stem(self.record.model), view]))

    def _server(self) -> BaseServer:
        """Create the server that answers the requests of the browser."""
        raise NotImplementedError

    @cached_property
    def _served(self) -> BaseServer:
        """Server of this view, created at the first use."""
        return self._server()

    def _describe_now(self) -> Mapping[str, Any] | None:
        """Return the description for the message that opens the widget, or None.

        The result is None if the code does not run in a Jupyter kernel, if the description is long
        or not ready at once, or if computing the description raises an error. The browser then
        requests the description later, and shows the error if it occurs again.
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
        """Create the widget in the browser.

        The message that creates it also contains the tokens and the properties of the stacks (the
        description of the record), if these are short and ready. Otherwise the browser requests
        them later.

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

    def _page(self, state: Mapping[str, Any], *arguments: Any, **options: Any) -> str:
        """Return the page that shows the view with the values of traits in `state`.

        Subclasses define the further arguments, such as the maximum size of the page. `save` writes
        this page to a file.
        """
        raise NotImplementedError

    def _drawing(self, state: Mapping[str, Any]) -> Drawing:
        """Return what a picture of the view with the values of traits in `state` is drawn from."""
        from attnviz.pages.html import document
        from attnviz.pages.image import Drawing

        return Drawing(document("", self.name, state, {}), self._served)

    def _page_for_browser(self, state: Mapping[str, Any]) -> str:
        """Return the page that a reader downloads from the view.

        A subclass whose `_page` may wait for minutes overrides this method, because a reply must
        not take minutes.
        """
        return self._page(state)

    @classmethod
    def state_names(cls) -> list[str]:
        """Return the names of the traits that determine what a view shows.

        Returns
        -------
        list of str
            Names of the public traits that attnviz defines, that are shared with the browser, and
            that can be set.
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
        """Raise TypeError if a name is not in `state_names`.

        Parameters
        ----------
        names : iterable of str
            Names of arguments that set traits.

        Raises
        ------
        TypeError
            If a name is unknown. The message lists the valid names.
        """
        own = cls.state_names()
        unknown = sorted(set(names) - set(own))
        if unknown:
            instead = did_you_mean(unknown[0], own, _OTHER_NAMES)
            takes = ["include_layers", *own] if cls.offers_layers else own
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}{instead}; it takes "
                + ", ".join(takes)
            )

    def check_values(self, values: Mapping[str, Any], skipped: Container[str]) -> None:
        """Raise an error for values that the traits of a view cannot have.

        The keys of `values` are names of traits. The traits in `skipped` are not checked. This
        method also works if `__init__` of the view was not called.
        """
        class_traits = self.class_traits()
        for name, value in values.items():
            trait: Any = class_traits[name]
            if name not in skipped and not (value is None and trait.allow_none):
                trait._validate(self, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Shorten the tracebacks of refused arguments of the class."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = short_refusals(cls.__init__)  # type: ignore[method-assign]

    @short_refusals
    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raise AttributeError if its name is public and not in the class."""
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}"
                + did_you_mean(name, self.state_names(), _OTHER_NAMES)
            )
        super().__setattr__(name, value)

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits in `state_names`, which determine what the view shows."""
        return {name: getattr(self, name) for name in self.state_names()}

    def _controls_in_a_frame(self) -> str:
        """Return the value of the trait `controls` for a page in a frame.

        The frame adapts its height to the page. Therefore it has space for all controls, and "auto"
        is replaced by "full".
        """
        return "full" if self.controls == "auto" else str(self.controls)

    def _write(
        self,
        path: str | os.PathLike[str],
        figure: FigureArguments,
        controls: str | bool | None = None,  # noqa: FBT001 - the value that a user passes
        **options: Any,
    ) -> Path:
        """Check the arguments, then write a page or a picture of the current state to a file.

        `options` are further arguments of `_page`. They have no effect on a picture. Raise
        ValueError if one of them limits the page and a picture is asked for.
        """
        kind = check_file_kind(path)
        check_options(options.get("precision", "auto"), options.get("max_mb"))
        state = with_controls(self.state, controls)
        if kind != "html":
            limiting = [name for name in ("max_mb", "top_keys") if options.get(name)]
            if limiting:
                raise ValueError(
                    f"{limiting[0]}= is for pages, but path={str(path)!r} is a picture, which has "
                    f"all numbers of the view. Omit {limiting[0]}=, or pass a path that ends in "
                    ".html."
                )
            return write_atomic(path, self._draw(kind, figure))
        file = as_path("path", path, "file")
        if not file.suffix:
            file = file.with_suffix(".html")
        parse_figure_options(figure)
        if figure:
            raise ValueError(
                f"{next(iter(figure))}= is for pictures, but path={str(path)!r} is a page. Pass a "
                "path that ends in .svg, .png or .pdf."
            )
        return write_atomic(file, self._page(state, **options).encode())

    def _draw(self, kind: PictureKind, figure: FigureArguments) -> bytes:
        """Return a picture of the current state as the content of a file."""
        from attnviz.pages.image import check_browser, draw

        drawing = parse_figure_options(figure)
        # Raise an error for a missing browser first, before anything is computed.
        check_browser()
        theme = {} if drawing.theme is None else {"theme": drawing.theme}
        return draw(self._drawing(self.state | theme), kind, drawing)

    def _estimated_height(self) -> float:
        """Estimate the height of the view in pixels, for programs that cannot measure it."""
        from attnviz.pages.iframe import estimate_height

        return estimate_height(self.name, self.record, self.state)

    def _show_static(self, **options: Any) -> None:
        from attnviz.pages.notebook import show_snapshot

        page, drawing = self._page_in_a_frame(**options), partial(self._drawing, self.state)
        show_snapshot(page, drawing, self._estimated_height())

    def _page_in_a_frame(self, **options: Any) -> Callable[[], str]:
        make: Callable[..., str] = self.to_html
        return partial(make, controls=self._controls_in_a_frame(), **options)

    def _page_of(self, state: Mapping[str, Any]) -> tuple[str, str]:
        """Return the file name and the HTML of a page.

        `state` has the traits that the browser sent. In the page, they replace the traits of this
        view. The view itself does not change.
        """
        names = self.state_names()
        sent = {name: value for name, value in state.items() if name in names}
        return f"{self.file_name}.html", self._page_for_browser(self.state | sent)

    def _ipython_display_(self) -> None:
        """Display the view, unless the current cell already displays it.

        IPython calls this method.
        """
        call = display_options()
        if not call and self.shown_in_cell is not None and self.shown_in_cell == ipython_cell():
            return
        from IPython.display import display

        if self.comm is None:
            # The view was closed, and `close` replaced `_repr_mimebundle_` with None. Restore it.
            self.__dict__.pop("_repr_mimebundle_", None)
            self.open()
        still = page = None
        if has_kernel() and options.snapshot is not False:
            # The bar may add an output to the cell, and the picture must directly follow the view.
            with show_progress("view"):
                still = self._still_or_none()
                if still is not None and options.snapshot == "page":
                    page = self._page_in_a_frame()()
        data, metadata = self._repr_mimebundle_() or ({}, {})
        display(data, metadata=metadata, raw=True, **call)
        display_id = call.get("transient", {}).get("display_id")
        before = _displayed.get(display_id) if call.get("update") else None
        if before is not None:
            # The output of its picture shows the picture of this view from now on.
            before._end_picture()
        if still is not None and (before is not None or not call.get("update")):
            output = Output(display_id and f"{display_id}-picture", exists=before is not None)
            self._show_saved(output, still, page)
        if display_id is not None:
            _displayed[display_id] = self

    def _show_saved(self, output: Output, still: str, page: str | None) -> None:
        """Show a picture of the view in `output`, and its `page` after it if it is not None.

        Readers see the picture if they open the saved notebook without a kernel.
        """
        from attnviz.pages.notebook import show_saved

        show_saved(output, still, page, self._estimated_height())
        self._follow_with_picture(partial(show_saved, output), still)

    def _follow_with_picture(self, show: Callable[[str], object], still: str) -> None:
        """Call `show` with a new picture when the view no longer looks like the picture `still`."""
        saved = SavedPicture(weakly(self._still_or_none), show, still)
        # The picture of a cell that runs again belongs to a new output.
        self._end_picture()
        self._saved = saved
        self.observe(saved.note_change, self._saved_names)

    def _end_picture(self) -> None:
        """Leave the saved picture of the view as it is now."""
        if self._saved is not None:
            self.unobserve(self._saved.note_change, self._saved_names)
            self._saved = None

    @property
    def _saved_names(self) -> list[str]:
        """Names of the traits on which the saved picture depends."""
        return [name for name in (*self.state_names(), "_record_number") if self.has_trait(name)]

    def _still_or_none(self) -> str | None:
        """Return `_still`, or None if drawing it raises an error."""
        try:
            return self._still()
        except Exception:
            # Do not raise the error, because the view itself is displayed and shows the problem.
            _logger.warning("no picture of the view is saved in the notebook", exc_info=True)
            return None

    def _still(self) -> str:
        """Return the HTML of the picture that a notebook saves beside the view.

        Drawing this picture needs no browser.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Remove the view from the screen and from memory.

        Afterwards, neither ipywidgets nor IPython's history of results refers to the view. The
        record is freed when no variable refers to the view or to the record. A closed view can be
        displayed again.

        Examples
        --------
        >>> view.close()                                 # doctest: +SKIP
        """
        if "_served" in self.__dict__:
            self._served.close()
        super().close()
        forget_result(self)

    def __del__(self) -> None:
        # Do not call `close` at shutdown, because modules that it needs may already be deleted.
        if not self._is_finalizing():
            super().__del__()

    def _get_embed_state(self, *options: Any, **named: Any) -> dict[str, Any]:
        """Return the state that `ipywidgets.embed` writes into a page.

        The view itself needs a kernel. Therefore the state is that of a widget that shows the
        exported page of the view in a frame. It always includes the traits in `_EMBEDDED_TRAITS`,
        even if the caller asks to omit traits with default values.
        """
        from attnviz.pages.iframe import make_module

        del options, named
        try:
            html = self.to_iframe()
        except ValueError as error:
            # Do not raise the error. `ipywidgets.embed` embeds all existing views, and the user may
            # not need this one.
            warn_caller(f"a view is not embedded: {error}")
            html = f"<p>This view was not embedded: {escape(str(error))}</p>"
        names = [*_EMBEDDED_TRAITS, "_esm", "_anywidget_id"]
        state = self.get_state(names) | {"_esm": make_module(html)}
        model = ("_model_name", "_model_module", "_model_module_version")
        return {name[1:]: state[name] for name in model} | {"state": state}

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Set traits to values from the browser.

        Traits that the browser must not change, such as the code of the view, are skipped.

        Parameters
        ----------
        sync_data : dict
            New values by trait name.
        """
        code = ("_code", "_esm", "_css", "_description", "_picture", "_record_number")
        super().set_state({name: sync_data[name] for name in sync_data if name not in code})

    @traitlets.observe("comm")
    def _comm_changed(self, change: Mapping[str, Any]) -> None:
        super()._comm_changed(change)
        if self.comm is not None and not in_marimo():
            self.comm.on_msg(weakly(self._handle_msg))
            # If the browser closes the comm, it does not show the view any longer, so close the
            # view.
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
        """Add traits to this view, except those that its class already has.

        traitlets creates a new class for each object with added traits, even if the old class has
        these traits. Creating a class takes as long as creating the view, and only the garbage
        collector frees it.

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
        return loader(self._bundle, self.name)

    @traitlets.default("_anywidget_id")
    def _default_anywidget_id(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}"

    @traitlets.default("_picture")
    def _default_picture(self) -> str:
        if not in_marimo():
            return ""
        from attnviz.pages.notebook import frame_saved

        set_picture, still = weakly(self.set_trait), self._still_or_none()
        if still is None:
            return ""
        self._follow_with_picture(lambda new: set_picture("_picture", frame_saved(new)), still)
        return frame_saved(still)

    @traitlets.default("_code")
    def _default_code(self) -> WidgetCode | str:
        return shared_code(self._bundle)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record!r}>"

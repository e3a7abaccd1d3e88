"""Base class of all views. A view is a widget for a browser, and can be exported to files."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

import traitlets

from attnviz.pages.figure import FigureArguments, parse_figure_options
from attnviz.pages.limits import check_file_kind, check_options
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import as_path, did_you_mean
from attnviz.utils.filenames import file_stem
from attnviz.utils.files import write_atomic
from attnviz.utils.host import in_marimo, warn_caller
from attnviz.views.display import SavedPicture, display_view, draw_still, follow_with_picture
from attnviz.views.lifetime import weakly
from attnviz.views.trait_types import Choice, Controls, with_controls
from attnviz.views.widget import ServedWidget, embedded_state

if TYPE_CHECKING:
    from attnviz.pages.image import Drawing, PictureKind

# Names that BertViz or other functions of attnviz use for traits of views, with the names of these
# traits. If a user passes such a name, the error message suggests the trait.
_OTHER_NAMES = {"include_heads": "heads", "query": "token", "display_mode": "theme"}


class View(ServedWidget):
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

    #: Whether the view has the argument `include_layers`.
    offers_layers: ClassVar[bool] = True
    #: Execution number of the notebook cell that already displays this view, or None. It is set by
    #: `attnviz.views.show.show`.
    shown_in_cell: int | None = None

    theme = Choice(["auto", "light", "dark"], "auto").tag(sync=True)
    controls = Controls("auto").tag(sync=True)

    #: HTML of the picture that a page of marimo without a kernel shows. "" in other hosts, in which
    #: the picture is an output of the cell.
    _picture = traitlets.Unicode(read_only=True).tag(sync=True)

    # Picture that the notebook stores after the view, or None.
    _saved: SavedPicture | None = None

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
        """Display the view. IPython calls this method."""
        display_view(self)

    @traitlets.default("_picture")
    def _default_picture(self) -> str:
        if not in_marimo():
            return ""
        from attnviz.pages.notebook import frame_saved

        set_picture, still = weakly(self.set_trait), draw_still(self)
        if still is None:
            return ""
        follow_with_picture(self, lambda new: set_picture("_picture", frame_saved(new)), still)
        return frame_saved(still)

    def _still(self) -> str:
        """Return the HTML of the picture that a notebook saves beside the view.

        Drawing this picture needs no browser.
        """
        raise NotImplementedError

    def _get_embed_state(self, *options: Any, **named: Any) -> dict[str, Any]:
        """Return the state that `ipywidgets.embed` writes into a page.

        The view itself needs a kernel. Therefore the state is that of a widget that shows the
        exported page of the view in a frame.
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
        return embedded_state(self, make_module(html))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record!r}>"

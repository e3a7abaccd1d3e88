"""What every view is: a widget that answers the browser, and that becomes a page or a picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from attnviz.pages.html import bundle
from attnviz.pages.limits import check_file_kind
from attnviz.record.record import AttentionRecord
from attnviz.record.storage.safetensors_file import write_whole
from attnviz.server.kernel import KernelChannel, Server
from attnviz.utils.host import ipython_cell

__all__ = ["View"]


class View(anywidget.AnyWidget):
    """Base of all views.

    Attributes
    ----------
    theme : {"auto", "light", "dark"}
        ``"auto"`` follows the notebook or the page.
    """

    name: ClassVar[str]
    #: The notebook cell that shows this view already (see `attnviz.views.show.show`).
    shown_in_cell: int | None = None

    theme = traitlets.Enum(["auto", "light", "dark"], "auto").tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._channel = KernelChannel(self._server(), self._send_message)
        self.on_msg(self._receive_message)

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown."""
        raise NotImplementedError

    def to_html(self) -> str:
        """The view as one HTML page that works offline."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view as a file; the ending says which kind."""
        return self._write(path, self.to_html)

    def snapshot(self) -> None:
        """Show static outputs that survive without a kernel: a picture, and the page in a frame."""
        self._show_static(self.to_html)

    def _server(self) -> Server:
        """What answers the browser."""
        raise NotImplementedError

    def _page(self, state: Mapping[str, Any]) -> str:
        """The page that the browser asks for, with the state that the reader sees."""
        raise NotImplementedError

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
            instead = "; heads= chooses heads" if unknown[0] == "include_heads" else ""
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}{instead}; it takes include_layers, "
                + ", ".join(own)
            )

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits that say what is shown."""
        return {name: getattr(self, name) for name in self.state_names()}

    def _write(self, path: str | os.PathLike[str], page: Callable[[], str]) -> Path:
        """Write a page, or a picture of it; a wrong ending is refused before the page is made."""
        kind = check_file_kind(path)
        if kind == "html":
            return write_whole(path, page().encode())
        from attnviz.pages.image import draw

        return write_whole(path, draw(page(), kind))

    def _show_static(self, page: Callable[[], str]) -> None:
        from attnviz.pages.notebook import show_snapshot

        show_snapshot(self.record, page, self.state)

    def _page_of(self, state: Mapping[str, Any]) -> tuple[str, str]:
        """The name and the text of a page, of a state that the browser sent."""
        names = self.state_names()
        sent = {name: value for name, value in state.items() if name in names}
        return f"{self.name}-view.html", self._page(self.state | sent)

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

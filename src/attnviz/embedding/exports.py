"""How an embedding view is taken along: pages, files and static outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.embedding.page import MAX_BYTES, make_embedding_page
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.pages.file_kinds import check_file_kind
from attnviz.pages.limits import PagePrecision, check_options, check_top_keys
from attnviz.views.base import AttentionView

__all__ = ["EmbeddingPages"]


class EmbeddingPages(AttentionView):
    """A view whose pages carry points, and each query's strongest keys where that is asked."""

    def _answers(self) -> EmbeddingAnswers:
        """What a live view would be answered."""
        raise NotImplementedError

    def to_html(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
    ) -> str:
        """The view as one HTML page that works offline.

        The page carries the principal components of all heads in two dimensions, placed as this
        view places them, with their trust, norms and means by position; of other methods those
        plots that are finished. Without `top_keys` it draws no attention lines.

        Parameters
        ----------
        precision : {"auto"}
            There is one: coordinates in 16 bits.
        max_mb : float, optional
            Megabytes that the page may have; 40 when left out.
        top_keys : int, default 0
            How many keys are carried for each query, the strongest, for its lines, which a page
            draws where a reader chooses a query; `page_size` says what that takes.

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere.

        Raises
        ------
        TypeError, ValueError
            If the page would be larger than it may be, with ways out, or an argument is none of
            its values.
        ImportError, RuntimeError
            If the enlarged head's plot is by a method that cannot run here.

        Examples
        --------
        >>> page = view.to_html(top_keys=5)              # doctest: +SKIP
        """
        return self._embedding_page(self.state, precision, max_mb, top_keys, wait=True)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
    ) -> Path:
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.svg"``: vectors for a paper; ``"x.png"``:
            pixels. SVG and PNG are drawn by an installed Chromium or Chrome.
        precision, max_mb, top_keys : optional
            Of the page, also where it is drawn as a picture; see `to_html`. A picture has lines
            where one head is enlarged and a query of it chosen: ``enlarged=True``, ``token=...``.

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
            If the enlarged head's plot is by a method that cannot run here, or an SVG or PNG is
            asked for and no browser is found.

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
            path, lambda: self.to_html(precision=precision, max_mb=max_mb, top_keys=top_keys)
        )

    def snapshot(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        top_keys: int = 0,
    ) -> None:
        """Show static outputs that survive without a kernel: a picture, and the page in a frame.

        Parameters
        ----------
        precision, max_mb, top_keys : optional
            Of the page; see `to_html`. A notebook is as large as the pages in it.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the page would be larger than it may be, or an argument is none of its values.

        Examples
        --------
        >>> view.snapshot(max_mb=6)    # doctest: +SKIP
        """
        self._show_static(self.to_html(precision=precision, max_mb=max_mb, top_keys=top_keys))

    def page_size(self, top_keys: int = 0) -> int:
        """How large a page would be.

        Parameters
        ----------
        top_keys : int, default 0
            How many keys it carries for each query, as in `save`.

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

    def _page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> str:
        # Asked by the browser: nobody waits a minute for a reply.
        return self._embedding_page(state, precision, max_mb, 0, wait=False)

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

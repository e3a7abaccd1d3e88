"""Base class of views of one record, with their export to pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Unpack

import traitlets

from attnviz.pages.figure import FigureArguments
from attnviz.pages.html import Embedded, make_page, page_steps
from attnviz.pages.limits import PagePrecision
from attnviz.pages.picture import SIDES, displayed_stack, draw_all_heads
from attnviz.pages.saved_picture import MAX_WEIGHTS, draw_heads_still, make_saved_still
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.kernel import KernelChannel, Server
from attnviz.server.server import RecordServer
from attnviz.utils.progress import Steps, run_steps
from attnviz.views.lifetime import weakly
from attnviz.views.position import PositionedView, with_layers
from attnviz.views.trait_types import Choice, with_controls

__all__ = ["RecordView", "check_one_text"]

# Arguments that choose a position. If one is passed, the view does not choose a head.
_POSITION = frozenset(
    {"layer", "heads", "token", "key", "prediction", "as_query", "order", "scores", "include_heads"}
)


class RecordView(PositionedView):
    """Base class of views of one record.

    Parameters
    ----------
    record : AttentionRecord
        One example. If there are several, pass ``records[i]``.
    include_layers : int or iterable of int, optional
        Numbers of the layers to offer, as the model counts them. All by default.
    **traits
        Initial values of the view's traits.

    Attributes
    ----------
    stack, layer, heads, token, key, theme, controls
        See `attnviz.views.position.PositionedView`.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        Texts of the queries and of the keys that are shown, for a pair of texts. ``"a-b"`` shows
        queries of the first text and keys of the second.
    opening : dict or None
        Stack, layer, head, pattern, score, baseline and num_queries, if the view opened at the head
        with the most distinct pattern (`attnviz.analysis.distinct_head`). The view does so if no
        layer, heads, token, key or order of heads was passed, and if that head is found quickly.
        Read only.

    Raises
    ------
    TypeError
        If `record` is not a record, is a list of records, or a keyword is unknown.
    traitlets.TraitError
        If a trait's value does not fit the record. All traits can also be set later, and change
        when the reader uses the view.
    """

    #: Data that an exported page must contain in addition to the description and the thumbnails.
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"weights", "scores"})

    #: Whether the view opens at the head with the most distinct pattern.
    opens_at_pattern: ClassVar[bool] = True

    #: Heads in the picture that a notebook stores with the view (`attnviz.options.snapshot`).
    saves_chosen_heads: ClassVar[bool] = True
    saves_all_heads: ClassVar[bool] = False

    _record: AttentionRecord
    #: Number of records shown so far. The browser requests a new description when it changes.
    _record_number = traitlets.Int(0, read_only=True).tag(sync=True)

    #: Progress of a generation that the view shows (`attnviz.views.live`). None ends it.
    _generating = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    opening = traitlets.Any(None, read_only=True).tag(sync=True)
    pair = Choice(["all", "a-a", "a-b", "b-a", "b-b"], "all").tag(sync=True)

    def __init__(
        self,
        record: AttentionRecord,
        *,
        include_layers: int | Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        self.check_names(traits)
        self._include_layers = include_layers
        _check_record(record)
        self._record = self._offered_part(record)
        opening = self._opening(traits)
        if opening is None:
            super().__init__(**traits)
        else:
            position = {"layer": opening["layer"], "heads": [opening["head"]]}
            super().__init__(**(traits | position))
            self.set_trait("opening", opening)

    def _opening(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the head with the most distinct pattern, or None if a position was passed."""
        named = {name for name, value in values.items() if value is not None}
        if not self.opens_at_pattern or named & _POSITION:
            return None
        name = values.get("stack")
        stack = self._stack_named(self._record.stack().name if name is None else name)
        if sum(stack.heads_per_layer) < 2:
            return None
        from attnviz.analysis import distinct_head

        try:
            distinct = distinct_head(stack)
        except (OSError, RuntimeError, ValueError):
            # The view shows the problem with the weights when it requests them.
            return None
        return None if distinct is None else {"stack": stack.name, **asdict(distinct)}

    def _clip_heads(self) -> None:
        opening = self.opening
        if opening is not None and self.heads == [opening["head"]]:
            stack = self._stack_named(self.stack)
            if opening["head"] not in range(stack.num_heads(self.layer)):
                # The caller did not choose this head: use the default, without a warning.
                self._default_heads = list(self.heads)
        super()._clip_heads()

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown. For a running generation, the record of the tokens so far.

        May be set to another record. The view keeps its stack, layer, heads and tokens if the new
        record has them. Traits that do not fit are reset to their defaults.

        Examples
        --------
        >>> view.record = av.extract(model, "the dog sat", tokenizer=tokenizer)    # doctest: +SKIP
        """
        return self._record

    @record.setter
    def record(self, record: AttentionRecord) -> None:
        _check_record(record)
        offered = self._offered_part(record)
        before, self._record = self._record, offered
        # One message, so that the browser receives the record and the traits together.
        with self.hold_sync():
            self._fit_to_record(before)
            self.set_trait("opening", None)
            self.set_trait("_record_number", self._record_number + 1)
            self._served = self._server()
            send = weakly(self._send_message)
            self._channel = KernelChannel(self._served, send, self._record_number)

    def stop(self) -> None:
        """Stop the generation that is shown (``live=True``). Tokens so far are kept.

        Examples
        --------
        >>> view = av.show_head_view(model, "the cat", generate=20, live=True)    # doctest: +SKIP
        >>> view.stop()                                                           # doctest: +SKIP
        """
        self.set_trait("_generating", None)

    def close(self) -> None:
        """Remove the view from the screen and release it. Stop the generation that it shows."""
        self.stop()
        super().close()

    def _offered_part(self, record: AttentionRecord) -> AttentionRecord:
        """Return the part of a record that is shown."""
        return self._supported_part(with_layers(record, self._include_layers))

    def _supported_part(self, record: AttentionRecord) -> AttentionRecord:
        """Return the part of a record that this view can show, or raise ValueError."""
        return record

    def to_html(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        controls: str | bool | None = None,
    ) -> str:
        """Return the view as one HTML page that works offline.

        Parameters
        ----------
        precision : {"auto", "exact"}, default "auto"
            Precision of the weights. ``"auto"`` makes the most exact page within the limit. Up to
            6 MB, every weight is embedded, with an error of at most 0.004. Above, the page contains
            the smaller of two forms: the strongest keys of each query with at least 95% of the
            weight, or queries and keys from which the page computes the weights. If neither fits,
            it contains as much of the weight as fits. The page states the form, the share of the
            weight and the largest error. ``"exact"`` embeds every weight, or exact queries and keys
            if they are smaller.
        max_mb : float, optional
            Maximum size of the page in megabytes. Every weight is embedded if it fits. The default
            is 6, and for a long text 64 bytes for each query of each head (128 if queries attend to
            later keys), up to 40 MB (80 MB).
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Controls of the page. By default those of the view.

        Returns
        -------
        str
            The page with its data, its code and the state of this view. It loads nothing from
            elsewhere. It states its precision, and in the neuron view the error from rounding
            queries and keys.

        Raises
        ------
        TypeError, ValueError
            If the record is too large for a page, or an argument has an invalid type or value.

        Examples
        --------
        >>> page = view.to_html()                        # doctest: +SKIP
        >>> page = view.to_html(max_mb=2)                # doctest: +SKIP
        >>> page = view.to_html(precision="exact")       # doctest: +SKIP
        """
        return self._page(with_controls(self.state, controls), precision, max_mb)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        controls: str | bool | None = None,
        **figure: Unpack[FigureArguments],
    ) -> Path:
        """Write the view to a file. The suffix determines the format.

        Parameters
        ----------
        path : path-like
            ``"x.html"`` is the interactive page, ``"x.pdf"`` and ``"x.svg"`` are vector graphics
            for a paper, and ``"x.png"`` is pixels. An installed Chromium or Chrome draws pictures.
        precision, max_mb : optional
            Precision and size of the page, also if it is drawn as a picture. See `to_html`.
        controls : optional
            Controls of the page. See `to_html`. Pictures have none.
        **figure
            Style of a picture: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`, `colors`. See `to_svg`.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        TypeError, ValueError
            If the suffix is unknown, the record is too large for a page, the picture needs more
            width, or an argument has an invalid type or value.
        OSError
            If the file cannot be written. No incomplete file is left.
        ImportError, RuntimeError
            If a picture needs a browser and none is found. The message says how to install one. The
            error is raised before anything is computed.

        Examples
        --------
        >>> view.save("attention.pdf", width="84mm", font_size=8)    # doctest: +SKIP
        >>> view.save("attention.html", max_mb=2)     # doctest: +SKIP
        """
        return self._write(
            path,
            lambda state: self._page(with_controls(state, controls), precision, max_mb),
            figure,
        )

    def snapshot(self, *, precision: PagePrecision = "auto", max_mb: float | None = None) -> None:
        """Display static outputs that need no kernel.

        There are two outputs, and a reader sees one of them. The interactive page in a frame
        appears where frames and scripts are allowed. Elsewhere (an untrusted notebook, a code host,
        on paper) a picture appears. Without an installed browser it is a small picture of all
        heads.

        Parameters
        ----------
        precision, max_mb : optional
            Precision and size of the page. See `to_html`. The page is stored in the notebook.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the record is too large for a page, or an argument has an invalid type or value.

        Examples
        --------
        >>> view.snapshot()            # doctest: +SKIP
        >>> view.snapshot(max_mb=1)    # doctest: +SKIP
        """
        controls = self._controls_in_a_frame()
        self._show_static(
            lambda: self.to_html(precision=precision, max_mb=max_mb, controls=controls)
        )

    def _server(self) -> Server:
        return RecordServer(self.served_record, page=weakly(self._page_of))

    def _describe_now(self) -> Mapping[str, Any] | None:
        described = super()._describe_now()
        # The record may be replaced before the browser reads this description.
        return described and {**described, "record": self._record_number}

    @property
    def served_record(self) -> AttentionRecord:
        """Record that the browser and pages receive. Comparisons have more stacks in it."""
        return self.record

    @property
    def pictured_stack(self) -> AttentionStack:
        """Stack whose heads a picture of all heads shows."""
        return displayed_stack(self.served_record, self._page_state(self.state))

    def _still(self) -> str:
        stack = self.pictured_stack
        figures = []
        # A picture of all heads would read too many weights of a very long text.
        all_heads = SIDES[0] * sum(stack.heads_per_layer) * len(stack.key_tokens) <= MAX_WEIGHTS
        if self.saves_chosen_heads or not all_heads:
            figures.append(draw_heads_still(stack, self.layer, self.heads, self.token))
        if self.saves_all_heads and all_heads:
            figures.append(run_steps(draw_all_heads(self.served_record, stack)))
        return make_saved_still(self.served_record.model, self.name, "\n".join(figures))

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a page: the traits, and values that are not traits."""
        return dict(state)

    def _page_content(
        self, state: Mapping[str, Any]
    ) -> Steps[tuple[AttentionRecord, dict[str, Any]]]:
        """Return the record that a page of a state contains, and its initial state."""
        yield from ()
        return self.served_record, self._page_state(state)

    def _page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> str:
        opening = {"opening": self.opening} if self.opening else {}
        record, made = run_steps(self._page_content({**state, **opening}))
        return make_page(
            record,
            self.name,
            made,
            embeds=self.embeds,
            precision=precision,
            max_mb=max_mb,
        )

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        record, made = yield from self._page_content(state)
        return (yield from page_steps(record, self.name, made, embeds=self.embeds))

    @traitlets.validate("pair")
    def _validate_pair(self, proposal: Mapping[str, Any]) -> str:
        pair: str = proposal["value"]
        stack = self._stack_named(self.stack)
        if pair != "all" and not _is_pair(stack):
            raise traitlets.TraitError(
                f"pair={pair!r}: the tokens of stack {self.stack!r} do not come from two texts. "
                "Pass a pair (first, second) as inputs, or sentence_b_start with weights."
            )
        return pair

    @traitlets.observe("stack")
    def _fit_pair_to_stack(self, change: Mapping[str, Any]) -> None:
        if not _is_pair(self._stack_named(change["new"])):
            self.pair = "all"


def _is_pair(stack: AttentionStack) -> bool:
    """Whether both the queries and the keys come from two texts."""
    return all({0, 1} <= set(tokens.sequence) for tokens in (stack.query_tokens, stack.key_tokens))


#: Names of types that are not a record of one text, and the functions that show them.
_SHOW_FUNCTIONS = {
    "HeadStatistics": "show_atlas_view",
    "Corpus": "show_embedding_view",
    "Comparison": "show_compare_view",
}


def check_one_text(argument: str, value: object) -> None:
    """Raise TypeError for results that another function shows."""
    function = _SHOW_FUNCTIONS.get(type(value).__name__)
    if function is not None:
        raise TypeError(
            f"{argument} is a {type(value).__name__}, but this view shows one record. Pass it to "
            f"attnviz.{function}."
        )


def _check_record(record: object) -> None:
    if isinstance(record, AttentionRecord):
        return
    check_one_text("record", record)
    if isinstance(record, (list, tuple)) and record and isinstance(record[0], AttentionRecord):
        raise TypeError(
            f"record is a list of {len(record)} records, but a view shows one. Pass records[i]."
        )
    raise TypeError(
        f"record must be an AttentionRecord, got {type(record).__name__}. Create one with "
        "attnviz.extract(model, inputs)."
    )

"""Base class of the views that show one record, and their export to pages."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import traitlets
from numpy.typing import NDArray

from attnviz.pages.figure import FigureArguments
from attnviz.pages.html import Embedded, make_page
from attnviz.pages.limits import PagePrecision
from attnviz.pages.picture import (
    SIDES,
    displayed_kinds,
    displayed_stack,
    draw_all_heads,
    draw_heads_picture,
)
from attnviz.pages.saved_picture import MAX_WEIGHTS, draw_heads_still, make_saved_still
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.base import BaseServer
from attnviz.server.kernel import KernelChannel
from attnviz.server.server import RecordServer
from attnviz.server.weights import Combine
from attnviz.views.lifetime import weakly
from attnviz.views.position import PositionedView, with_layers
from attnviz.views.trait_types import Choice, with_controls

if TYPE_CHECKING:
    from attnviz.pages.image import Drawing

# Arguments that choose what is shown first. If the caller passes one of them, the view does not
# open at the head with the largest number.
_PLACE = frozenset({"layer", "heads", "token", "key", "prediction", "include_heads"})
# Arguments that also choose an order of heads. If the caller passes one of them, the view does not
# open at the head with the most distinct pattern.
_POSITION = _PLACE | {"as_query", "order", "scores"}


class RecordView(PositionedView):
    """Base class of views of one record.

    Parameters
    ----------
    record : AttentionRecord
        Record of one example. Pass ``records[i]`` if `attnviz.extract` returned a list of records.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers, as the model counts them. All by default.
    **traits
        Initial values of the view's traits.

    Attributes
    ----------
    stack, layer, heads, token, key, theme, controls
        See `attnviz.views.position.PositionedView`.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        Part of the weights that is shown if the input is a pair of texts, a and b. ``"a-b"`` shows
        queries of the first text and keys of the second text. ``"all"`` shows all queries and keys.
    opening : dict or None
        Entries ``stack``, ``layer``, ``head``, ``pattern``, ``score``, ``baseline`` and
        ``num_queries``, if the view opened at the head with the most distinct pattern
        (`attnviz.analysis.distinct_head`). Most views open there if no layer, heads, token, key or
        order of heads was passed, and if this head can be found quickly. In all other cases, and
        after `record` is set, the trait is None. Read only.

    Raises
    ------
    TypeError
        If `record` is not an `AttentionRecord`, or a keyword is unknown.
    traitlets.TraitError
        If a trait's value does not fit the record.

    Notes
    -----
    All traits can also be set after the view is created, and they change when the reader uses the
    view.
    """

    #: Data that an exported page contains, besides the description of the record and a picture of
    #: all heads.
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"weights", "scores"})

    #: Whether the view opens at the head with the most distinct pattern if no position is passed.
    opens_at_pattern: ClassVar[bool] = True

    #: Whether the picture that a notebook stores with the view (`attnviz.options.snapshot`) shows
    #: the chosen heads. For a very long text, it always shows them.
    saves_chosen_heads: ClassVar[bool] = True
    #: Whether the picture that a notebook stores with the view shows all heads. For a very long
    #: text, it never shows all heads.
    saves_all_heads: ClassVar[bool] = False

    _record: AttentionRecord
    #: Number of times that the record was replaced. When this number changes, the browser requests
    #: the description of the new record.
    _record_number = traitlets.Int(0, read_only=True).tag(sync=True)

    #: Progress of the generation that the view shows (see `attnviz.views.live`), or None if no
    #: generation is running. Setting it to None stops the generation.
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
            passed = {name for name, value in traits.items() if value is not None}
            if not passed & _PLACE:
                self._open_at_largest([self.stack] if "stack" in passed else self.record.stacks)
        else:
            position = {"layer": opening["layer"], "heads": [opening["head"]]}
            super().__init__(**(traits | position))
            self.set_trait("opening", opening)

    def _opening(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the value of the trait `opening`: the head with the most distinct pattern.

        `values` has the traits that the caller passed. Return None if `opens_at_pattern` is False,
        if the caller chose a layer, heads, a token or an order of heads, if the stack has only one
        head, if no head with a distinct pattern was found, or if the weights cannot be computed.
        """
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
        except (RuntimeError, ValueError):
            # The weights cannot be computed. Do not raise the error here, because the view will
            # request the weights and show the error.
            return None
        return None if distinct is None else {"stack": stack.name, **asdict(distinct)}

    def _open_at_largest(self, stacks: Collection[str]) -> None:
        """Show the head with the largest number, if the numbers are not weights of the model.

        Only the heads of `stacks` are compared.
        """
        head = self._largest_head(stacks)
        if head is not None:
            stack, layer, number = head
            with self.hold_trait_notifications():
                self.stack, self.layer = stack, layer
            self.heads = [number]

    def _largest_head(self, stacks: Collection[str]) -> tuple[str, int, int] | None:
        """Return stack, layer and head with the largest absolute number, or None for weights.

        Only the shown stack is read, whatever `stacks` are. Return None, too, if a view would have
        to wait until all numbers are computed.
        """
        del stacks
        stack = self._stack_named(self.stack)
        if not self.opens_at_pattern or not stack.signed or stack.linear:
            return None
        count = sum(stack.heads_per_layer) * len(stack.query_tokens) * len(stack.key_tokens)
        if count > MAX_WEIGHTS:
            return None
        every_query = slice(0, len(stack.query_tokens))
        largest = [
            (float(stack.attention(layer).block([head], every_query).abs().max()), layer, head)
            for layer in stack.layers
            for head in range(stack.num_heads(layer))
        ]
        size, layer, head = max(largest, key=itemgetter(0))
        return (stack.name, layer, head) if size > 0 else None

    def _clip_heads(self) -> None:
        opening = self.opening
        if opening is not None and self.heads == [opening["head"]]:
            stack = self._stack_named(self.stack)
            if opening["head"] not in range(stack.num_heads(self.layer)):
                # The view chose this head when it opened, and the new layer does not have it. Treat
                # the head as a default, so that it is replaced without a warning.
                self._default_heads = list(self.heads)
        super()._clip_heads()

    @property
    def record(self) -> AttentionRecord:
        """Record that is shown. While a generation is running, it has the tokens so far.

        Set it to another record to show that record. The view keeps its stack, layer, heads and
        tokens if they exist in the new record. If the value of a trait does not fit the new record,
        the trait gets its default value.

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
        # Send all changes in one message, so that the browser changes record and traits together.
        with self.hold_sync():
            self._fit_to_record(before)
            self.set_trait("opening", None)
            self.set_trait("_record_number", self._record_number + 1)
            self._served.close()
            self._served = self._server()
            send = weakly(self._send_message)
            self._channel = KernelChannel(self._served, send, self._record_number)

    def stop(self) -> None:
        """Stop the generation that the view shows (``live=True``). Tokens so far are kept.

        Examples
        --------
        >>> view = av.show_head_view(model, "the cat", generate=20, live=True)    # doctest: +SKIP
        >>> view.stop()                                                           # doctest: +SKIP
        """
        self.set_trait("_generating", None)

    def close(self) -> None:
        """Stop a running generation, and remove the view from the screen and from memory."""
        self.stop()
        super().close()

    def _offered_part(self, record: AttentionRecord) -> AttentionRecord:
        """Return a record with only the layers and stacks that the view offers."""
        return self._supported_part(with_layers(record, self._include_layers))

    def _supported_part(self, record: AttentionRecord) -> AttentionRecord:
        """Return a record with only the stacks that this kind of view can show.

        Raise ValueError if the view can show none of the stacks.
        """
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
            Precision of the weights. ``"auto"`` makes the most exact page that fits into the limit.
            If a page with every weight has at most 6 MB (or `max_mb`), it contains every weight,
            with an error of at most 0.4% of the largest possible weight (0.8% for signed numbers).
            Otherwise the page contains the smaller of two forms: the strongest keys of each query,
            which cover at least 95% of the weight, or queries and keys, from which the page
            computes the weights. If neither fits, the page contains as many of the strongest keys
            as fit. The page states its form, the share of the weight that it contains, and the
            largest error. ``"exact"`` makes a page with every weight, or with unrounded queries and
            keys if they are smaller.
        max_mb : float, optional
            Maximum size of the page in megabytes. The default is 6 MB, or more for a long text: 64
            bytes for each query of each head, up to 40 MB. If the mask is not known to be causal,
            the default is 128 bytes for each query of each head, up to 80 MB.
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Controls of the page. By default the controls of the view.

        Returns
        -------
        str
            The page, which contains its data, its code and the state of this view. It states its
            precision, and in the neuron view the error that rounding of queries and keys causes.

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
            ``"x.html"`` writes an interactive page, ``"x.pdf"`` and ``"x.svg"`` vector graphics for
            a paper, and ``"x.png"`` an image of pixels. The last three need an installed Chromium
            or Chrome. A path without suffix gets the suffix ``.html``.
        precision, max_mb : optional
            Precision and maximum size of the page. See `to_html`. A picture always has the exact
            numbers of the view, so `max_mb` cannot be passed for a picture.
        controls : optional
            Controls of the page. See `to_html`. Pictures have no controls.
        **figure
            Content and style of a picture: `content`, `width`, `font_size`, `font`, `scale`, `dpi`,
            `title`, `caption`, `legend`, `theme`, `background`, `colors`. See `to_svg`.

        Returns
        -------
        Path
            Path of the file.

        Raises
        ------
        TypeError, ValueError
            If the suffix is unknown, the record is too large for a page, the picture does not fit
            into `width`, `max_mb` is passed for a picture, or an argument has an invalid type or
            value.
        OSError
            If the file cannot be written. In this case no incomplete file remains.
        ImportError, RuntimeError
            If a picture needs a browser and none is found. The message says how to install one. The
            error is raised before anything is computed.

        Examples
        --------
        >>> view.save("attention.pdf", width="84mm", font_size=8)    # doctest: +SKIP
        >>> view.save("attention.html", max_mb=2)     # doctest: +SKIP
        """
        return self._write(path, figure, controls, precision=precision, max_mb=max_mb)

    def snapshot(self, *, precision: PagePrecision = "auto", max_mb: float | None = None) -> None:
        """Display a copy of the view that needs no kernel, as outputs of the notebook's cell.

        There are two outputs, and a reader sees one of them. Programs that allow frames and scripts
        show an interactive page in a frame. Otherwise, for example in an untrusted notebook, on a
        code hosting site or in print, a picture of the view appears. If no browser is installed
        that can draw this picture, a small picture of all heads appears instead.

        Parameters
        ----------
        precision, max_mb : optional
            Precision and maximum size of the page, which is stored in the notebook. See `to_html`.

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
        self._show_static(precision=precision, max_mb=max_mb)

    def _server(self) -> BaseServer:
        return RecordServer(self.served_record, page=weakly(self._page_of))

    def _describe_now(self) -> Mapping[str, Any] | None:
        described = super()._describe_now()
        # Add the number of the described record. If the record is replaced before the browser reads
        # the description, the browser sees that the number is old and ignores the description.
        return described and {**described, "record": self._record_number}

    @property
    def served_record(self) -> AttentionRecord:
        """Record that the browser receives and that exported pages contain.

        In a `CompareView`, it contains the stacks of all compared records, and the differences of
        their weights from those of the first record. If a view has changes of the attention, its
        pages can contain further stacks (see `attnviz.views.what_if.WhatIf`).
        """
        return self.record

    def heads_picture(self) -> NDArray[np.uint8]:
        """Draw all heads of the stack that the view shows.

        Returns
        -------
        ndarray
            RGB picture, uint8, (height, width, 3). Experiment trackers that cannot show pages log
            this picture.

        Examples
        --------
        >>> view.heads_picture().shape                   # doctest: +SKIP
        (184, 245, 3)
        """
        return draw_heads_picture(displayed_stack(*self._page_content(self.state)))

    def _combination(self) -> Combine:
        """Return how the view combines the chosen heads, for the picture that a notebook stores."""
        return "separate"

    def _windows_in_sight(
        self, stack: AttentionStack
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the ranges of queries and keys of a stack in sight, or None for all of a text."""
        del stack
        return None

    def _still(self) -> str:
        record, state = self._page_content(self.state)
        kinds = displayed_kinds(record, state)
        figures = []
        # For a very long text, draw only the chosen heads, because a picture of all heads would
        # need too many weights.
        rows = SIDES[0] * sum(sum(stack.heads_per_layer) for stack in kinds)
        all_heads = rows * len(kinds[0].key_tokens) <= MAX_WEIGHTS
        # In a grid of all heads, the chosen head is enlarged beside the grid.
        if self.saves_chosen_heads or self.heads or not all_heads:
            stack, heads = displayed_stack(record, state), self.heads
            heads = heads if self.saves_chosen_heads else heads[:1]
            figures.append(
                draw_heads_still(
                    stack,
                    self.layer,
                    heads,
                    self.token,
                    self._combination(),
                    windows=self._windows_in_sight(stack),
                )
            )
        if self.saves_all_heads and all_heads:
            figures += map(draw_all_heads, kinds)
        changed = kinds[0].changed
        return make_saved_still(record.model, self.name, "\n".join(figures), changed)

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a page: the traits, and in some views further values."""
        return dict(state)

    def _page_content(self, state: Mapping[str, Any]) -> tuple[AttentionRecord, dict[str, Any]]:
        """Return the record that a page contains, and the initial state of the page."""
        return self.served_record, self._page_state(state)

    def _page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> str:
        record, made = self._opened_content(state)
        return make_page(
            record,
            self.name,
            made,
            embeds=self.embeds,
            precision=precision,
            max_mb=max_mb,
        )

    def _drawing(self, state: Mapping[str, Any]) -> Drawing:
        record, made = self._opened_content(state)
        # The server of the view does not know the stacks of a changed run that the content adds.
        server = self._served if record is self.served_record else RecordServer(record)
        return super()._drawing(made)._replace(server=server)

    def _opened_content(self, state: Mapping[str, Any]) -> tuple[AttentionRecord, dict[str, Any]]:
        """Return `_page_content` for a state, which also says where the view opened."""
        return self._page_content({**state, **({"opening": self.opening} if self.opening else {})})

    @traitlets.validate("pair")
    def _validate_pair(self, proposal: Mapping[str, Any]) -> str:
        pair: str = proposal["value"]
        stack = self._stack_named(self.stack)
        texts = [set(tokens.sequence) for tokens in (stack.query_tokens, stack.key_tokens)]
        if pair != "all" and not all({0, 1} <= numbers for numbers in texts):
            raise traitlets.TraitError(
                f"pair={pair!r}: the tokens of stack {self.stack!r} do not come from two texts. "
                "Pass a pair (first, second) as inputs, or sentence_b_start with weights."
            )
        return pair


#: Names of classes whose objects come from several texts or records, and the functions that show
#: such objects.
_SHOW_FUNCTIONS = {
    "HeadStatistics": "show_atlas_view",
    "Corpus": "show_embedding_view",
    "Comparison": "show_compare_view",
}


def check_one_text(argument: str, value: object) -> None:
    """Raise TypeError if `value` is a list of records, or an object that another view shows.

    `argument` is the name of the argument in the message.
    """
    function = _SHOW_FUNCTIONS.get(type(value).__name__)
    if function is not None:
        raise TypeError(
            f"{argument} is a {type(value).__name__}, but this view shows one record. Pass it to "
            f"attnviz.{function}."
        )
    if isinstance(value, list | tuple) and value and isinstance(value[0], AttentionRecord):
        raise TypeError(
            f"{argument} is a list of {len(value)} records, but a view shows one. Pass records[i]."
        )


def _check_record(record: object) -> None:
    if isinstance(record, AttentionRecord):
        return
    check_one_text("record", record)
    raise TypeError(
        f"record must be an AttentionRecord, got {type(record).__name__}. Create one with "
        "attnviz.extract(model, inputs)."
    )

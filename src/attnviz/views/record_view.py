"""Views of one record: what they show of it, and the pages that they become."""

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

# A caller that gives one of these has chosen what to see.
_POSITION = frozenset(
    {"layer", "heads", "token", "key", "prediction", "as_query", "order", "scores", "include_heads"}
)


class RecordView(PositionedView):
    """Base of views of one record.

    Parameters
    ----------
    record : AttentionRecord
        One example. If there are several, give ``records[i]``.
    include_layers : int or iterable of int, optional
        The model's numbers of the layers to offer; all when left out.
    **traits
        Initial values of the view's traits.

    Attributes
    ----------
    stack, layer, heads, token, key, theme, controls
        See `attnviz.views.position.PositionedView`.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        For a pair of texts: whose queries and whose keys are shown.
    opening : dict or None
        Read only: stack, layer, head, pattern, score, even and queries where the view opened at the
        head with the most distinct pattern (`attnviz.analysis.distinct_head`). It does so where
        neither a layer, heads, a token, a key nor an order of heads were given, and where that head
        is told quickly.

    Raises
    ------
    TypeError
        If `record` is not a record, is a list of them, or a keyword is unknown.
    traitlets.TraitError
        If a trait's value does not fit the record. All traits can be set later, too, and change
        when the reader uses the view.
    """

    #: What an exported page has to contain beside the description and the small maps.
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"weights", "scores"})

    #: Whether the view opens at the head with the most distinct pattern.
    opens_at_pattern: ClassVar[bool] = True

    #: What the picture shows that a notebook stores with the view (`attnviz.options.snapshot`).
    saves_chosen_heads: ClassVar[bool] = True
    saves_all_heads: ClassVar[bool] = False

    _record: AttentionRecord
    #: Counts the records that were shown: the browser describes the next one where it changes.
    _record_number = traitlets.Int(0, read_only=True).tag(sync=True)

    #: How far a generation is that the view shows (`attnviz.views.live`); None ends it.
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
        self._record = self._offered(record)
        opening = self._opening(traits)
        if opening is None:
            super().__init__(**traits)
        else:
            at = {"layer": opening["layer"], "heads": [opening["head"]]}
            super().__init__(**(traits | at))
            self.set_trait("opening", opening)

    def _opening(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Where to open: at the head with the most distinct pattern, if no position was given."""
        named = {name for name, value in given.items() if value is not None}
        if not self.opens_at_pattern or named & _POSITION:
            return None
        name = given.get("stack")
        stack = self._stack_named(self._record.stack().name if name is None else name)
        if sum(stack.heads_per_layer) < 2:
            return None
        from attnviz.analysis import distinct_head

        try:
            found = distinct_head(stack)
        except (OSError, RuntimeError, ValueError):
            # The view says what is wrong with the weights where it asks for them.
            return None
        return None if found is None else {"stack": stack.name, **asdict(found)}

    def _clip_heads(self) -> None:
        opened = self.opening
        if opened is not None and self.heads == [opened["head"]]:
            stack = self._stack_named(self.stack)
            if opened["head"] not in range(stack.num_heads(self.layer)):
                # The caller did not choose it: the default takes its place, without a warning.
                self._default_heads = list(self.heads)
        super()._clip_heads()

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown; of a generation that runs, that of the tokens so far.

        May be set to another one: the view stays as it is as far as the new record has the stack,
        layer, heads and tokens, and what does not fit goes to its default.

        Examples
        --------
        >>> view.record = av.extract(model, "the dog sat", tokenizer=tokenizer)    # doctest: +SKIP
        """
        return self._record

    @record.setter
    def record(self, record: AttentionRecord) -> None:
        _check_record(record)
        offered = self._offered(record)
        before, self._record = self._record, offered
        # All in one message: the browser takes the record and what belongs to it together.
        with self.hold_sync():
            self._fit_to_record(before)
            self.set_trait("opening", None)
            self.set_trait("_record_number", self._record_number + 1)
            self._served = self._server()
            send = weakly(self._send_message)
            self._channel = KernelChannel(self._served, send, self._record_number)

    def stop(self) -> None:
        """End the generation that is shown (``live=True``); the tokens that have come stay.

        Examples
        --------
        >>> view = av.show_head_view(model, "the cat", generate=20, live=True)    # doctest: +SKIP
        >>> view.stop()                                                           # doctest: +SKIP
        """
        self.set_trait("_generating", None)

    def close(self) -> None:
        """Take the view from the screen wherever it is, and let go of it.

        A generation that it shows is stopped.
        """
        self.stop()
        super().close()

    def _offered(self, record: AttentionRecord) -> AttentionRecord:
        """The part of a record that is shown."""
        return self._checked(with_layers(record, self._include_layers))

    def _checked(self, record: AttentionRecord) -> AttentionRecord:
        """The part of a record that this view can show; a ValueError where there is none."""
        return record

    def to_html(
        self,
        *,
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
        controls: str | bool | None = None,
    ) -> str:
        """The view as one HTML page that works offline.

        Parameters
        ----------
        precision : {"auto", "exact"}, default "auto"
            ``"auto"``: the most exact page that stays small. Every weight is embedded, off by at
            most 0.004, while the page has no more than 6 MB; above, each query's strongest keys
            with at least 95% of the weight, or queries and keys from which the page computes the
            weights, whichever is smaller; where the limit has no room for that, as much of the
            weight as fits. The page says which, how much of the weight it is and the largest error.
            ``"exact"``: every weight, or queries and keys as they are where that is smaller.
        max_mb : float, optional
            Megabytes that the page may have; every weight is then embedded where they fit. By
            default 6, and for a long text 64 bytes for each query of each head (128 where queries
            look ahead) up to 40 MB (80 MB).
        controls : {"auto", "full", "compact", "none"} or bool, optional
            Of the page; the view's own when left out.

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere. It
            says how exact it is, in the neuron view by what rounding queries and keys does, if
            they are rounded.

        Raises
        ------
        TypeError, ValueError
            If the record is too large for such a page, or an argument has another value.

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
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.pdf"``, ``"x.svg"``: vectors for a paper;
            ``"x.png"``: pixels. Pictures are drawn by an installed Chromium or Chrome.
        precision, max_mb : optional
            Of the page, also where it is drawn as a picture; see `to_html`.
        controls : optional
            Of the page; see `to_html`. Pictures have none.
        **figure
            How a picture looks: `width`, `font_size`, `font`, `scale`, `dpi`, `title`, `caption`,
            `legend`, `theme`, `background`, `colors`; see `to_svg`.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        TypeError, ValueError
            If the ending is none of these, the record is too large for a page, the picture needs
            more width, or an argument has another value.
        OSError
            If the file cannot be written; nothing is left half written.
        ImportError, RuntimeError
            If a picture is asked for and no browser is found; says how to get one, before anything
            is computed.

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
        """Show static outputs that survive without a kernel.

        Two outputs, of which a reader sees one: the interactive page in a frame where frames and
        scripts are allowed, and elsewhere (an untrusted notebook, a code host, on paper) a picture.
        Without an installed browser it is a small picture of all heads.

        Parameters
        ----------
        precision, max_mb : optional
            Of the page; see `to_html`. A notebook is as large as the pages in it.

        Raises
        ------
        RuntimeError
            If IPython is not running.
        TypeError, ValueError
            If the record is too large for a page, or an argument has another value.

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
        # Another record may be there before the browser has read this.
        return described and {**described, "record": self._record_number}

    @property
    def served_record(self) -> AttentionRecord:
        """What the browser and pages get; a view of several records has more in it."""
        return self.record

    @property
    def pictured_stack(self) -> AttentionStack:
        """The stack of which a picture has all heads."""
        return displayed_stack(self.served_record, self._page_state(self.state))

    def _still(self) -> str:
        stack = self.pictured_stack
        figures = []
        # The picture of all heads reads as many rows of each, too many of a very long text.
        all_heads = SIDES[0] * sum(stack.heads_per_layer) * len(stack.key_tokens) <= MAX_WEIGHTS
        if self.saves_chosen_heads or not all_heads:
            figures.append(draw_heads_still(stack, self.layer, self.heads, self.token))
        if self.saves_all_heads and all_heads:
            figures.append(run_steps(draw_all_heads(self.served_record, stack)))
        return make_saved_still(self.served_record.model, self.name, "\n".join(figures))

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A page's state, with what the view knows beside its traits."""
        return dict(state)

    def _paged(self, state: Mapping[str, Any]) -> Steps[tuple[AttentionRecord, dict[str, Any]]]:
        """What a page of a state contains, and the state that it opens with."""
        yield from ()
        return self.served_record, self._page_state(state)

    def _page(
        self,
        state: Mapping[str, Any],
        precision: PagePrecision = "auto",
        max_mb: float | None = None,
    ) -> str:
        opening = {"opening": self.opening} if self.opening else {}
        record, made = run_steps(self._paged({**state, **opening}))
        return make_page(
            record,
            self.name,
            made,
            embeds=self.embeds,
            precision=precision,
            max_mb=max_mb,
        )

    def _page_steps(self, state: Mapping[str, Any]) -> Steps[str]:
        record, made = yield from self._paged(state)
        return (yield from page_steps(record, self.name, made, embeds=self.embeds))

    @traitlets.validate("pair")
    def _validate_pair(self, proposal: Mapping[str, Any]) -> str:
        pair: str = proposal["value"]
        stack = self._stack_named(self.stack)
        if pair != "all" and not _is_pair(stack):
            raise traitlets.TraitError(
                f"pair={pair!r}: the tokens of stack {self.stack!r} are not of two texts; give a "
                "pair (first, second), or sentence_b_start where weights are given"
            )
        return pair

    @traitlets.observe("stack")
    def _fit_pair_to_stack(self, change: Mapping[str, Any]) -> None:
        if not _is_pair(self._stack_named(change["new"])):
            self.pair = "all"


def _is_pair(stack: AttentionStack) -> bool:
    """Whether queries and keys are each of two texts."""
    return all({0, 1} <= set(tokens.sequence) for tokens in (stack.query_tokens, stack.key_tokens))


#: What is no record of one text, and the function that shows it.
_SHOWN_BY = {
    "HeadStatistics": "show_atlas_view",
    "Corpus": "show_embedding_view",
    "Comparison": "show_compare_view",
}


def check_one_text(argument: str, value: object) -> None:
    """Raise TypeError for results that another function shows."""
    function = _SHOWN_BY.get(type(value).__name__)
    if function is not None:
        raise TypeError(
            f"{argument} is a {type(value).__name__}, and this view shows one record. Pass it to "
            f"attnviz.{function}."
        )


def _check_record(record: object) -> None:
    if isinstance(record, AttentionRecord):
        return
    check_one_text("record", record)
    if isinstance(record, (list, tuple)) and record and isinstance(record[0], AttentionRecord):
        raise TypeError(
            f"record is a list of {len(record)} records, and a view shows one: give records[i]"
        )
    raise TypeError(
        f"record must be an AttentionRecord, got {type(record).__name__}; "
        "attnviz.extract(model, inputs) makes one"
    )

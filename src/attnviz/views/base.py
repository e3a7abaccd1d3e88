"""What every view has: a record, the place in it that is shown, and ways to take it along."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from attnviz.channel.kernel import KernelChannel
from attnviz.channel.server import RecordServer
from attnviz.host import ipython_cell, warn_caller
from attnviz.record import AttentionRecord, AttentionStack
from attnviz.snapshot.file_kinds import check_file_kind
from attnviz.snapshot.html import Carried, make_page
from attnviz.static_files import bundle
from attnviz.storage import write_whole
from attnviz.views.trait_types import Finite, Heads, HeadScores, Index, checked_scores

__all__ = ["AttentionView"]


class AttentionView(anywidget.AnyWidget):
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
    stack : str
        Name of the stack that is shown.
    layer : int
        The model's number of the layer that is shown.
    heads : list of int
        Chosen heads of that layer, in order of choice; none chosen is all of them together.
    token : int or None
        The pinned query.
    key : int or None
        The pinned key.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        For a pair of texts: whose queries and whose keys are shown.
    order : str
        What heads are ordered by: ``"number"``, the name of one of `scores`, or of a pattern of
        `attnviz.analysis.head_scores` (``"previous token"``, ...). The strongest come first.
    least_score : float or None
        Where heads are ordered by a score: those with a lower one are not offered.
    scores : dict
        Scores of your own, by name: each an array (layers, heads), or a sequence of one sequence
        a layer, for the stack that is shown first. A single array is named ``"score"``. Heads are
        ordered by the first of them unless `order` says otherwise.
    theme : {"auto", "light", "dark"}
        ``"auto"`` follows the notebook or the page.

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
    #: The notebook cell that shows this view already (see `attnviz.show.show`).
    shown_in_cell: int | None = None

    stack = traitlets.Unicode().tag(sync=True)
    layer = Index().tag(sync=True)
    heads = Heads(traitlets.Int()).tag(sync=True)
    token = Index(None, allow_none=True).tag(sync=True)
    key = Index(None, allow_none=True).tag(sync=True)
    pair = traitlets.Enum(["all", "a-a", "a-b", "b-a", "b-b"], "all").tag(sync=True)
    order = traitlets.Unicode("number").tag(sync=True)
    least_score = Finite(None, allow_none=True).tag(sync=True)
    scores = HeadScores().tag(sync=True)
    theme = traitlets.Enum(["auto", "light", "dark"], "auto").tag(sync=True)

    def __init__(
        self,
        record: AttentionRecord,
        *,
        include_layers: Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        _check_record(record)
        self.check_names(traits)
        if include_layers is not None and not isinstance(include_layers, Iterable):
            raise TypeError(
                "include_layers must be the model's numbers of layers, such as [0, 1]; got "
                f"{include_layers!r}"
            )
        try:
            self._record = record if include_layers is None else record.only(include_layers)
        except IndexError as error:
            raise IndexError(f"include_layers: {error}") from None
        self._record = self.fit(self._record)
        stack = self._stack_named(traits.setdefault("stack", self._record.stack().name))
        traits.setdefault("layer", stack.layers[0])
        if "scores" in traits:
            traits["scores"] = checked_scores(traits["scores"], stack)
            traits.setdefault("order", next(iter(traits["scores"]), "number"))
        # What nobody chose follows the stack; what somebody chose is kept, or lost with a word.
        self._default_heads: list[int] | None = None
        super().__init__(**self.defaults(stack, traits["layer"]) | traits)
        if "heads" not in traits:
            self._default_heads = list(self.heads)
        server = RecordServer(self._record, page=self._page_of)
        self._channel = KernelChannel(server, self._send_message)
        self.on_msg(self._receive_message)

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
            and issubclass(trait.this_class, AttentionView)
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
            raise TypeError(
                f"{cls.__name__} has no argument {unknown[0]!r}; it takes include_layers, "
                f"{', '.join(own)}"
            )

    def defaults(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """What a view shows when it is not told.

        Parameters
        ----------
        stack : AttentionStack
            The stack that is shown first.
        layer : int
            Its layer that is shown first.

        Returns
        -------
        dict
            Values by trait.
        """
        del layer, stack
        return {}

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
    def record(self) -> AttentionRecord:
        """The record that is shown."""
        return self._record

    @property
    def state(self) -> dict[str, Any]:
        """Values of all traits that say what is shown."""
        return {name: getattr(self, name) for name in self.state_names()}

    def to_html(self) -> str:
        """The view as one HTML page that works offline.

        Returns
        -------
        str
            The page: data, code and the state of this view, nothing fetched from anywhere. It
            says how exact it is: a weight is off by at most 0.004, in the neuron view by what
            rounding queries and keys does, if they are rounded.

        Raises
        ------
        ValueError
            If the record is too large for a page.

        Examples
        --------
        >>> page = view.to_html()    # doctest: +SKIP
        """
        return make_page(self._record, self.name, self.state, carries=self.carries)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view as a file; the ending says which kind.

        Parameters
        ----------
        path : path-like
            ``"x.html"``: the interactive page; ``"x.svg"``: vectors for a paper; ``"x.png"``:
            pixels. SVG and PNG are drawn by an installed Chromium or Chrome.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        ValueError
            If the ending is none of these, or the record is too large for a page.
        OSError
            If the file cannot be written.
        RuntimeError
            If an SVG or PNG is asked for and no browser is found; says how to get one.

        Examples
        --------
        >>> view.save("attention.svg")    # doctest: +SKIP
        """
        kind = check_file_kind(path)
        if kind == "html":
            return write_whole(path, self.to_html().encode())
        from attnviz.snapshot.image import draw

        return write_whole(path, draw(self.to_html(), kind))

    def snapshot(self) -> None:
        """Show static outputs that survive without a kernel.

        Two outputs: a picture of its own (or, where no browser can draw one, a table of the
        strongest weights), which shows even in an untrusted notebook, and the interactive page
        in a frame.

        Raises
        ------
        RuntimeError
            If IPython is not running.

        Examples
        --------
        >>> view.snapshot()    # doctest: +SKIP
        """
        from attnviz.snapshot.notebook import show_snapshot

        show_snapshot(self._record, self.to_html(), self.state)

    @traitlets.validate("stack")
    def _validate_stack(self, proposal: Mapping[str, Any]) -> str:
        return self._stack_named(proposal["value"]).name

    @traitlets.validate("layer")
    def _validate_layer(self, proposal: Mapping[str, Any]) -> int:
        layer: int = proposal["value"]
        try:
            self._stack_named(self.stack).attention(layer)
        except IndexError as error:
            raise traitlets.TraitError(str(error)) from None
        return layer

    @traitlets.validate("heads")
    def _validate_heads(self, proposal: Mapping[str, Any]) -> list[int]:
        heads = list(dict.fromkeys(proposal["value"]))
        stack = self._stack_named(self.stack)
        # Stack and heads may be set at once, before the layer has followed.
        layer = self._nearest_layer(stack)
        count = stack.attention(layer).num_heads
        wrong = [head for head in heads if not 0 <= head < count]
        if wrong:
            raise traitlets.TraitError(
                f"heads={heads!r}: layer {layer} of stack {self.stack!r} has heads 0 to {count - 1}"
            )
        return heads

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

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        from attnviz.analysis import PATTERNS, patterns_of

        order: str = proposal["value"]
        known = ["number", *self.scores, *PATTERNS]
        if order not in known:
            raise traitlets.TraitError(
                f"order={order!r} must be one of {', '.join(map(repr, known))}"
            )
        shown = {name for stack in self._record.stacks.values() for name in patterns_of(stack)}
        if order in PATTERNS and order not in shown | set(self.scores):
            raise traitlets.TraitError(
                f"order={order!r}: no stack of this record can show it (where no token stands "
                f"twice there is no induction); it can be {', '.join(map(repr, sorted(shown)))}"
            )
        return order

    @traitlets.validate("token", "key")
    def _validate_position(self, proposal: Mapping[str, Any]) -> int | None:
        position: int | None = proposal["value"]
        name: str = proposal["trait"].name
        stack = self._stack_named(self.stack)
        tokens = stack.query_tokens if name == "token" else stack.key_tokens
        if position is not None and not 0 <= position < len(tokens):
            raise traitlets.TraitError(
                f"{name}={position!r}: stack {self.stack!r} has "
                f"{'queries' if name == 'token' else 'keys'} 0 to {len(tokens) - 1}"
            )
        return position

    @traitlets.observe("stack")
    def _fit_to_stack(self, change: Mapping[str, Any]) -> None:
        """Move what the new stack does not have to the nearest that it has."""
        stack = self._stack_named(change["new"])
        self.layer = self._nearest_layer(stack)
        self._clip_heads()
        if not _is_pair(stack):
            self.pair = "all"
        for name, tokens in (("token", stack.query_tokens), ("key", stack.key_tokens)):
            position = getattr(self, name)
            if position is not None and position >= len(tokens):
                setattr(self, name, None)

    @traitlets.observe("layer")
    def _fit_to_layer(self, change: Mapping[str, Any]) -> None:
        del change
        self._clip_heads()

    @traitlets.observe("scores")
    def _fit_to_scores(self, change: Mapping[str, Any]) -> None:
        """Scores that are gone order nothing."""
        gone = set(change["old"] or {}) - set(change["new"])
        if self.order in gone:
            self.order = "number"

    def _nearest_layer(self, stack: AttentionStack) -> int:
        return min(stack.layers, key=lambda number: abs(number - self.layer))

    def _clip_heads(self) -> None:
        stack = self._stack_named(self.stack)
        count = stack.attention(self.layer).num_heads
        if self.heads == self._default_heads:
            # Nobody chose them: what is shown by default here is shown.
            self._default_heads = list(self.defaults(stack, self.layer).get("heads", []))
            self.heads = self._default_heads
            return
        kept = [head for head in self.heads if head < count]
        if kept != self.heads:
            warn_caller(
                f"layer {self.layer} has {count} heads: of heads={self.heads!r} only {kept!r} "
                "stay chosen"
            )
            self.heads = kept

    def _stack_named(self, name: str) -> AttentionStack:
        try:
            return self._record.stack(name)
        except KeyError as error:
            raise traitlets.TraitError(error.args[0]) from None

    def _page_of(self, state: Mapping[str, Any]) -> tuple[str, str]:
        known = {name: value for name, value in state.items() if name in self.state_names()}
        return f"{self.name}-view.html", make_page(
            self._record, self.name, self.state | known, carries=self.carries
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
        return f"<{type(self).__name__} of {self._record!r}>"


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


def _is_pair(stack: AttentionStack) -> bool:
    """Whether both sides of a stack have tokens of two texts."""
    return all({0, 1} <= set(side.sequence) for side in (stack.query_tokens, stack.key_tokens))

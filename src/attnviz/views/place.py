"""Where in a record a view is: the traits that all views share, and what fits a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.utils.host import warn_caller
from attnviz.views.generated_token import Walk, settled
from attnviz.views.trait_types import Finite, HeadScores, Index, Numbers

__all__ = ["PlacedWidget"]


class PlacedWidget(anywidget.AnyWidget):
    """A widget at a place in a record.

    Whatever is set must be there in the record, and what a new stack or layer does not have moves
    to the nearest that it has.

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
    prediction : int or None
        Which of the tokens that the model produced is shown, counted from 0. It moves `token` to
        the query that predicted it, and follows where `token` moves.
    as_query : bool
        Show it by the row where it is itself the query, rather than by that of the query that
        predicted it.
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
    """

    _record: AttentionRecord
    # What is shown while nobody has chosen heads; None once somebody has.
    _default_heads: list[int] | None = None
    _walk = Walk(None, None, as_query=False)

    stack = traitlets.Unicode().tag(sync=True)
    layer = Index().tag(sync=True)
    heads = Numbers(traitlets.Int()).tag(sync=True)
    token = Index(None, allow_none=True).tag(sync=True)
    key = Index(None, allow_none=True).tag(sync=True)
    prediction = Index(None, allow_none=True).tag(sync=True)
    as_query = traitlets.Bool(default_value=False).tag(sync=True)
    pair = traitlets.Enum(["all", "a-a", "a-b", "b-a", "b-b"], "all").tag(sync=True)
    order = traitlets.Unicode("number").tag(sync=True)
    least_score = Finite(None, allow_none=True).tag(sync=True)
    scores = HeadScores().tag(sync=True)
    theme = traitlets.Enum(["auto", "light", "dark"], "auto").tag(sync=True)

    @property
    def record(self) -> AttentionRecord:
        """The record that is shown."""
        return self._record

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
        count, kept = stack.attention(layer).num_heads, stack.kept_heads(layer)
        wrong = [head for head in heads if head not in kept]
        if wrong:
            there = f"has heads 0 to {count - 1}"
            if len(kept) < count and 0 <= wrong[0] < count:
                there = f"was kept with heads {', '.join(map(str, kept))} alone"
            raise traitlets.TraitError(
                f"heads={heads!r}: layer {layer} of stack {self.stack!r} {there}"
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
        shown = {name for stack in self.record.stacks.values() for name in patterns_of(stack)}
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

    @traitlets.validate("prediction")
    def _validate_prediction(self, proposal: Mapping[str, Any]) -> int | None:
        prediction: int | None = proposal["value"]
        count = len(self._stack_named(self.stack).query_tokens.predictions)
        if prediction is not None and not 0 <= prediction < count:
            raise traitlets.TraitError(
                f"prediction={prediction!r}: "
                + (
                    f"stack {self.stack!r} has predictions 0 to {count - 1}"
                    if count
                    else f"nothing is predicted in stack {self.stack!r}; extract with generate= or "
                    "target= where its queries are a decoder's tokens"
                )
            )
        return prediction

    def notify_change(self, change: Any) -> None:
        """Tell observers of a change, then let what depends on it follow.

        Parameters
        ----------
        change : Bunch
            As traitlets makes it.
        """
        super().notify_change(change)
        # Behind the observers: where traits are linked one by one, the other view hears of the
        # switch before it hears of the query that the switch moved.
        if change["name"] in {"stack", "token", "prediction", "as_query"}:
            self._walk_on()

    def _walk_on(self) -> None:
        """Keep the pinned query and the token that is shown at the same place."""
        if not self.stack:
            return
        predictions = self._stack_named(self.stack).query_tokens.predictions
        now = Walk(self.token, self.prediction, self.as_query)
        self._walk = settled(predictions, self._walk, now)
        # At once: between two of them they would not say the same.
        with self.hold_trait_notifications():
            self.as_query = self._walk.as_query
            self.prediction = self._walk.prediction
            self.token = self._walk.token

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
        there = stack.kept_heads(self.layer)
        kept = [head for head in self.heads if head in there]
        if kept != self.heads:
            has = f"has {count} heads"
            if len(there) < count:
                has = f"was kept with heads {', '.join(map(str, there))} alone"
            warn_caller(
                f"layer {self.layer} {has}: of heads={self.heads!r} only {kept!r} stay chosen"
            )
            self.heads = kept

    def _stack_named(self, name: str) -> AttentionStack:
        try:
            return self.record.stack(name)
        except KeyError as error:
            raise traitlets.TraitError(error.args[0]) from None


def _is_pair(stack: AttentionStack) -> bool:
    """Whether both sides of a stack have tokens of two texts."""
    return all({0, 1} <= set(side.sequence) for side in (stack.query_tokens, stack.key_tokens))

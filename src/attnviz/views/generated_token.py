"""Which of the tokens that a model produced a view shows: one position, in three traits.

A token is shown by the row of the query that predicted it, or by the row where it is itself the
query. Which token, by which of the two, and which query is pinned: whichever is set, the others
follow. `js/src/ui/generated-token/state.ts` does the same for pages without a kernel; both are held
against `tests/fixtures/generated_token.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Prediction
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import Place

__all__ = ["Cursor", "GeneratedToken", "settled"]


@dataclass(frozen=True)
class Cursor:
    """The pinned query, the number of the produced token, and whether its own row shows it."""

    token: int | None
    prediction: int | None
    as_query: bool


class GeneratedToken(PositionedView):
    """What views have that show the tokens that a model produced, one at a time.

    Attributes
    ----------
    prediction : int or None
        Which of the tokens that the model produced is shown, counted from 0; may be set from the
        end, -1 is the last. It moves `token` to the query that predicted it, and follows where
        `token` moves.
    as_query : bool
        Show it by the row where it is itself the query, rather than by that of the query that
        predicted it.
    """

    _cursor = Cursor(None, None, as_query=False)

    prediction = Place(None, allow_none=True).tag(sync=True)
    as_query = traitlets.Bool(default_value=False).tag(sync=True)

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
        """Tell observers of a change, then let the cursor follow."""
        super().notify_change(change)
        # Behind the observers: where traits are linked one by one, the other view hears of the
        # switch before it hears of the query that the switch moved.
        if change["name"] in {"stack", "token", "prediction", "as_query"}:
            self._settle_cursor()

    def _fit_to_record(self, before: AttentionRecord) -> None:
        if self.stack in self.record.stacks:
            # A pinned query stays, also where nothing was predicted from it.
            self._settle_cursor()
        super()._fit_to_record(before)

    def _settle_cursor(self) -> None:
        """Keep the pinned query and the token that is shown together."""
        if not self.stack:
            return
        predictions = self._stack_named(self.stack).query_tokens.predictions
        now = Cursor(self.token, self.prediction, self.as_query)
        self._cursor = settled(predictions, self._cursor, now)
        # At once: between two of them they would not say the same.
        with self.hold_trait_notifications():
            self.as_query = self._cursor.as_query
            self.prediction = self._cursor.prediction
            self.token = self._cursor.token


def settled(predictions: Sequence[Prediction], before: Cursor, now: Cursor) -> Cursor:
    """Let the other two follow what was set.

    Where the pinned query and the prediction were both set, and differ, the query counts. What is
    settled stays as it is when it is settled again.
    """
    each = None
    if now.prediction is not None and 0 <= now.prediction < len(predictions):
        each = predictions[now.prediction]
    as_query = now.as_query and not (each is not None and each.row is None)
    if now.token == before.token:
        if each is not None and (now.prediction, now.as_query) != (
            before.prediction,
            before.as_query,
        ):
            return Cursor(_query_of(each, as_query=as_query), now.prediction, as_query)
        if now.prediction is None and before.prediction is not None:
            return replace(now, token=None)
    if each is not None and _query_of(each, as_query=as_query) == now.token:
        return replace(now, as_query=as_query)
    rows = [other.row if now.as_query else other.query for other in predictions]
    found = rows.index(now.token) if now.token is not None and now.token in rows else None
    return replace(now, prediction=found)


def _query_of(prediction: Prediction, *, as_query: bool) -> int:
    """The query whose row shows a token; one that was never read has no row of its own."""
    own = prediction.row
    return own if as_query and own is not None else prediction.query

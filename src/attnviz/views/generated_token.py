"""The generated token that a view shows, as three traits that follow each other.

A view shows a token in the row of the query that predicted it, or in the row of the token itself as
a query. The traits are the number of the token, which of these two rows is shown, and the pinned
query. When one of them is set, the others follow. `js/src/ui/generated-token/state.ts` does the
same for pages without a kernel. `tests/fixtures/generated_token.json` tests both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Prediction
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import ResolvedIndex

__all__ = ["Cursor", "GeneratedToken", "settled"]


@dataclass(frozen=True)
class Cursor:
    """The pinned query, the number of the generated token, and whether its own row is shown."""

    token: int | None
    prediction: int | None
    as_query: bool


class GeneratedToken(PositionedView):
    """Base class of views that show the generated tokens of a model, one at a time.

    Attributes
    ----------
    prediction : int or None
        Number of the generated token that is shown, from 0. Negative numbers count from the end:
        -1 is the last. Setting it moves `token` to the query that predicted it. If `token` moves,
        it follows.
    as_query : bool
        Whether to show the row of the token itself as a query, and not the row of the query that
        predicted it.
    """

    _cursor = Cursor(None, None, as_query=False)

    prediction = ResolvedIndex(None, allow_none=True).tag(sync=True)
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
                    else f"stack {self.stack!r} has no predictions. Extract with generate= or "
                    "target=, and choose a stack whose queries are tokens of a decoder."
                )
            )
        return prediction

    def notify_change(self, change: Any) -> None:
        """Notify the observers, then update the cursor."""
        super().notify_change(change)
        # The observers come first. If traits are linked one by one, the other view must receive
        # `as_query` before it receives the query that `as_query` moved.
        if change["name"] in {"stack", "token", "prediction", "as_query"}:
            self._settle_cursor()

    def _fit_to_record(self, before: AttentionRecord) -> None:
        if self.stack in self.record.stacks:
            # A pinned query stays, even if it predicted nothing.
            self._settle_cursor()
        super()._fit_to_record(before)

    def _settle_cursor(self) -> None:
        """Make the pinned query and the shown token consistent."""
        if not self.stack:
            return
        predictions = self._stack_named(self.stack).query_tokens.predictions
        now = Cursor(self.token, self.prediction, self.as_query)
        self._cursor = settled(predictions, self._cursor, now)
        # Set all at once: in between they would contradict each other.
        with self.hold_trait_notifications():
            self.as_query = self._cursor.as_query
            self.prediction = self._cursor.prediction
            self.token = self._cursor.token


def settled(predictions: Sequence[Prediction], before: Cursor, now: Cursor) -> Cursor:
    """Return a cursor in which the other two values follow the one that was set.

    If the pinned query and the prediction were both set and disagree, the query counts. The
    function is idempotent.
    """
    prediction = None
    if now.prediction is not None and 0 <= now.prediction < len(predictions):
        prediction = predictions[now.prediction]
    as_query = now.as_query and not (prediction is not None and prediction.row is None)
    if now.token == before.token:
        if prediction is not None and (now.prediction, now.as_query) != (
            before.prediction,
            before.as_query,
        ):
            return Cursor(_query_of(prediction, as_query=as_query), now.prediction, as_query)
        if now.prediction is None and before.prediction is not None:
            return replace(now, token=None)
    if prediction is not None and _query_of(prediction, as_query=as_query) == now.token:
        return replace(now, as_query=as_query)
    rows = [other.row if now.as_query else other.query for other in predictions]
    index = rows.index(now.token) if now.token is not None and now.token in rows else None
    return replace(now, prediction=index)


def _query_of(prediction: Prediction, *, as_query: bool) -> int:
    """Return the query whose row shows a token. A token that was never read has no row."""
    own = prediction.row
    return own if as_query and own is not None else prediction.query

"""The generated token that a view shows.

If the model was forced to produce a target text, the tokens of this text count as generated tokens.

A view shows a generated token in one of two rows of the weights: in the row of the query that
predicted the token, or in the row whose query is the token itself. The trait `prediction` is the
number of the token among the generated tokens. `as_query` chooses the row. `token` is the position
of the pinned query, to which this row belongs. When one of the three traits is set, the other two
are updated. `js/src/ui/generated-token/state.ts` does the same for pages without a kernel. The
tests of both languages read `tests/fixtures/generated_token.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import traitlets

from attnviz.record.tokens import Prediction
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import ResolvedIndex


@dataclass(frozen=True)
class Cursor:
    """Values of the traits `token`, `prediction` and `as_query`."""

    token: int | None
    prediction: int | None
    as_query: bool


class GeneratedToken(PositionedView):
    """Base class of views that show the generated tokens of a model, one at a time.

    Tokens of a target text, which the model was forced to produce, count as generated tokens.

    Attributes
    ----------
    prediction : int or None
        Number of the generated token that is shown, from 0. Negative numbers count from the end, so
        -1 is the last generated token. Setting `prediction` also sets `token` to the query in whose
        row the generated token is shown (see `as_query`). Setting `token` to such a query also sets
        `prediction`. Setting `token` to another query sets `prediction` to None.
    as_query : bool
        Row in which a generated token is shown. If False, this is the row of the query that
        predicted the token. If True, it is the row in which the token itself is the query.
    """

    _cursor = Cursor(None, None, as_query=False)

    as_query = traitlets.Bool(default_value=False).tag(sync=True)
    prediction = ResolvedIndex(None, allow_none=True).tag(sync=True)

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
        """Notify the observers of a changed trait.

        If the trait is `stack`, `token`, `prediction` or `as_query`, then make `token`,
        `prediction` and `as_query` consistent.
        """
        super().notify_change(change)
        # Notify the observers first. If the three traits are linked to those of another view, the
        # other view must receive `as_query` before it receives the `token` that results from it.
        if change["name"] in {"stack", "token", "prediction", "as_query"}:
            self._settle_cursor()

    def _refit(self) -> None:
        # Adapt `prediction` before the traits are validated. The validation would reset an invalid
        # `prediction` to None, which would also unpin the query.
        self._settle_cursor()
        super()._refit()

    def _settle_cursor(self) -> None:
        """Make `token`, `prediction` and `as_query` consistent."""
        if not self.stack:
            return
        predictions = self._stack_named(self.stack).query_tokens.predictions
        now = Cursor(self.token, self.prediction, self.as_query)
        self._cursor = settled(predictions, self._cursor, now)
        # Notify the observers after all three traits are set. Before, the values are inconsistent.
        with self.hold_trait_notifications():
            self.as_query = self._cursor.as_query
            self.prediction = self._cursor.prediction
            self.token = self._cursor.token


def settled(predictions: Sequence[Prediction], before: Cursor, now: Cursor) -> Cursor:
    """Return a consistent cursor after one or more of its values were set.

    `before` is the previous cursor, and `now` has the new values. The values that were not set are
    adapted to the value that was set. If both `token` and `prediction` were set and disagree,
    `prediction` is adapted to `token`. If only `prediction` was set, to None, `token` also becomes
    None. If the cursor shows a generated token that is not a query, `as_query` becomes False. A
    consistent cursor is returned unchanged.
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
    """Return the query in whose row a generated token is shown.

    The last generated token is not a query, because the model did not read it. It is shown in the
    row of the query that predicted it, even if `as_query` is True.
    """
    own = prediction.row
    return own if as_query and own is not None else prediction.query

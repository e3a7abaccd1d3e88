"""Token windows: the ranges of queries and of keys that a view of a long text shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from attnviz.views.position import PositionedView


class TokenWindows(PositionedView):
    """Base class of views that can show a part of a text.

    Attributes
    ----------
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that are shown: [start, stop], with
        stop excluded. None is the default of the view.
    """

    query_window = traitlets.List(
        traitlets.Int(), default_value=None, allow_none=True, minlen=2, maxlen=2
    ).tag(sync=True)
    key_window = traitlets.List(
        traitlets.Int(), default_value=None, allow_none=True, minlen=2, maxlen=2
    ).tag(sync=True)

    @traitlets.validate("query_window", "key_window")
    def _validate_window(self, proposal: Mapping[str, Any]) -> list[int] | None:
        window: list[int] | None = proposal["value"]
        name: str = proposal["trait"].name
        stack = self._stack_named(self.stack)
        tokens = stack.query_tokens if name == "query_window" else stack.key_tokens
        if window is not None and not 0 <= window[0] < window[1] <= len(tokens):
            raise traitlets.TraitError(
                f"{name}={window!r} must be [start, stop] within the {len(tokens)} tokens"
            )
        return window

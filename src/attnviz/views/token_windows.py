"""Token windows: the ranges of queries and of keys that a view of a long text shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, ClassVar

import numpy as np
import traitlets

from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.views.image_maps import ImageMaps
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import Choice

# Number of tokens of a default window.
DEFAULT_WINDOW = 64


class TokenWindows(PositionedView):
    """Base class of views that can show a part of a text.

    Attributes
    ----------
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that are shown: [start, stop], with
        stop excluded. None is the default of the view. If `token` or `key` is set to a token
        outside the range, the range moves to it.
    """

    #: Length of the longest text that is shown as a whole by default, or None for any length.
    max_whole_text: ClassVar[int | None] = None
    #: Whether a view of a longer text opens at the end of the prompt of a causal model.
    opens_at_end: ClassVar[bool] = True

    query_window = traitlets.List(
        traitlets.Int(), default_value=None, allow_none=True, minlen=2, maxlen=2
    ).tag(sync=True)
    key_window = traitlets.List(
        traitlets.Int(), default_value=None, allow_none=True, minlen=2, maxlen=2
    ).tag(sync=True)

    # Whether `__init__` has finished. Windows that a caller passes are not moved.
    _is_open = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_open = True

    def _first_state(self, values: dict[str, Any], stack: Any) -> dict[str, Any]:
        state = super()._first_state(values, stack)
        windows = state.get("query_window"), state.get("key_window")
        if windows != (None, None):
            return state
        if self.max_whole_text is not None:
            state |= self._opening_windows(state, stack)
        # Do not open on the silence with which a processor has filled up a sound.
        for side, pin in (("query", "token"), ("key", "key")):
            tokens: Tokens = getattr(stack, f"{side}_tokens")
            window = state.get(f"{side}_window") or self._default_window(tokens)
            end = _content_end(tokens)
            if state.get(pin) is None and window[0] < end < window[1]:
                state[f"{side}_window"] = [window[0], end]
        return state

    def _opening_windows(self, state: Mapping[str, Any], stack: AttentionStack) -> dict[str, Any]:
        """Return the windows with which a view of a long text opens, or an empty dict.

        They contain the token and the key that are pinned, and the strongest key of the token. If
        nothing is pinned, they begin before the generated answer, or are the end of the prompt of a
        causal model.
        """
        queries, keys = stack.query_tokens, stack.key_tokens
        one_text = queries is keys
        token, key = state.get("token"), state.get("key")
        # The validators of the traits refuse tokens that do not exist.
        try:
            query_at = None if token is None else queries.position(token)
            key_at = None if key is None else keys.position(key)
        except (TypeError, ValueError, IndexError):
            return {}
        if query_at is None and key_at is None:
            if not self.opens_at_end or not (stack.causal or queries.predictions):
                return {}
            answer = [prediction.query for prediction in queries.predictions]
            window = (
                _range_at(min(answer) - DEFAULT_WINDOW // 4, len(queries))
                if answer
                else _range_at(len(queries) - DEFAULT_WINDOW, len(queries))
            )
            if len(queries) <= (self.max_whole_text or 0):
                return {}
            return {"query_window": window} | ({"key_window": window} if one_text else {})
        if query_at is not None and key_at is None:
            heads = state.get("heads")
            chosen = heads if isinstance(heads, list | tuple) else [heads]
            key_at = _strongest_key(stack, state["layer"], chosen, query_at)
        windows = {
            "query_window": self._window_around(query_at, key_at if one_text else None, queries),
            "key_window": self._window_around(key_at, query_at if one_text else None, keys),
        }
        return {name: window for name, window in windows.items() if window is not None}

    def _window_around(
        self, token: int | None, other: int | None, tokens: Sized
    ) -> list[int] | None:
        """Return a default window of a long text that contains a token.

        Return None for a short text, or if both tokens are None.

        The window contains the token `other`, too, if it is near. If `token` is None, the window
        is that around `other`.
        """
        shown = [position for position in (token, other) if position is not None]
        if not shown or len(tokens) <= (self.max_whole_text or 0):
            return None
        if max(shown) - min(shown) >= DEFAULT_WINDOW // 2:
            shown = shown[:1]
        middle = (max(shown) + min(shown)) // 2
        return _range_at(middle - DEFAULT_WINDOW // 2, len(tokens))

    @traitlets.observe("token", "key")
    def _bring_in_sight(self, change: Mapping[str, Any]) -> None:
        token = change["new"]
        if token is None or not self._is_open:
            return
        side = "query" if change["name"] == "token" else "key"
        stack = self._stack_named(self.stack)
        tokens = stack.query_tokens if side == "query" else stack.key_tokens
        window = getattr(self, f"{side}_window") or self._default_window(tokens)
        if window[0] <= token < window[1]:
            return
        size = window[1] - window[0]
        moved = _range_at(token - size // 2, len(tokens), size)
        is_shared = tokens is stack.key_tokens is stack.query_tokens
        if is_shared and self.query_window == self.key_window:
            self.query_window = self.key_window = moved
        else:
            setattr(self, f"{side}_window", moved)

    def _default_window(self, tokens: Sized) -> list[int]:
        limit = self.max_whole_text
        return [0, len(tokens) if limit is None or len(tokens) <= limit else DEFAULT_WINDOW]

    def _windows_in_sight(self, stack: AttentionStack) -> tuple[Sequence[int], Sequence[int]]:
        """Return the ranges of queries and keys in sight, for the picture of a notebook."""
        queries, keys = stack.query_tokens, stack.key_tokens
        return (
            tuple(self.query_window or self._default_window(queries)),
            tuple(self.key_window or self._default_window(keys)),
        )

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


def _content_end(tokens: Tokens) -> int:
    """Return the index after the last token that is special or belongs to a text.

    Later tokens are silence after the end of a sound, which belongs to no text or is a grid of
    seconds with the name ``silence``. If no token belongs to a text, return the number of tokens.
    """
    silent = {
        position
        for grid in tokens.grids
        if (grid.name, grid.unit) == ("silence", "s")
        for position in grid.positions
    }
    columns = zip(tokens.special, tokens.sequence, strict=True)
    ends = [
        position + 1
        for position, (special, text) in enumerate(columns)
        if special or (text is not None and position not in silent)
    ]
    return ends[-1] if ends else len(tokens)


def _range_at(start: int, count: int, size: int = DEFAULT_WINDOW) -> list[int]:
    """Return a range of `size` tokens from `start` on, or as near as `count` tokens allow."""
    first = max(0, min(start, count - size))
    return [first, min(first + size, count)]


def _strongest_key(
    stack: AttentionStack, layer: int, heads: Sequence[Any], query: int
) -> int | None:
    """Return the key with the largest mean weight of a query, apart from the first token.

    Silence after the end of a sound is also omitted. Return None if the query attends to no other
    key, or if its weights cannot be computed.
    """
    chosen = [head for head in heads if head in range(stack.num_heads(layer))]
    try:
        row = stack.attention(layer).block(
            chosen or range(stack.num_heads(layer)), slice(query, query + 1)
        )
    except (OSError, RuntimeError, ValueError):
        # The view requests the weights, too, and shows the error.
        return None
    weights: np.ndarray[Any, Any] = row.float().mean(dim=0)[0].abs().cpu().numpy()
    weights[0] = 0
    weights[_content_end(stack.key_tokens) :] = 0
    weights = np.nan_to_num(weights)
    return int(weights.argmax()) if weights.any() else None


class HeatMap(ImageMaps, TokenWindows):
    """Base class of views that show weights as a heat map.

    Attributes
    ----------
    color_scale : {"linear", "log"}
        Scale of the colours of the heat map.
    pooled : {"mean", "max"}
        Value of a cell that covers several weights: their mean, or the largest. Cells cover several
        weights if a text is too long to show each weight.
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that the heat map shows: [start,
        stop], with stop excluded. None shows all.
    """

    color_scale = Choice(["linear", "log"], "linear").tag(
        sync=True, label="Colour", labels={"log": "logarithm"}
    )
    pooled = Choice(["mean", "max"], "mean").tag(
        sync=True, label="Cells show", labels={"max": "maximum"}
    )

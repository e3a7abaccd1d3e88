"""What each view asks first, so that its answers can travel with its widget.

The one place where Python knows it. The views themselves ask in ``planOf`` and ``load`` of
``js/src/views/head/state.ts`` (lines), ``js/src/ui/heat-map/tiles.ts`` (a tile),
``js/src/views/model/maps.ts`` (maps), ``js/src/views/neuron/store.ts`` (queries and keys) and
``js/src/ui/view/record.ts`` (small maps of a layer's heads). The tests in
``tests/browser/test_first_picture.py`` draw the views and fail if one asks for anything else. An
answer that a view does not ask for costs its bytes and nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnviz.record.record import AttentionStack
from attnviz.server.first_answers import MOST_BYTES, MOST_WEIGHTS, FirstRequest, FirstRequests
from attnviz.server.protocol import MAX_REPLY_BYTES
from attnviz.server.tiles import TILE

__all__ = ["first_requests"]

# Of the lines: rows that are asked for together, values that are sent exact and not in a byte each,
# and where a text is so long that its rows are not loaded whole.
_ROWS_AT_ONCE = 64
_MOST_EXACT = 1 << 16
_LARGE = 4_000_000
_MOST_KEYS = 2048
# A list of tokens of which all are in sight, and how many are of a longer one.
_ALL_IN_SIGHT = 100
_FIRST_IN_SIGHT = 64
_MOST_IN_SIGHT = 2000
# Keys of a query that the neuron view shows at once.
_KEYS_AT_ONCE = 64
# Cells a side of the small maps by which heads are chosen, and of thumbnails; of all thumbnails at
# most so many bytes.
_SMALL_MAP = 32
_THUMBNAILS = (64, 32, 16)
_THUMBNAIL_BYTES = 160_000


def first_requests(view: str, stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """What a view of a record asks before and right after its first picture.

    Parameters
    ----------
    view : str
        The view's name.
    stack : AttentionStack
        That it shows.
    state : dict
        The view's traits.
    """
    yield FirstRequest("describe", {})
    if _opens_with_rows(state):
        for ask in _PICTURES.get(view, ()):
            yield from ask(stack, state)
    if view in _PICTURES:
        yield _maps(stack, state["layer"], _SMALL_MAP)


def _opens_with_rows(state: Mapping[str, Any]) -> bool:
    """Of the changed run, and of one half of a pair, a view asks when it is there."""
    run, pair = state.get("shown_run", "before"), state.get("pair", "all")
    return (run, pair) == ("before", "all")


def _shown_heads(stack: AttentionStack, state: Mapping[str, Any]) -> list[int]:
    """The chosen heads, or all that are known."""
    return list(state["heads"]) or list(stack.kept_heads(state["layer"]))


def _maps(stack: AttentionStack, layer: int, size: int) -> FirstRequest:
    """Maps of all heads of a layer."""
    weights = len(stack.kept_heads(layer)) * _pairs(stack)
    return FirstRequest("maps", {"stack": stack.name, "layer": layer, "size": size}, weights)


def _pairs(stack: AttentionStack) -> int:
    return len(stack.query_tokens) * len(stack.key_tokens)


def _lines(stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """The rows of the queries in sight, all keys."""
    num_keys = len(stack.key_tokens)
    heads = _shown_heads(stack, state)
    first, stop = _rows(stack, state)
    key_window = _window(state["key_window"], num_keys)
    if key_window != (0, num_keys) and num_keys > _MOST_KEYS:
        return
    values = len(heads) * (stop - first) * num_keys
    exact = values <= _MOST_EXACT
    if values > _LARGE or (4 if exact else 1) * values > MAX_REPLY_BYTES:
        return
    arguments = {
        "stack": stack.name,
        "layer": state["layer"],
        "rows": [first, stop],
        "columns": [0, num_keys],
        "heads": heads,
        # The view asks once more, exact, when it is drawn.
        "precision": "float32" if exact else "uint8",
    }
    yield FirstRequest("block", arguments, values)


def _rows(stack: AttentionStack, state: Mapping[str, Any]) -> tuple[int, int]:
    """The rows that are asked for together, with those of the queries in sight."""
    num_queries = len(stack.query_tokens)
    first, stop = _window(state["query_window"], num_queries)
    last = math.ceil(stop / _ROWS_AT_ONCE) * _ROWS_AT_ONCE
    return first // _ROWS_AT_ONCE * _ROWS_AT_ONCE, min(num_queries, last)


def _window(window: Sequence[int] | None, count: int) -> tuple[int, int]:
    """The tokens in sight."""
    if window is None:
        return 0, count if count <= _ALL_IN_SIGHT else _FIRST_IN_SIGHT
    start = max(0, min(window[0], count - 1))
    return start, min(max(start + 1, min(window[1], start + _MOST_IN_SIGHT)), count)


def _tile(stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """The heat map; of a text that is too long for one tile all of it, coarse."""
    heads = _shown_heads(stack, state)
    longest = max(len(stack.query_tokens), len(stack.key_tokens))
    level = max(0, math.ceil(math.log2(longest / TILE)))
    arguments = {
        "stack": stack.name,
        "layer": state["layer"],
        "heads": heads,
        "pooled": state["pooled"],
        "precision": "float32",
        "level": level,
        "row": 0,
        "column": 0,
    }
    yield FirstRequest("tile", arguments, len(heads) * _pairs(stack))


def _thumbnails(stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """Maps of all heads, as fine as there is room for; the view asks again for finer ones."""
    del state
    longest = max(len(stack.query_tokens), len(stack.key_tokens))
    count = sum(len(stack.kept_heads(layer)) for layer in stack.layers)
    # Some of them would be no picture yet.
    least = count * _map_bytes(stack, _THUMBNAILS[-1])
    if count * _pairs(stack) > MOST_WEIGHTS or least > MOST_BYTES:
        return
    size = next(
        (each for each in _THUMBNAILS if count * _map_bytes(stack, each) <= _THUMBNAIL_BYTES),
        _THUMBNAILS[-1],
    )
    if longest <= _SMALL_MAP:
        size = min(size, _SMALL_MAP)
    for layer in stack.layers:
        yield _maps(stack, layer, size)


def _detail(stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """The heat map of the head that is open."""
    if state["heads"]:
        yield from _tile(stack, {**state, "heads": state["heads"][:1]})


def _map_bytes(stack: AttentionStack, size: int) -> int:
    return min(len(stack.query_tokens), size) * min(len(stack.key_tokens), size)


def _vectors(stack: AttentionStack, state: Mapping[str, Any]) -> FirstRequests:
    """The query, and the keys around the pinned one or the strongest."""
    if not stack.has_vectors:
        return
    num_keys = len(stack.key_tokens)

    def asked(start: int) -> FirstRequest:
        first = max(0, min(start, num_keys - _KEYS_AT_ONCE))
        arguments = {
            "stack": stack.name,
            "layer": state["layer"],
            "head": _shown_heads(stack, state)[0],
            "token": _query(stack, state["token"]),
            "keys": [first, min(num_keys, first + _KEYS_AT_ONCE)],
        }
        return FirstRequest("vectors", arguments, num_keys)

    if state["key"] is not None:
        yield asked(state["key"] - _KEYS_AT_ONCE // 2)
        return
    reply = yield asked(0)
    strongest = reply.header["strongest"] if reply is not None else ()
    if strongest and strongest[0][0] >= _KEYS_AT_ONCE:
        yield asked(strongest[0][0] - _KEYS_AT_ONCE // 2)


def _query(stack: AttentionStack, token: int | None) -> int:
    """The pinned query, or the last that is not a special token."""
    if token is not None:
        return token
    special = stack.query_tokens.special
    last = len(special) - 1
    return next((at for at in range(last, -1, -1) if not special[at]), last)


_PICTURES: dict[str, tuple[Callable[[AttentionStack, Mapping[str, Any]], FirstRequests], ...]] = {
    "head": (_lines,),
    "matrix": (_tile,),
    "model": (_thumbnails, _detail),
    "neuron": (_vectors,),
    "dashboard": (_thumbnails, _lines, _tile),
}

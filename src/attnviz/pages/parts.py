"""Which texts of a page's data stand in elements apart from them, and in which order.

A page draws its first picture before a browser has read it to its end. So its data are small: where
a piece has a long text, base64 of deflated bytes, they have ``"#0003"`` in its place, and the text
is that of the page's fourth part. Parts are templates, which are inert. Those of the first picture
stand before the page's code, all others after it: first what the view shows of all layers, then the
layers, the nearest to the one that is shown first. Of a layer whose first rows are there by
themselves (`attnviz.pages.first_rows`) only these stand before the code.
``js/src/client/page/parts.ts`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Parted", "extra_bytes", "parted"]

#: A shorter text costs less where it is than an element of its own would.
LEAST = 4_000

# A browser reads a long text in a template a third faster than one in a script element.
_ELEMENT = '<template class="attnviz-part">{}</template>\n'
_NAME = "#{:04}"
#: What a part takes beside its text.
_BYTES = len(_ELEMENT.format("")) + len(_NAME.format(0))

# Views that open with the maps of all layers.
_ALL_LAYERS = frozenset({"model", "dashboard"})
# Views that open with the same layer of all stacks.
_ALL_STACKS = frozenset({"compare"})

_FIRST, _LAST = (0, 0), (3, 0)

# Entries of a layer's queries and keys that are places of arrays.
_ARRAYS = frozenset({"queries", "keys", "bits", "values", "query_places", "key_places"})


class Parted(NamedTuple):
    """Data, and the elements of their parts.

    Attributes
    ----------
    data : dict
        With names in place of long texts.
    texts : list of str
        The texts, in the order of their names.
    first, rest : str
        The elements of those that the first picture needs, and of all others.
    """

    data: dict[str, Any]
    texts: list[str]
    first: str
    rest: str


class _Slot(NamedTuple):
    """Where a long text is, and when it is needed."""

    holder: Any
    key: str | int
    rank: tuple[int, int]


def parted(data: Mapping[str, Any]) -> Parted:
    """Set the long texts of a page's data apart.

    Parameters
    ----------
    data : mapping
        What the page contains, as `attnviz.pages.html.page_steps` collects it.

    Examples
    --------
    >>> blocks = [{"stack": "self", "layer": layer, "data": "A" * 5000} for layer in (0, 1)]
    >>> page = parted({"view": "head", "state": {"layer": 1}, "blocks": blocks})
    >>> [block["data"] for block in page.data["blocks"]]
    ['#0001', '#0000']
    """
    copied = dict(data)
    order = _Order(data)
    slots: list[_Slot] = []
    for kind in ("first_rows", "maps", "blocks"):
        if kind in data:
            copied[kind] = pieces = [dict(each) for each in data[kind]]
            slots += [_Slot(each, "data", order.of(kind, each)) for each in pieces]
    if "images" in data:
        copied["images"] = images = [dict(each) for each in data["images"]]
        slots += [_Slot(each, "data", _FIRST) for each in images]
    if "vectors" in data:
        arrays = list(data["vectors"]["arrays"])
        copied["vectors"] = {**data["vectors"], "arrays": arrays}
        ranks = order.of_arrays(data["vectors"]["layers"])
        slots += [_Slot(arrays, place, ranks.get(place, _LAST)) for place in range(len(arrays))]
    long = [each for each in slots if len(each.holder[each.key]) >= LEAST]
    # Sorting keeps the order of equals, so equal data give equal pages.
    long.sort(key=lambda slot: slot.rank)
    texts = [slot.holder[slot.key] for slot in long]
    for place, slot in enumerate(long):
        slot.holder[slot.key] = _NAME.format(place)
    count = sum(slot.rank == _FIRST for slot in long)
    return Parted(copied, texts, _elements(texts[:count]), _elements(texts[count:]))


def extra_bytes(texts: Iterable[str]) -> int:
    """What texts of pieces take beside themselves, where they stand apart."""
    return _BYTES * sum(len(each) >= LEAST for each in texts)


def _elements(texts: Iterable[str]) -> str:
    return "".join(map(_ELEMENT.format, texts))


class _Order:
    """When pieces are needed."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._view, state = data.get("view", ""), data.get("state", {})
        stacks = data.get("description", {}).get("stacks", [])
        self._has_first_rows = {self._place(each) for each in data.get("first_rows", [])}
        known = {each["name"]: each.get("layers", []) for each in stacks}
        # What a view opens with whose state names no stack or layer of the record.
        stack = state.get("stack") if state.get("stack") in known else next(iter(known), "")
        layers = known.get(stack, [])
        layer = state.get("layer", 0)
        self._layer = layer if layer in layers else next(iter(layers), layer)
        self._shown = {(stack, self._layer)}
        if self._view in _ALL_STACKS or state.get("changed_run"):
            self._shown |= {(name, self._layer) for name in known}

    @staticmethod
    def _place(piece: Mapping[str, Any]) -> tuple[str, int]:
        return piece["stack"], piece["layer"]

    def of(self, kind: str, piece: Mapping[str, Any]) -> tuple[int, int]:
        """The order of a piece among all."""
        place = self._place(piece)
        follows_its_rows = kind == "blocks" and place in self._has_first_rows
        if place in self._shown and not follows_its_rows:
            return _FIRST
        early = kind != "blocks" and self._view in _ALL_LAYERS
        return 1 if early else 2, abs(piece["layer"] - self._layer)

    def of_arrays(self, layers: Iterable[Mapping[str, Any]]) -> dict[int, tuple[int, int]]:
        """The order of the arrays of queries and keys: of the first layer that needs each."""
        ranks: dict[int, tuple[int, int]] = {}
        for layer in layers:
            rank = self.of("blocks", layer)
            for place in _arrays(layer):
                ranks[place] = min(rank, ranks.get(place, rank))
        return ranks


def _arrays(layer: Mapping[str, Any]) -> Iterator[int]:
    for key, value in layer.items():
        if isinstance(value, Mapping):
            yield from _arrays(value)
        elif key in _ARRAYS:
            yield value

"""Masks and position biases, each in the smallest form that represents it exactly.

For n tokens, the memory of queries and keys grows with n, but that of a full n x n mask would grow
with n squared. Nearly all masks allow a band around the diagonal (causal attention, sliding
window), or divide the patches of an image into windows. Nearly all position biases depend only on
the distance of query and key. If the few parameters of such a form reproduce every entry, a record
stores these parameters. Otherwise, it stores every entry.

Rows are queries and columns are keys. Entries are computed on demand and on any device, for one
block at a time: for a slice or tensor of rows, and a slice of columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import torch

from attnviz.utils.arrays import moved

#: Queries of a block: a slice with start and stop, or an int64 tensor of positions.
Rows = slice | torch.Tensor
#: Device of the result of a method. None means the device of the tensors that the mask or bias
#: stores, or the CPU if it stores none.
Device = torch.device | None
#: Serialized mask or bias: values for JSON, beginning with ``"kind"``, and tensors by name.
Parts = tuple[dict[str, Any], dict[str, torch.Tensor]]

# Number of rows for which `compact_mask` and `compact_bias` compare entries at once. For 131,072
# keys, the flags of these rows take 32 MiB.
_ROWS_PER_BLOCK = 256


def _positions(
    rows: Rows, columns: slice, device: Device = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the row positions, (rows, 1), and the column positions, (1, columns), of a block."""
    numbers = (
        torch.arange(rows.start, rows.stop, device=device)
        if isinstance(rows, slice)
        else moved(rows, device)
    )
    return numbers[:, None], torch.arange(columns.start, columns.stop, device=device)[None, :]


def _ends(rows: Rows) -> tuple[int, int]:
    """Return the smallest and the largest of `rows`."""
    if isinstance(rows, slice):
        return rows.start, rows.stop - 1
    return int(rows.min()), int(rows.max())


def _has_index_for_each(numbers: torch.Tensor, count: int, stop: int | None = None) -> bool:
    """Whether `numbers` is int64, (count,), and can index an axis of length `stop`.

    Such an index is from 0 to `stop` - 1. If `stop` is None, the numbers themselves are not
    checked.
    """
    is_int64 = numbers.dtype == torch.int64 and tuple(numbers.shape) == (count,)
    return is_int64 and (stop is None or (int(numbers.min()) >= 0 and int(numbers.max()) < stop))


class _Part(ABC):
    """Base class of masks and biases.

    Subclasses are dataclasses. Their fields are numbers, None, tensors or another mask.
    """

    #: Name of the class in saved files.
    kind: ClassVar[str]

    @property
    def num_heads(self) -> int:
        """Number of heads, or 1 if all heads share the same entries."""
        return 1

    @abstractmethod
    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the mask or bias is valid for these numbers of heads, queries and keys."""

    def to_parts(self) -> Parts:
        """Return numbers and tensors from which `from_parts` creates the same mask or bias.

        A field may contain another mask, such as `CutMask.base`. The names of the tensors of this
        inner mask then begin with the name of the field, as in ``"base.bits"``.
        """
        numbers: dict[str, Any] = {"kind": self.kind}
        tensors: dict[str, torch.Tensor] = {}
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                tensors[field.name] = value
            elif isinstance(value, _Part):
                numbers[field.name], inner = value.to_parts()
                tensors |= {f"{field.name}.{name}": tensor for name, tensor in inner.items()}
            else:
                numbers[field.name] = value
        return numbers, tensors

    def equals(self, other: Mask | Bias) -> bool:
        """Whether `other` has the same class and the same parameters.

        Masks of different classes are not equal, even if they allow the same pairs.
        """
        (numbers, tensors), (other_numbers, other_tensors) = self.to_parts(), other.to_parts()
        return numbers == other_numbers and all(
            torch.equal(tensor, other_tensors[name]) for name, tensor in tensors.items()
        )


class Mask(_Part):
    """Keys that each query may attend to."""

    @property
    def offset(self) -> int:
        """Index of the key that is the same token as query 0, or 0 if the mask stores none."""
        return 0

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid all keys after the query's own token.

        False if this could be determined only by reading the entries of the mask.
        """
        return False

    @abstractmethod
    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return whether each query may attend to each key, bool, (rows, columns)."""

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        """Return a range of keys within `columns` to which all of `rows` may attend.

        Keys outside this range may also be visible to all of `rows`, because the entries of the
        mask are not read. The range is empty if no such keys are known.
        """
        del rows
        return slice(columns.start, columns.start)

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        """Return a range that contains all keys to which at least one of `rows` may attend.

        `rows` must not be empty. The range may also contain keys to which none of `rows` may
        attend.
        """
        del rows
        return slice(0, num_keys)

    def permute(self, order: torch.Tensor) -> Mask:
        """Return the mask for the same tokens in another order.

        Queries and keys must be the same tokens. `order` is int64, (tokens,): the old position of
        the token at each new position.
        """
        flags = self.all_allowed(len(order), len(order))
        return PackedMask.pack(flags[:, order][:, :, order])

    def left_out(
        self, head: int, rows: Rows, columns: slice, device: Device = None
    ) -> torch.Tensor:
        """Return whether each pair of a block is left out, bool, (rows, columns).

        A pair is left out if the query could attend to the key, but the model has chosen other keys
        (see `ChosenMask`). By default, no pair is left out.
        """
        del head
        query, key = _positions(rows, columns, device)
        return torch.zeros(len(query), key.shape[1], dtype=torch.bool, device=device)

    def all_allowed(self, num_queries: int, num_keys: int) -> torch.Tensor:
        """Return whether each query may attend to each key, bool, (heads or 1, queries, keys)."""
        pairs = slice(0, num_queries), slice(0, num_keys)
        return torch.stack([self.allowed(head, *pairs) for head in range(self.num_heads)])


class Bias(_Part):
    """Values that are added to the logits after the soft cap."""

    @abstractmethod
    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return the values of a block, float32, (rows, columns).

        If the bias is the same for all queries, the result may have a single row, (1, columns).
        """

    def permute(self, order: torch.Tensor) -> Bias:
        """Return the bias for the same tokens in another order (see `Mask.permute`).

        All tokens are one window, so their number should be small.
        """
        every = slice(0, len(order))
        values = [self.added(head, every, every) for head in range(self.num_heads)]
        tokens = torch.stack([block.expand(len(order), -1) for block in values])[None]
        windows = torch.zeros_like(order)
        return WindowBias(tokens, windows, windows, order, order)


# Largest absolute value of `before`, `after` and `offset` of a `BandMask`. Their sums with a
# position then do not overflow int64.
_MAX_POSITION = 1 << 53


@dataclass(frozen=True)
class BandMask(Mask):
    """Mask that allows keys near the query's own token: causal, sliding window, or both.

    Key ``i + offset`` is the token of query ``i``. The query may attend to at most `before` keys
    before this key, to the key itself, and to at most `after` keys after it. None means no limit.
    With negative numbers, the range begins or ends on the other side: key ``j`` is allowed if
    ``i + offset - before <= j <= i + offset + after``. Causal attention is ``BandMask(None, 0)``,
    and a causal window of w keys is ``BandMask(w - 1, 0)``.
    """

    kind = "band"

    before: int | None
    after: int | None
    offset: int = 0

    @property
    def causal(self) -> bool:
        """Whether the band contains no key after the query."""
        return self.after is not None and self.after <= 0

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        del head
        query, key = _positions(rows, columns, device)
        own_key = query + self.offset
        # Compare the positions by broadcasting. An int64 array with the distances of all pairs
        # would take eight times the memory of the flags.
        flags = torch.ones(len(query), key.shape[1], dtype=torch.bool, device=device)
        if self.after is not None:
            flags = key <= own_key + self.after
        if self.before is not None:
            flags &= key >= own_key - self.before
        return flags

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        """Return the range of keys from the first to the last to which any of `rows` may attend.

        >>> BandMask(None, 0).key_range(slice(4, 8), 100)
        slice(0, 8, None)
        """
        first, last = _ends(rows)
        start, stop = 0, num_keys
        if self.before is not None:
            start = min(num_keys, max(0, first + self.offset - self.before))
        if self.after is not None:
            stop = min(num_keys, max(0, last + self.offset + self.after + 1))
        return slice(start, max(start, stop))

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        """Return the range of keys within `columns` to which all of `rows` may attend.

        >>> BandMask(None, 0).fully_visible_keys(slice(4, 8), slice(2, 100))
        slice(2, 5, None)
        """
        first, last = _ends(rows)
        start, stop = columns.start, columns.stop
        if self.before is not None:
            start = max(start, last + self.offset - self.before)
        if self.after is not None:
            stop = min(stop, first + self.offset + self.after + 1)
        return slice(start, stop) if start < stop else slice(columns.start, columns.start)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether `before`, `after` and `offset` are valid. A band fits any numbers of tokens."""
        del num_heads, num_queries, num_keys
        numbers: list[Any] = [self.offset]
        numbers += [limit for limit in (self.before, self.after) if limit is not None]
        return all(isinstance(n, int) and abs(n) <= _MAX_POSITION for n in numbers)


@dataclass(frozen=True)
class PackedMask(Mask):
    """Mask of any form, stored with one bit per entry.

    `bits` is uint8, (heads or 1, queries, ceil(keys / 8)). Each byte holds eight keys, and the
    lowest bit is the first of them. A bit is 1 if the query may attend to the key.
    """

    kind = "packed"

    bits: torch.Tensor
    num_keys: int

    @classmethod
    def pack(cls, flags: torch.Tensor) -> PackedMask:
        """Create a mask on the CPU from bool flags, (heads or 1, queries, keys)."""
        heads, queries, keys = flags.shape
        # Pack on the device of the flags, so that only an eighth of their bytes is copied.
        device = flags.device
        padded = torch.zeros(heads, queries, -(-keys // 8) * 8, dtype=torch.uint8, device=device)
        padded[..., :keys] = flags.to(torch.uint8)
        powers = 2 ** torch.arange(8, dtype=torch.uint8, device=device)
        bits = (padded.unflatten(-1, (-1, 8)) * powers).sum(-1, dtype=torch.uint8)
        return cls(bits.cpu(), keys)

    @property
    def num_heads(self) -> int:
        return len(self.bits)

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        first, last = columns.start // 8, -(-columns.stop // 8)
        bits = moved(self.bits[head if self.num_heads > 1 else 0][rows, first:last], device)
        column = torch.arange(columns.start, columns.stop, device=device) - 8 * first
        flags: torch.Tensor = (bits[:, column // 8] >> (column % 8).to(torch.uint8)) & 1 == 1
        return flags

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the mask has a bit for every head, query and key."""
        shapes = {(heads, num_queries, -(-num_keys // 8)) for heads in (1, num_heads)}
        fits = self.num_keys == num_keys and tuple(self.bits.shape) in shapes
        return fits and self.bits.dtype == torch.uint8


@dataclass(frozen=True)
class WindowMask(Mask):
    """Mask for tokens in windows: a query may attend to the keys of the same window.

    Swin and some vision-language models divide the patches of an image into such windows.
    `query_windows` and `key_windows` are int64, (queries,) and (keys,). They contain the number of
    each token's window. Tokens with the same number are in the same window.

    >>> windows = torch.tensor([0, 0, 1])
    >>> WindowMask(windows, windows).allowed(0, slice(0, 1), slice(0, 3)).tolist()
    [[True, True, False]]
    """

    kind = "windows"

    query_windows: torch.Tensor
    key_windows: torch.Tensor

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        del head
        queries = moved(self.query_windows[rows], device)
        return queries[:, None] == moved(self.key_windows[columns], device)

    def permute(self, order: torch.Tensor) -> WindowMask:
        return WindowMask(self.query_windows[order], self.key_windows[order])

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the mask has a window for each of the queries and keys."""
        del num_heads
        return _has_index_for_each(self.query_windows, num_queries) and _has_index_for_each(
            self.key_windows, num_keys
        )


class _NarrowedMask(Mask):
    """Mask that allows only pairs that another mask, `base`, allows.

    If `base` is None, no pair is excluded for this reason.
    """

    base: Mask | None

    @property
    def _base(self) -> Mask:
        return BandMask(None, None) if self.base is None else self.base

    @property
    def offset(self) -> int:
        return self._base.offset

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        return self._base.key_range(rows, num_keys)


@dataclass(frozen=True)
class CutMask(_NarrowedMask):
    """Mask that forbids selected query-key pairs, in addition to those that `base` forbids.

    A selected pair is called cut. A pair is cut in a head if three flags are True: that of the head
    in `heads`, bool, (heads,), or (1,) for all heads; that of the query in `queries`, bool,
    (queries,); and that of the key in `keys`, bool, (keys,), or (heads, keys) if the flags differ
    between heads. A pair that the mask `kept` allows is never cut. If `kept` is None, there is no
    such exception. If `base` is None, all pairs that are not cut are allowed.

    >>> queries, keys = torch.tensor([False, True]), torch.tensor([True, False])
    >>> cut = CutMask(torch.tensor([True]), queries, keys, BandMask(None, 0))
    >>> cut.allowed(0, slice(0, 2), slice(0, 2)).tolist()
    [[True, False], [False, True]]
    """

    kind = "cut"

    heads: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    base: Mask | None = None
    kept: Mask | None = None

    @property
    def num_heads(self) -> int:
        keys = len(self.keys) if self.keys.dim() == 2 else 1
        return max(len(self.heads), keys, self._base.num_heads)

    @property
    def causal(self) -> bool:
        return self._base.causal

    def cut(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return whether each pair of a block is cut in `head`, bool, (rows, columns)."""
        keys = moved((self.keys[head] if self.keys.dim() == 2 else self.keys)[columns], device)
        head_is_cut = bool(self.heads[head if len(self.heads) > 1 else 0])
        flags = moved(self.queries[rows], device)[:, None] & (keys & head_is_cut)
        if self.kept is not None:
            flags &= ~self.kept.allowed(head, rows, columns, device)
        return flags

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        is_cut = self.cut(head, rows, columns, device)
        return self._base.allowed(head, rows, columns, device) & ~is_cut

    def left_out(
        self, head: int, rows: Rows, columns: slice, device: Device = None
    ) -> torch.Tensor:
        is_cut = self.cut(head, rows, columns, device)
        return self._base.left_out(head, rows, columns, device) & ~is_cut

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        if bool(self.queries[rows].any()) and bool(self.keys[..., columns].any()):
            return slice(columns.start, columns.start)
        return self._base.fully_visible_keys(rows, columns)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the flags have valid dtypes and shapes, and `base` and `kept` fit."""
        flags = self.heads, self.queries, self.keys
        return (
            all(flag.dtype == torch.bool for flag in flags)
            and tuple(self.heads.shape) in {(1,), (num_heads,)}
            and tuple(self.queries.shape) == (num_queries,)
            and tuple(self.keys.shape) in {(num_keys,), (num_heads, num_keys)}
            and all(
                mask is None or mask.fits(num_heads, num_queries, num_keys)
                for mask in (self.base, self.kept)
            )
        )


@dataclass(frozen=True)
class ChosenMask(_NarrowedMask):
    """Mask of a layer that attends only to some of the keys that it could attend to.

    `base` allows the keys that each query could attend to, for example all earlier tokens. If it is
    None, these are all keys. `chosen` allows the keys that were chosen, for example by the indexer
    of a model, or because the cache keeps no others. A pair is allowed if both masks allow it. It
    is left out if only `base` allows it.

    >>> chosen = ChosenMask(BandMask(0, None), BandMask(None, 0))
    >>> chosen.allowed(0, slice(0, 2), slice(0, 2)).tolist()
    [[True, False], [False, True]]
    >>> chosen.left_out(0, slice(0, 2), slice(0, 2)).tolist()
    [[False, False], [True, False]]
    """

    kind = "chosen"

    chosen: Mask
    base: Mask | None = None

    @property
    def num_heads(self) -> int:
        return max(self.chosen.num_heads, self._base.num_heads)

    @property
    def causal(self) -> bool:
        return self.chosen.causal or self._base.causal

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        is_chosen = self.chosen.allowed(head, rows, columns, device)
        return self._base.allowed(head, rows, columns, device) & is_chosen

    def left_out(
        self, head: int, rows: Rows, columns: slice, device: Device = None
    ) -> torch.Tensor:
        is_chosen = self.chosen.allowed(head, rows, columns, device)
        return self._base.allowed(head, rows, columns, device) & ~is_chosen

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        return self.chosen.fully_visible_keys(rows, self._base.fully_visible_keys(rows, columns))

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        keys, in_base = (mask.key_range(rows, num_keys) for mask in (self.chosen, self._base))
        start = max(keys.start, in_base.start)
        return slice(start, max(start, min(keys.stop, in_base.stop)))

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether both `chosen` and `base` fit."""
        masks = self.chosen, self._base
        return all(mask.fits(num_heads, num_queries, num_keys) for mask in masks)


@dataclass(frozen=True)
class LeftOutMask(Mask):
    """Mask that allows exactly the pairs that the mask `of` leaves out.

    >>> mask = LeftOutMask(ChosenMask(BandMask(0, None), BandMask(None, 0)))
    >>> mask.allowed(0, slice(0, 2), slice(0, 2)).tolist()
    [[False, False], [True, False]]
    """

    kind = "left out"

    of: Mask

    @property
    def num_heads(self) -> int:
        return self.of.num_heads

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        return self.of.left_out(head, rows, columns, device)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        return self.of.fits(num_heads, num_queries, num_keys)


@dataclass(frozen=True)
class DistanceBias(Bias):
    """Bias that depends only on the distance from query to key (T5, ALiBi).

    `values` is float32, (heads or 1, num_queries + num_keys - 1). The number that is added to the
    logit of query ``i`` and key ``j`` in head ``h`` is ``values[h, (j - i) + num_queries - 1]``.
    """

    kind = "distance"

    values: torch.Tensor
    num_queries: int

    @property
    def num_heads(self) -> int:
        return len(self.values)

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        query, key = _positions(rows, columns, device)
        values = moved(self.values[head if self.num_heads > 1 else 0], device)
        return values[key - query + self.num_queries - 1]

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the bias has a value for every distance of a query and a key."""
        shapes = {(heads, num_queries + num_keys - 1) for heads in (1, num_heads)}
        return self.num_queries == num_queries and tuple(self.values.shape) in shapes


@dataclass(frozen=True)
class DenseBias(Bias):
    """Bias of any form. `values` is float32, (heads or 1, queries or 1, keys)."""

    kind = "dense"

    values: torch.Tensor

    @property
    def num_heads(self) -> int:
        return len(self.values)

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        values = self.values[head if self.num_heads > 1 else 0]
        return moved(values[rows if len(values) > 1 else slice(0, 1), columns], device)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether `values` has one of the shapes (heads or 1, queries or 1, keys)."""
        return tuple(self.values.shape) in {
            (heads, rows, num_keys) for heads in (1, num_heads) for rows in (1, num_queries)
        }


@dataclass(frozen=True)
class WindowBias(Bias):
    """Bias that depends on the positions of query and key within a window.

    `values` is float32, (windows or 1, heads or 1, queries of a window, keys of a window). If all
    windows have the same values, the first axis may have length 1. The other tensors are int64,
    (queries,) or (keys,). `query_windows` and `key_windows` contain the number of each token's
    window. `query_positions` and `key_positions` contain the index of each token within its window,
    which is an index of the last two axes of `values`.
    """

    kind = "in windows"

    values: torch.Tensor
    query_windows: torch.Tensor
    key_windows: torch.Tensor
    query_positions: torch.Tensor
    key_positions: torch.Tensor

    @property
    def num_heads(self) -> int:
        return self.values.shape[1]

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return the values of a block, float32. They are 0 for tokens in different windows."""
        values = moved(self.values[:, head if self.num_heads > 1 else 0], device)
        windows = moved(self.query_windows[rows][:, None], device)
        block = values[
            windows if len(values) > 1 else torch.zeros_like(windows),
            moved(self.query_positions[rows][:, None], device),
            moved(self.key_positions[columns], device),
        ]
        return block.masked_fill(windows != moved(self.key_windows[columns], device), 0.0)

    def permute(self, order: torch.Tensor) -> WindowBias:
        return WindowBias(
            self.values,
            self.query_windows[order],
            self.key_windows[order],
            self.query_positions[order],
            self.key_positions[order],
        )

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether `values` has an entry for every head, and for every token's window and index."""
        windows, heads, rows, columns = self.values.shape
        return (
            _has_index_for_each(self.query_windows, num_queries)
            and _has_index_for_each(self.key_windows, num_keys)
            and heads in (1, num_heads)
            and self.values.is_floating_point()
            and _has_index_for_each(self.query_positions, num_queries, rows)
            and _has_index_for_each(self.key_positions, num_keys, columns)
            and (windows == 1 or _has_index_for_each(self.query_windows, num_queries, windows))
        )


_KINDS: dict[str, type[Mask | Bias]] = {
    cls.kind: cls
    for cls in (
        BandMask,
        PackedMask,
        WindowMask,
        CutMask,
        ChosenMask,
        DistanceBias,
        DenseBias,
        WindowBias,
    )
}


def from_parts(numbers: Mapping[str, Any], tensor: Callable[[str], torch.Tensor]) -> Mask | Bias:
    """Create a mask or bias from the result of its method `to_parts`.

    `numbers` is the first item of this result. The function `tensor` must return the tensors of the
    second item by their names. Raise LookupError, TypeError or ValueError if `numbers` is invalid.
    """
    if numbers["kind"] not in _KINDS:
        raise ValueError(f"unknown kind of mask or bias: {numbers['kind']!r}")
    cls = _KINDS[numbers["kind"]]
    values = {name: number for name, number in numbers.items() if name != "kind"}
    for field, value in values.items():
        if isinstance(value, Mapping):
            values[field] = from_parts(value, partial(_nested_tensor, tensor, field))
            if not isinstance(values[field], Mask):
                raise TypeError(f"{field} of a mask must be a mask")
    names = [field.name for field in fields(cls) if field.name not in values]  # type: ignore[arg-type]
    return cls(**values, **{name: tensor(name) for name in names})


def _nested_tensor(tensor: Callable[[str], torch.Tensor], field: str, name: str) -> torch.Tensor:
    return tensor(f"{field}.{name}")


def compact_mask(allowed: torch.Tensor) -> Mask | None:
    """Return the mask with the flags `allowed`, in the smallest form that reproduces them.

    `allowed` is bool, (heads or 1, queries, keys). Return None if all flags are True. Otherwise,
    return a `BandMask` if all heads have the same band, or else a `PackedMask`.
    The flags stay on their device. Only a few numbers, or the packed bits, are copied to the CPU.

    >>> compact_mask(torch.ones(1, 5, 5, dtype=torch.bool).tril())
    BandMask(before=None, after=0, offset=0)
    """
    allowed = allowed.detach()
    if not allowed.numel():
        return None
    # Read all numbers at once, because each time the host waits for the device.
    first, last = allowed[0, 0], allowed[0, -1]
    numbers = [
        allowed.all(),
        (allowed[1:] == allowed[:1]).all(),
        first.any() & last.any(),
        first.flip(0).int().argmax(),
        last.int().argmax(),
    ]
    are_all, are_same, has_ends, *ends = torch.stack([one.long() for one in numbers]).tolist()
    if are_all:
        return None
    if are_same:
        allowed = allowed[:1]
        band = _band_of(ends[0], ends[1], allowed.shape[1:]) if has_ends else None
        if band is not None and _is_equal(band, allowed[0]):
            return band
    return PackedMask.pack(allowed)


def _band_of(after_last: int, first_of_last: int, shape: Sequence[int]) -> BandMask | None:
    """Return the only band that a mask of the shape (queries, keys) can be, or None.

    The last query and the last key must be the same token, as in causal attention with a cache, so
    there are at most as many queries as keys. `after_last` is the number of keys after the last key
    of the first query. `first_of_last` is the first key of the last query.
    """
    num_queries, num_keys = shape
    offset = num_keys - num_queries
    if offset < 0:
        return None
    after = num_queries - 1 - after_last if after_last else None
    before = num_keys - 1 - first_of_last if first_of_last else None
    return BandMask(before, after, offset)


def _is_equal(band: BandMask, allowed: torch.Tensor) -> bool:
    """Whether a band has the flags `allowed`, (queries, keys)."""
    num_queries, num_keys = allowed.shape
    are_equal = [
        (band.allowed(0, rows, slice(0, num_keys), allowed.device) == allowed[rows]).all()
        for rows in _blocks(num_queries)
    ]
    return bool(torch.stack(are_equal).all())


def _blocks(num_rows: int) -> list[slice]:
    starts = range(0, num_rows, _ROWS_PER_BLOCK)
    return [slice(start, min(start + _ROWS_PER_BLOCK, num_rows)) for start in starts]


def compact_bias(bias: torch.Tensor) -> Bias | None:
    """Return the bias with the values `bias`: a `DistanceBias` if possible, else a `DenseBias`.

    `bias` is (heads or 1, queries or 1, keys), in any floating-point dtype, and is converted to
    float32. Return None if all values are 0. Raise ValueError if a value is not finite. Pass
    forbidden pairs as a mask instead. Only the values of the result are copied to the CPU.

    >>> compact_bias(torch.zeros(4, 7, 7)) is None
    True
    """
    bias = bias.detach().float()
    numbers = [
        torch.isfinite(bias).all(),
        bias.any(),
        (bias == bias[:1]).all(),
        (bias == bias[:, :1]).all(),
    ]
    # Read the numbers at once, as in `compact_mask`.
    are_finite, any_added, same_heads, same_queries = torch.stack(numbers).tolist()
    if not are_finite:
        raise ValueError("bias must be finite. Pass pairs that are not allowed as a mask.")
    if not any_added:
        return None
    # Models often repeat equal values for all heads or queries. Store them once.
    bias = bias[: 1 if same_heads else None, : 1 if same_queries else None]
    heads, num_queries, num_keys = bias.shape
    if num_queries > 1:
        # The first column, reversed, and the first row together contain every distance once.
        values = torch.cat([bias[:, :, 0].flip(-1), bias[:, 0, 1:]], dim=1)
        by_distance = DistanceBias(values, num_queries)
        blocks = [(head, rows) for head in range(heads) for rows in _blocks(num_queries)]

        def are_equal(blocks: list[tuple[int, slice]]) -> bool:
            flags = [
                (
                    by_distance.added(head, rows, slice(0, num_keys), bias.device)
                    == bias[head, rows]
                ).all()
                for head, rows in blocks
            ]
            return bool(torch.stack(flags).all())

        # Most biases of another form differ in the first block.
        if are_equal(blocks[:1]) and are_equal(blocks):
            return DistanceBias(values.cpu(), num_queries)
    # Copy the values, because a slice would keep the whole tensor of the model in memory.
    return DenseBias(bias.to("cpu", copy=True, memory_format=torch.contiguous_format))

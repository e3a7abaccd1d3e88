"""Masks and position biases, each in the smallest form that represents it exactly.

A full n x n mask would be the only part of a record that grows with n squared. Nearly all masks are
a band (causal, sliding window) or image windows, and nearly all position biases depend only on the
distance. A record stores the few parameters of such a form if they reproduce every entry.

Rows are queries and columns are keys. Entries are computed on demand and on any device, for one
block at a time: for a slice or tensor of rows, and a slice of columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Self, cast

import torch

#: Queries of a block: a slice with start and stop, or an int64 tensor of positions.
Rows = slice | torch.Tensor
#: Device on which entries are computed. None means the device of the stored tensors, or the CPU.
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
        else rows.to(device)
    )
    return numbers[:, None], torch.arange(columns.start, columns.stop, device=device)[None, :]


def _ends(rows: Rows) -> tuple[int, int]:
    """Return the smallest and the largest of `rows`."""
    if isinstance(rows, slice):
        return rows.start, rows.stop - 1
    return int(rows.min()), int(rows.max())


def _has_index_for_each(numbers: torch.Tensor, count: int, stop: int | None = None) -> bool:
    """Whether `numbers` is int64, (count,), and all numbers are from 0 to `stop` - 1.

    If `stop` is None, all numbers are valid.
    """
    is_int64 = numbers.dtype == torch.int64 and tuple(numbers.shape) == (count,)
    return is_int64 and (stop is None or (int(numbers.min()) >= 0 and int(numbers.max()) < stop))


class _Part(ABC):
    """Base class of masks and biases. Subclasses are dataclasses of numbers and tensors."""

    #: Name of the class in saved files.
    kind: ClassVar[str]
    #: Names of the first axes of the stored tensor. An axis has length 1 if all heads (or rows)
    #: have the same entries.
    shared_axes: ClassVar[tuple[str, ...]] = ("heads",)

    @property
    def num_heads(self) -> int:
        """Number of heads, or 1 if all heads share the same entries."""
        return 1

    def only_head(self, head: int) -> Self:
        """Return the mask or bias of a single head, which becomes head 0."""
        del head
        return self

    @abstractmethod
    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the mask or bias is valid for these numbers of heads, queries and keys."""

    def to_parts(self) -> Parts:
        """Return numbers and tensors from which `from_parts` creates the same mask or bias."""
        numbers: dict[str, Any] = {"kind": self.kind}
        tensors: dict[str, torch.Tensor] = {}
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                tensors[field.name] = value
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
        """Position of query 0 among the keys, or 0 if the mask does not define it."""
        return 0

    @property
    def causal(self) -> bool:
        """Whether the mask is known, without reading its entries, to forbid all later keys."""
        return False

    @property
    def local(self) -> bool:
        """Whether the mask is known to forbid distant keys, both before and after each query."""
        return False

    @property
    def window(self) -> tuple[int, int] | None:
        """Largest allowed distances to earlier and later keys, or None if unlimited or unknown."""
        return None

    @abstractmethod
    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return whether each query may attend to each key, bool, (rows, columns)."""

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        """Return a range of keys within `columns` to which all of `rows` may attend.

        The range is computed without reading entries. It may be shorter than possible, and is empty
        if no such keys are known.
        """
        del rows
        return slice(columns.start, columns.start)

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        """Return a range of keys outside which none of `rows` may attend to a key.

        Pass at least one query.
        """
        del rows
        return slice(0, num_keys)

    def permute(self, order: torch.Tensor) -> Mask:
        """Return the mask for the same tokens in another order.

        Queries and keys must be the same tokens. `order` is int64, (tokens,): the old position of
        the token at each new position.
        """
        everything = slice(0, len(order)), slice(0, len(order))
        flags = torch.stack([self.allowed(head, *everything) for head in range(self.num_heads)])
        return PackedMask.pack(flags[:, order][:, :, order])

    def without_windows(self, num_queries: int, num_keys: int) -> Mask:
        """Return a mask with the same entries, in a form that HTML pages can store."""
        del num_queries, num_keys
        return self

    def bytes_without_windows(self, num_queries: int, num_keys: int) -> int:
        """Return the size in bytes of the tensors of `without_windows` in an HTML page."""
        del num_queries, num_keys
        return sum(tensor.nbytes for tensor in self.to_parts()[1].values())


class Bias(_Part):
    """Values that are added to the logits after the soft cap."""

    @abstractmethod
    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return the values of a block, float32, (rows, columns) or (1, columns)."""

    def permute(self, order: torch.Tensor) -> Bias:
        """Return the bias for reordered tokens, as `Mask.permute` does. Only for `WindowBias`."""
        raise NotImplementedError("only a bias in windows can be reordered")

    def without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> Bias:
        """Return a bias with the same values, in a form that HTML pages can store."""
        del num_heads, num_queries, num_keys
        return self

    def bytes_without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> int:
        """Return the size in bytes of the tensors of `without_windows` in an HTML page."""
        del num_heads, num_queries, num_keys
        return sum(4 * tensor.numel() for tensor in self.to_parts()[1].values())


# Largest absolute value of a band's numbers. The sum of several such numbers fits into 64 bits.
_MAX_POSITION = 1 << 53


@dataclass(frozen=True)
class BandMask(Mask):
    """Keys allowed within a band around the query: causal, sliding window, or both.

    Key ``j`` is allowed for query ``i`` if ``j - (i + offset) <= after`` and ``(i + offset) - j <=
    before``. None means no limit. Causal attention is ``BandMask(None, 0)``, and a causal window of
    w keys is ``BandMask(w - 1, 0)``.
    """

    kind = "band"

    before: int | None
    after: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        """Raise TypeError if a number has the wrong type, or ValueError if it is too large."""
        limits = self.before, self.after, self.offset
        if (
            not all(isinstance(limit, int) for limit in limits if limit is not None)
            or self.offset is None
        ):
            raise TypeError(f"the limits of a band mask must be integers or None; got {limits!r}")
        if any(abs(limit) > _MAX_POSITION for limit in limits if limit is not None):
            raise ValueError(
                f"the limits of a band mask must be at most {_MAX_POSITION}; got {limits!r}"
            )

    @property
    def causal(self) -> bool:
        """Whether the band contains no key after the query."""
        return self.after is not None and self.after <= 0

    @property
    def local(self) -> bool:
        """Whether both `before` and `after` have a limit."""
        return self.window is not None

    @property
    def window(self) -> tuple[int, int] | None:
        """`before` and `after`, or None if at least one of them has no limit."""
        return None if self.before is None or self.after is None else (self.before, self.after)

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        del head
        query, key = _positions(rows, columns, device)
        own_key = query + self.offset
        # Compare a row with a column. Distances of all pairs would take eight times the memory.
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
        """Return True, because a band has no size."""
        del num_heads, num_queries, num_keys
        return True


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
        """Create a mask from bool flags, (heads or 1, queries, keys)."""
        heads, queries, keys = flags.shape
        padded = torch.zeros(heads, queries, -(-keys // 8) * 8, dtype=torch.uint8)
        padded[..., :keys] = flags.to(torch.uint8)
        powers = 2 ** torch.arange(8, dtype=torch.uint8)
        return cls((padded.unflatten(-1, (-1, 8)) * powers).sum(-1, dtype=torch.uint8), keys)

    @property
    def num_heads(self) -> int:
        return len(self.bits)

    def only_head(self, head: int) -> PackedMask:
        return self if self.num_heads == 1 else replace(self, bits=self.bits[head : head + 1])

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        first, last = columns.start // 8, -(-columns.stop // 8)
        bits = self.bits[head if self.num_heads > 1 else 0][rows, first:last].to(device)
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
    """Mask that allows the keys in the query's window (Swin, vision-language models).

    `query_windows` and `key_windows` are int64, (queries,) and (keys,): the number of the window
    that contains each token.

    >>> windows = torch.tensor([0, 0, 1])
    >>> WindowMask(windows, windows).allowed(0, slice(0, 1), slice(0, 3)).tolist()
    [[True, True, False]]
    """

    kind = "windows"

    query_windows: torch.Tensor
    key_windows: torch.Tensor

    @property
    def local(self) -> bool:
        """True, because a query attends only to its own window."""
        return True

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        del head
        queries = self.query_windows[rows].to(device)
        return queries[:, None] == self.key_windows[columns].to(device)

    def permute(self, order: torch.Tensor) -> WindowMask:
        return WindowMask(self.query_windows[order], self.key_windows[order])

    def without_windows(self, num_queries: int, num_keys: int) -> PackedMask:
        """Return the same mask with one bit per pair."""
        return PackedMask.pack(self.allowed(0, slice(0, num_queries), slice(0, num_keys))[None])

    def bytes_without_windows(self, num_queries: int, num_keys: int) -> int:
        """Return the size in bytes: one bit per pair, without padding."""
        return num_queries * num_keys // 8

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the mask has a window for each of the queries and keys."""
        del num_heads
        return _has_index_for_each(self.query_windows, num_queries) and _has_index_for_each(
            self.key_windows, num_keys
        )


def _base_positions(units: torch.Tensor, rows: Rows) -> tuple[Rows, torch.Tensor]:
    """Find the original tokens among `rows` of a text with inserted tokens.

    `units` are the positions of the original tokens in the text with inserted tokens, ascending.
    Return the numbers of the tokens found, counted without inserted tokens, and the index of each
    of them within `rows`.

    >>> _base_positions(torch.tensor([0, 2]), slice(1, 3))
    (slice(1, 2, None), tensor([1]))
    """
    if isinstance(rows, slice):
        start, stop = torch.searchsorted(units, torch.tensor([rows.start, rows.stop])).tolist()
        return slice(start, stop), units[start:stop] - rows.start
    requested = rows.to(units.device)
    tokens = torch.searchsorted(units, requested).clamp_(max=len(units) - 1)
    is_present = units[tokens] == requested
    return tokens[is_present], torch.nonzero(is_present).flatten()


def _ascends(units: torch.Tensor, count: int) -> bool:
    """Whether `units` is a non-empty int64 vector that ascends from at least 0 to below `count`."""
    fits = units.dtype == torch.int64 and units.dim() == 1 and len(units) > 0
    return fits and int(units[0]) >= 0 and int(units[-1]) < count and bool((units.diff() > 0).all())


def inserted_block(
    units: tuple[torch.Tensor, torch.Tensor],
    rows: Rows,
    columns: slice,
    block_of: Callable[[Rows, slice], torch.Tensor],
) -> torch.Tensor:
    """Return a block of a matrix into which rows and columns of zeros were inserted.

    `units` are the positions of the original rows and of the original columns in the new matrix,
    int64, ascending. `block_of` returns a block of the original matrix, (..., rows, columns). An
    axis of the block has length 1 if its entries are the same.

    >>> units = torch.tensor([0, 2]), torch.tensor([0, 2])
    >>> inserted_block(units, slice(0, 3), slice(0, 3), lambda *_: torch.ones(1, 1)).tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    base_rows, row_indices = _base_positions(units[0], rows)
    base_columns, column_indices = _base_positions(units[1], columns)
    count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    part = block_of(base_rows, cast("slice", base_columns))
    block = part.new_zeros(*part.shape[:-2], count, columns.stop - columns.start)
    row_indices, column_indices = row_indices.to(part.device), column_indices.to(part.device)
    if len(row_indices) == count:
        block[..., column_indices] = part
    else:
        block[..., row_indices[:, None], column_indices] = part
    return block


def _nested_parts(part: InsertedMask | InsertedBias) -> Parts:
    base = None if part.base is None else part.base.to_parts()
    numbers = {
        "kind": part.kind,
        "num_query_units": part.num_query_units,
        "num_key_units": part.num_key_units,
        "base": None if base is None else base[0],
    }
    tensors = {} if base is None else {f"base.{name}": tensor for name, tensor in base[1].items()}
    return numbers, {"query_units": part.query_units, "key_units": part.key_units} | tensors


def _units_fit(part: InsertedMask | InsertedBias, num_queries: int, num_keys: int) -> bool:
    return (
        (part.num_query_units, part.num_key_units) == (num_queries, num_keys)
        and _ascends(part.query_units, num_queries)
        and _ascends(part.key_units, num_keys)
    )


@dataclass(frozen=True)
class InsertedMask(Mask):
    """Mask of a text with inserted tokens, which have no attention.

    To compare two texts, the tokens that only one text has are inserted into the other. No token
    attends to an inserted token, and an inserted token attends to no token.

    `base` is the mask of the original tokens. None allows all pairs. `query_units` and `key_units`
    are int64, ascending: the row and the column of each original token in the new mask, which has
    `num_query_units` rows and `num_key_units` columns.

    >>> units = torch.tensor([0, 2])
    >>> mask = InsertedMask(BandMask(None, 0), units, units, 3, 3)
    >>> mask.allowed(0, slice(0, 3), slice(0, 3)).int().tolist()
    [[1, 0, 0], [0, 0, 0], [1, 0, 1]]
    """

    kind = "inserted"

    base: Mask | None
    query_units: torch.Tensor
    key_units: torch.Tensor
    num_query_units: int
    num_key_units: int

    @property
    def num_heads(self) -> int:
        return 1 if self.base is None else self.base.num_heads

    def only_head(self, head: int) -> InsertedMask:
        return self if self.base is None else replace(self, base=self.base.only_head(head))

    @property
    def offset(self) -> int:
        base_offset = 0 if self.base is None else self.base.offset
        if not 0 <= base_offset < len(self.key_units):
            return base_offset
        return int(self.key_units[base_offset]) - int(self.query_units[0])

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid all later keys.

        False if tokens are not inserted at the same positions among the queries and the keys.
        """
        causal = self.base is not None and self.base.causal
        return causal and torch.equal(self.query_units, self.key_units)

    @property
    def local(self) -> bool:
        """Whether the base forbids distant keys, both before and after each query.

        `window` is nevertheless None, because inserted tokens increase some distances.
        """
        return self.base is not None and self.base.local

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return whether each pair is allowed, which is False if one of its tokens is inserted."""

        def base_allowed(base_rows: Rows, base_columns: slice) -> torch.Tensor:
            if self.base is None:
                return torch.ones(1, 1, dtype=torch.bool, device=device)
            return self.base.allowed(head, base_rows, base_columns, device)

        return inserted_block((self.query_units, self.key_units), rows, columns, base_allowed)

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        """Return a range of original keys to which all of `rows` may attend.

        The range contains no inserted key, and is empty if a query of `rows` is inserted.

        >>> units = torch.tensor([0, 1, 3, 4, 5])
        >>> InsertedMask(None, units, units, 6, 6).fully_visible_keys(slice(3, 6), slice(0, 6))
        slice(3, 6, None)
        """
        empty = slice(columns.start, columns.start)
        (base_rows, row_indices), (base_columns, column_indices) = self._tokens(rows, columns)
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        if len(row_indices) < count or not len(column_indices):
            return empty
        visible = (
            base_columns
            if self.base is None
            else self.base.fully_visible_keys(base_rows, base_columns)
        )
        keys = self.key_units[visible]
        if not len(keys):
            return empty
        bounds = [0, *(torch.nonzero(keys.diff() > 1).flatten() + 1).tolist(), len(keys)]
        start, stop = max(pairwise(bounds), key=lambda run: run[1] - run[0])
        return slice(int(keys[start]), int(keys[stop - 1]) + 1)

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        del num_keys
        base_rows, row_indices = _base_positions(self.query_units, rows)
        base_keys = slice(0, len(self.key_units) if len(row_indices) else 0)
        if len(row_indices) and self.base is not None:
            base_keys = self.base.key_range(base_rows, len(self.key_units))
        if base_keys.start >= base_keys.stop:
            return slice(0, 0)
        return slice(
            int(self.key_units[base_keys.start]), int(self.key_units[base_keys.stop - 1]) + 1
        )

    def permute(self, order: torch.Tensor) -> Mask:
        return self._packed().permute(order)

    def without_windows(self, num_queries: int, num_keys: int) -> InsertedMask:
        del num_queries, num_keys
        sizes = len(self.query_units), len(self.key_units)
        return self if self.base is None else replace(self, base=self.base.without_windows(*sizes))

    def bytes_without_windows(self, num_queries: int, num_keys: int) -> int:
        sizes = len(self.query_units), len(self.key_units)
        base = 0 if self.base is None else self.base.bytes_without_windows(*sizes)
        return base + 4 * (num_queries + num_keys)

    def to_parts(self) -> Parts:
        return _nested_parts(self)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether sizes match, units are valid positions, and `base` fits the original tokens."""
        sizes = num_heads, len(self.query_units), len(self.key_units)
        return _units_fit(self, num_queries, num_keys) and (
            self.base is None or self.base.fits(*sizes)
        )

    def _packed(self) -> PackedMask:
        everything = slice(0, self.num_query_units), slice(0, self.num_key_units)
        flags = [self.allowed(head, *everything) for head in range(self.num_heads)]
        return PackedMask.pack(torch.stack(flags))

    def _tokens(
        self, rows: Rows, columns: slice
    ) -> tuple[tuple[Rows, torch.Tensor], tuple[slice, torch.Tensor]]:
        base_columns, column_indices = _base_positions(self.key_units, columns)
        return _base_positions(self.query_units, rows), (
            cast("slice", base_columns),
            column_indices,
        )


@dataclass(frozen=True)
class CutMask(Mask):
    """Mask in which selected queries may not attend to selected keys, in selected heads.

    `heads` is bool, (heads,), or (1,) for all heads. `queries` is bool, (queries,), and `keys` is
    bool, (keys,). A pair is cut if all three flags are True. With `keep_own`, a token still attends
    to itself. `base` is the mask before pairs are cut. None allows all pairs.

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
    keep_own: bool = False

    @property
    def num_heads(self) -> int:
        return max(len(self.heads), 1 if self.base is None else self.base.num_heads)

    def only_head(self, head: int) -> CutMask:
        base = None if self.base is None else self.base.only_head(head)
        flags = self.heads if len(self.heads) == 1 else self.heads[head : head + 1]
        return replace(self, heads=flags, base=base)

    @property
    def offset(self) -> int:
        return 0 if self.base is None else self.base.offset

    @property
    def causal(self) -> bool:
        return self.base is not None and self.base.causal

    @property
    def local(self) -> bool:
        return self.base is not None and self.base.local

    @property
    def window(self) -> tuple[int, int] | None:
        """Window of the base, which cut pairs do not change. None without a base."""
        return None if self.base is None else self.base.window

    def cut(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return whether each pair of a block is cut, bool, (rows, columns)."""
        keys = self.keys[columns].to(device)
        head_is_cut = bool(self.heads[head if len(self.heads) > 1 else 0])
        flags = self.queries[rows].to(device)[:, None] & (keys & head_is_cut)
        if self.keep_own:
            query, key = _positions(rows, columns, device)
            flags &= query != key
        return flags

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        flags = ~self.cut(head, rows, columns, device)
        return (
            flags if self.base is None else flags & self.base.allowed(head, rows, columns, device)
        )

    def fully_visible_keys(self, rows: Rows, columns: slice) -> slice:
        if bool(self.queries[rows].any()) and bool(self.keys[columns].any()):
            return slice(columns.start, columns.start)
        return columns if self.base is None else self.base.fully_visible_keys(rows, columns)

    def key_range(self, rows: Rows, num_keys: int) -> slice:
        return slice(0, num_keys) if self.base is None else self.base.key_range(rows, num_keys)

    def permute(self, order: torch.Tensor) -> CutMask:
        base = None if self.base is None else self.base.permute(order)
        return replace(self, queries=self.queries[order], keys=self.keys[order], base=base)

    def without_windows(self, num_queries: int, num_keys: int) -> PackedMask:
        """Return the same mask with one bit per head and pair."""
        everything = slice(0, num_queries), slice(0, num_keys)
        flags = [self.allowed(head, *everything) for head in range(self.num_heads)]
        return PackedMask.pack(torch.stack(flags))

    def bytes_without_windows(self, num_queries: int, num_keys: int) -> int:
        """Return the size in bytes: one bit per head and pair, without padding."""
        return self.num_heads * num_queries * num_keys // 8

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether each head, query and key has a flag, and the base fits."""
        flags = (self.heads, self.queries, self.keys)
        shapes = [tuple(flag.shape) for flag in flags]
        shapes_fit = shapes[0] in {(1,), (num_heads,)} and shapes[1:] == [
            (num_queries,),
            (num_keys,),
        ]
        dtypes_fit = all(flag.dtype == torch.bool for flag in flags)
        return (
            shapes_fit
            and dtypes_fit
            and (self.base is None or self.base.fits(num_heads, num_queries, num_keys))
        )

    def to_parts(self) -> Parts:
        numbers: dict[str, Any] = {"kind": self.kind, "keep_own": self.keep_own, "base": None}
        tensors = {"heads": self.heads, "queries": self.queries, "keys": self.keys}
        if self.base is not None:
            numbers["base"], inner = self.base.to_parts()
            tensors |= {f"base.{name}": tensor for name, tensor in inner.items()}
        return numbers, tensors


@dataclass(frozen=True)
class DistanceBias(Bias):
    """Bias that depends only on the distance from query to key (T5, ALiBi).

    `values` is float32, (heads or 1, queries + keys - 1). Entry ``[h, (j - i) + queries - 1]`` is
    added to the logit of query ``i`` and key ``j``.
    """

    kind = "distance"

    values: torch.Tensor
    num_queries: int

    @property
    def num_heads(self) -> int:
        return len(self.values)

    def only_head(self, head: int) -> DistanceBias:
        return self if self.num_heads == 1 else replace(self, values=self.values[head : head + 1])

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        query, key = _positions(rows, columns, device)
        values = self.values[head if self.num_heads > 1 else 0].to(device)
        return values[key - query + self.num_queries - 1]

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether the bias has a value for every distance of a query and a key."""
        shapes = {(heads, num_queries + num_keys - 1) for heads in (1, num_heads)}
        return self.num_queries == num_queries and tuple(self.values.shape) in shapes


@dataclass(frozen=True)
class DenseBias(Bias):
    """Bias of any form. `values` is float32, (heads or 1, queries or 1, keys)."""

    kind = "dense"
    shared_axes = ("heads", "rows")

    values: torch.Tensor

    @property
    def num_heads(self) -> int:
        return len(self.values)

    def only_head(self, head: int) -> DenseBias:
        return self if self.num_heads == 1 else replace(self, values=self.values[head : head + 1])

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        values = self.values[head if self.num_heads > 1 else 0]
        return values[rows if len(values) > 1 else slice(0, 1), columns].to(device)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether `values` has one of the shapes (heads or 1, queries or 1, keys)."""
        return tuple(self.values.shape) in {
            (heads, rows, num_keys) for heads in (1, num_heads) for rows in (1, num_queries)
        }


@dataclass(frozen=True)
class WindowBias(Bias):
    """Bias that depends on the positions of query and key within a window.

    `values` is float32, (windows or 1, heads or 1, queries of a window, keys of a window). The
    other tensors are int64, (queries,) or (keys,). `query_windows` and `key_windows` contain the
    number of each token's window. `query_positions` and `key_positions` contain the index of each
    token within its window.
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

    def only_head(self, head: int) -> WindowBias:
        return (
            self if self.num_heads == 1 else replace(self, values=self.values[:, head : head + 1])
        )

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Return the values of a block, float32. They are 0 for tokens in different windows."""
        values = self.values[:, head if self.num_heads > 1 else 0].to(device)
        windows = self.query_windows[rows][:, None].to(device)
        block = values[
            windows if len(values) > 1 else torch.zeros_like(windows),
            self.query_positions[rows][:, None].to(device),
            self.key_positions[columns].to(device),
        ]
        return block.masked_fill(windows != self.key_windows[columns].to(device), 0.0)

    def permute(self, order: torch.Tensor) -> WindowBias:
        return WindowBias(
            self.values,
            self.query_windows[order],
            self.key_windows[order],
            self.query_positions[order],
            self.key_positions[order],
        )

    def without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> DenseBias:
        """Return a bias with one value per head and pair, 0 for tokens in different windows."""
        everything = slice(0, num_queries), slice(0, num_keys)
        return DenseBias(torch.stack([self.added(head, *everything) for head in range(num_heads)]))

    def bytes_without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> int:
        """Return the size in bytes: one float32 value per head and pair."""
        return 4 * num_heads * num_queries * num_keys

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether `values` has entries for each head, and for each token's window and index."""
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


@dataclass(frozen=True)
class InsertedBias(Bias):
    """Bias of a text with inserted tokens. Pairs with an inserted token have the value 0.

    The fields are as in `InsertedMask`, but `base` is a bias and not None.
    """

    kind = "inserted bias"

    base: Bias
    query_units: torch.Tensor
    key_units: torch.Tensor
    num_query_units: int
    num_key_units: int

    @property
    def num_heads(self) -> int:
        return self.base.num_heads

    def only_head(self, head: int) -> InsertedBias:
        return replace(self, base=self.base.only_head(head))

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        def base_added(base_rows: Rows, base_columns: slice) -> torch.Tensor:
            return self.base.added(head, base_rows, base_columns, device)

        return inserted_block((self.query_units, self.key_units), rows, columns, base_added)

    def without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> InsertedBias:
        del num_queries, num_keys
        sizes = num_heads, len(self.query_units), len(self.key_units)
        return replace(self, base=self.base.without_windows(*sizes))

    def bytes_without_windows(self, num_heads: int, num_queries: int, num_keys: int) -> int:
        sizes = num_heads, len(self.query_units), len(self.key_units)
        return self.base.bytes_without_windows(*sizes) + 4 * (num_queries + num_keys)

    def to_parts(self) -> Parts:
        return _nested_parts(self)

    def fits(self, num_heads: int, num_queries: int, num_keys: int) -> bool:
        """Whether sizes match, units are valid positions, and `base` fits the original tokens."""
        sizes = num_heads, len(self.query_units), len(self.key_units)
        return _units_fit(self, num_queries, num_keys) and self.base.fits(*sizes)


_KINDS: dict[str, type[Mask | Bias]] = {
    cls.kind: cls
    for cls in (
        *(BandMask, PackedMask, WindowMask, InsertedMask, CutMask),
        *(DistanceBias, DenseBias, WindowBias, InsertedBias),
    )
}


# Maximum number of nested masks or biases, each of which is the `base` of the next. A file with
# deeper nesting is rejected. attnviz itself writes only a few levels.
_MAX_DEPTH = 32


def _depth(numbers: Any) -> int:
    """Count a serialized mask or bias and those nested in its ``"base"``, to `_MAX_DEPTH` + 1."""
    depth = 0
    while isinstance(numbers, Mapping) and depth <= _MAX_DEPTH:
        numbers = numbers.get("base")
        depth += 1
    return depth


def from_parts(numbers: Mapping[str, Any], tensor: Callable[[str], torch.Tensor]) -> Mask | Bias:
    """Create a mask or bias from the numbers of `to_parts`. `tensor` returns a tensor by its name.

    Raise LookupError, TypeError or ValueError if `numbers` is invalid.
    """
    if numbers["kind"] not in _KINDS:
        raise ValueError(f"unknown kind of mask or bias: {numbers['kind']!r}")
    cls = _KINDS[numbers["kind"]]
    values = {name: number for name, number in numbers.items() if name != "kind"}
    if values.get("base") is not None:
        if _depth(values) > _MAX_DEPTH:
            raise ValueError("a mask or bias is nested too deeply")
        base = values["base"] = from_parts(values["base"], lambda name: tensor(f"base.{name}"))
        if isinstance(base, Mask) != issubclass(cls, Mask):
            raise TypeError("the base of a mask must be a mask, and that of a bias a bias")
    names = [field.name for field in fields(cls) if field.name not in values]  # type: ignore[arg-type]
    return cls(**values, **{name: tensor(name) for name in names})


def compact_mask(allowed: torch.Tensor) -> Mask | None:
    """Return a mask with the flags `allowed` in its smallest form, or None if all flags are True.

    `allowed` is bool, (heads or 1, queries, keys). Raise ValueError if `allowed` has another dtype
    or number of axes.

    >>> compact_mask(torch.ones(1, 5, 5, dtype=torch.bool).tril())
    BandMask(before=None, after=0, offset=0)
    """
    if allowed.dtype != torch.bool or allowed.dim() != 3:
        raise ValueError(
            f"allowed must be a bool tensor (heads or 1, queries, keys); got {allowed.dtype} of "
            f"shape {tuple(allowed.shape)}"
        )
    allowed = allowed.detach().cpu()
    if bool(allowed.all()):
        return None
    if len(allowed) > 1 and bool((allowed == allowed[:1]).all()):
        allowed = allowed[:1]
    if len(allowed) == 1:
        band = _band_like(allowed[0])
        if band is not None and _agrees(band, allowed[0]):
            return band
    return PackedMask.pack(allowed)


def _band_like(allowed: torch.Tensor) -> BandMask | None:
    """Guess a band from the first and the last row, whose ends determine `after` and `before`.

    Return None if one of these rows allows no key, or if there are more queries than keys.
    """
    num_queries, num_keys = allowed.shape
    # Assume that the last query and the last key are the same token.
    offset = num_keys - num_queries
    if offset < 0:
        return None
    end_keys = [torch.nonzero(allowed[row]).flatten() for row in (0, num_queries - 1)]
    if not all(len(keys) for keys in end_keys):
        return None
    last_of_first, first_of_last = int(end_keys[0][-1]), int(end_keys[1][0])
    after = None if last_of_first == num_keys - 1 else last_of_first - offset
    before = None if first_of_last == 0 else num_queries - 1 + offset - first_of_last
    return BandMask(before, after, offset)


def _agrees(band: BandMask, allowed: torch.Tensor) -> bool:
    num_queries, num_keys = allowed.shape
    for start in range(0, num_queries, _ROWS_PER_BLOCK):
        rows = slice(start, min(start + _ROWS_PER_BLOCK, num_queries))
        if not torch.equal(band.allowed(0, rows, slice(0, num_keys)), allowed[rows]):
            return False
    return True


def compact_bias(bias: torch.Tensor) -> Bias | None:
    """Return a bias with the values `bias` in its smallest form, or None if all values are 0.

    `bias` is (heads or 1, queries or 1, keys), in any floating-point dtype, and is converted to
    float32. Raise ValueError if `bias` does not have three axes, or if a value is not finite. Pass
    forbidden pairs as a mask instead.

    >>> compact_bias(torch.zeros(4, 7, 7)) is None
    True
    """
    if bias.dim() != 3:
        raise ValueError(
            f"bias must be (heads or 1, queries or 1, keys); got shape {tuple(bias.shape)}"
        )
    bias = bias.detach().float().cpu()
    if not bool(torch.isfinite(bias).all()):
        raise ValueError("bias must be finite. Pass pairs that are not allowed as a mask.")
    if not bool(bias.any()):
        return None
    # Models often repeat equal values for all heads or queries. Store them once.
    if bool((bias == bias[:1]).all()):
        bias = bias[:1]
    if bool((bias == bias[:, :1]).all()):
        bias = bias[:, :1]
    num_queries = bias.shape[1]
    if num_queries > 1:
        # The first column, reversed, and the first row together contain every distance once.
        values = torch.cat([bias[:, :, 0].flip(-1), bias[:, 0, 1:]], dim=1)
        by_distance = DistanceBias(values, num_queries)
        if _same(by_distance, bias):
            return by_distance
    # Copy the values, because a slice would keep the whole tensor of the model in memory.
    return DenseBias(bias.clone())


def _same(by_distance: DistanceBias, bias: torch.Tensor) -> bool:
    heads, num_queries, num_keys = bias.shape
    for head in range(heads):
        for start in range(0, num_queries, _ROWS_PER_BLOCK):
            rows = slice(start, min(start + _ROWS_PER_BLOCK, num_queries))
            block = by_distance.added(head, rows, slice(0, num_keys))
            if not torch.equal(block, bias[head, rows]):
                return False
    return True

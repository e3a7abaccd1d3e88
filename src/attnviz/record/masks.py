"""Masks and position biases, each in the smallest form that says exactly the same.

An n x n mask would be the only thing in a record that grows with n squared. Nearly all of them are
a band (causal, sliding window), and nearly all position biases depend on distance alone, so their
parameters are kept instead, after checking equality block by block.

Each makes its entries of any block when asked: of a slice of queries or of a tensor of their
numbers, and on the device where they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnviz.record.windows import Device, Rows, WindowBias, WindowMask

__all__ = [
    "BandMask",
    "Bias",
    "DenseBias",
    "DistanceBias",
    "Mask",
    "PackedMask",
    "compact_bias",
    "compact_mask",
]

# Rows compared at once: 256 x 131072 flags are 32 MiB, small beside the mask that was given.
_ROWS_PER_BLOCK = 256


def _positions(
    rows: Rows, columns: slice, device: Device = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column numbers of a block, shaped to broadcast against each other."""
    numbers = (
        torch.arange(rows.start, rows.stop, device=device)
        if isinstance(rows, slice)
        else rows.to(device)
    )
    return numbers[:, None], torch.arange(columns.start, columns.stop, device=device)[None, :]


def _ends(rows: Rows) -> tuple[int, int]:
    """The first and the last of some rows."""
    if isinstance(rows, slice):
        return rows.start, rows.stop - 1
    return int(rows.min()), int(rows.max())


@dataclass(frozen=True)
class BandMask:
    """Keys allowed within a band around the query: causal, sliding window, or both.

    Key ``j`` is allowed for query ``i`` if ``j - (i + offset) <= after`` and
    ``(i + offset) - j <= before``.

    Attributes
    ----------
    before, after : int or None
        How many positions back and ahead a query may look; None is no limit. Causal attention is
        ``BandMask(None, 0)``, a causal window of w keys ``BandMask(w - 1, 0)``.
    offset : int
        The key position that query 0 stands at.
    """

    before: int | None
    after: int | None
    offset: int = 0

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Flags of a block, bool, (rows, columns); the same for every head."""
        del head
        query, key = _positions(rows, columns, device)
        ahead = key - (query + self.offset)
        flags = torch.ones(ahead.shape, dtype=torch.bool, device=device)
        if self.after is not None:
            flags &= ahead <= self.after
        if self.before is not None:
            flags &= ahead >= -self.before
        return flags

    def reach(self, rows: Rows, num_keys: int) -> slice:
        """Keys that any of some queries may attend to.

        Parameters
        ----------
        rows : slice or Tensor
            The queries, at least one.
        num_keys : int
            How many keys there are.

        Returns
        -------
        slice
            Within 0 to `num_keys`; outside of it nothing is allowed.

        Examples
        --------
        >>> BandMask(None, 0).reach(slice(4, 8), 100)
        slice(0, 8, None)
        """
        first, last = _ends(rows)
        start, stop = 0, num_keys
        if self.before is not None:
            start = min(num_keys, max(0, first + self.offset - self.before))
        if self.after is not None:
            stop = min(num_keys, max(0, last + self.offset + self.after + 1))
        return slice(start, max(start, stop))

    def covers(self, rows: Rows, columns: slice) -> bool:
        """Whether every one of some queries may attend to every one of some keys."""
        first, last = _ends(rows)
        behind = self.before is None or columns.start >= last + self.offset - self.before
        ahead = self.after is None or columns.stop - 1 <= first + self.offset + self.after
        return behind and ahead


@dataclass(frozen=True)
class PackedMask:
    """Any other mask, one bit an entry.

    Attributes
    ----------
    bits : Tensor
        uint8, (heads or 1, queries, ceil(keys / 8)); the lowest bit is the first key.
    num_keys : int
        Number of keys.
    """

    bits: torch.Tensor
    num_keys: int

    @classmethod
    def pack(cls, flags: torch.Tensor) -> PackedMask:
        """Pack bool flags (heads or 1, queries, keys)."""
        heads, queries, keys = flags.shape
        padded = torch.zeros(heads, queries, -(-keys // 8) * 8, dtype=torch.uint8)
        padded[..., :keys] = flags.to(torch.uint8)
        powers = 2 ** torch.arange(8, dtype=torch.uint8)
        return cls((padded.unflatten(-1, (-1, 8)) * powers).sum(-1, dtype=torch.uint8), keys)

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Flags of a block, bool, (rows, columns)."""
        first, last = columns.start // 8, -(-columns.stop // 8)
        bits = self.bits[head if len(self.bits) > 1 else 0][rows, first:last].to(device)
        column = torch.arange(columns.start, columns.stop, device=device) - 8 * first
        flags: torch.Tensor = (bits[:, column // 8] >> (column % 8).to(torch.uint8)) & 1 == 1
        return flags


@dataclass(frozen=True)
class DistanceBias:
    """A bias that depends on the distance from query to key alone (T5, ALiBi).

    Attributes
    ----------
    values : Tensor
        float32, (heads or 1, queries + keys - 1): entry ``[h, (j - i) + queries - 1]`` is added to
        the logit of query ``i`` and key ``j``.
    num_queries : int
        Number of queries.
    """

    values: torch.Tensor
    num_queries: int

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Values of a block, float32, (rows, columns)."""
        query, key = _positions(rows, columns, device)
        values = self.values[head if len(self.values) > 1 else 0].to(device)
        return values[key - query + self.num_queries - 1]


@dataclass(frozen=True)
class DenseBias:
    """Any other bias.

    Attributes
    ----------
    values : Tensor
        float32, (heads or 1, queries or 1, keys).
    """

    values: torch.Tensor

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Values of a block, float32, (rows, columns) or (1, columns)."""
        values = self.values[head if len(self.values) > 1 else 0]
        return values[rows if len(values) > 1 else slice(0, 1), columns].to(device)


Mask = BandMask | PackedMask | WindowMask
Bias = DistanceBias | DenseBias | WindowBias


def compact_mask(allowed: torch.Tensor) -> Mask | None:
    """Find the smallest form of a mask.

    Parameters
    ----------
    allowed : Tensor
        bool, (heads or 1, queries, keys): True where a query may attend to a key.

    Returns
    -------
    BandMask, PackedMask or None
        None when everything is allowed.

    Raises
    ------
    ValueError
        If `allowed` is not a bool tensor of three dimensions.

    Examples
    --------
    >>> compact_mask(torch.ones(1, 5, 5, dtype=torch.bool).tril())
    BandMask(before=None, after=0, offset=0)
    """
    if allowed.dtype != torch.bool or allowed.dim() != 3:
        raise ValueError(
            "allowed must be a bool tensor (heads or 1, queries, keys); "
            f"got {allowed.dtype} of shape {tuple(allowed.shape)}"
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
    """Guess a band from two places: the last query says how far back, the first how far ahead."""
    num_queries, num_keys = allowed.shape
    # Self-attention over the same tokens, or the last queries of a longer context.
    offset = num_keys - num_queries
    if offset < 0:
        return None
    ends = [torch.nonzero(allowed[row]).flatten() for row in (0, num_queries - 1)]
    if not all(len(end) for end in ends):
        return None
    last_of_first, first_of_last = int(ends[0][-1]), int(ends[1][0])
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
    """Find the smallest form of a position bias.

    Parameters
    ----------
    bias : Tensor
        Floating point, (heads or 1, queries or 1, keys), finite: what is added to the logits.

    Returns
    -------
    DistanceBias, DenseBias or None
        float32; None when nothing is added.

    Raises
    ------
    ValueError
        If `bias` has another number of dimensions or values that are not finite (masked entries
        belong in the mask).

    Examples
    --------
    >>> compact_bias(torch.zeros(4, 7, 7)) is None
    True
    """
    if bias.dim() != 3:
        raise ValueError(
            f"bias must be (heads or 1, queries or 1, keys); got shape {tuple(bias.shape)}"
        )
    bias = bias.detach().float().cpu()
    if not bool(torch.isfinite(bias).all()):
        raise ValueError("bias must be finite; put entries that are not allowed into the mask")
    if not bool(bias.any()):
        return None
    # What is the same for all heads or queries was often expanded, and is kept once.
    if bool((bias == bias[:1]).all()):
        bias = bias[:1]
    if bool((bias == bias[:, :1]).all()):
        bias = bias[:, :1]
    num_queries = bias.shape[1]
    if num_queries > 1:
        # The first column backwards and then the first row hold every distance once.
        values = torch.cat([bias[:, :, 0].flip(-1), bias[:, 0, 1:]], dim=1)
        by_distance = DistanceBias(values, num_queries)
        if _same(by_distance, bias):
            return by_distance
    # A copy: a slice would keep the model's whole buffer alive.
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

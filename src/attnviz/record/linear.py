"""The attention of linear layers: how much each token contributes to the output of each token.

A linear layer (linear attention or a state-space model) has no softmax. It reads the tokens one
after the other. Each head keeps a state, the matrix S (key_dim, value_dim). A rule is the formula
that updates S and computes the output o at each token. Each token has a query q and a key k (of
key_dim numbers), a value v (of value_dim numbers), and three numbers: the log decay g, the strength
b and the skip d. This module has two rules:

    S = exp(g) S + b k v^T                      without erasing
    S = (1 - b k k^T) exp(g) S + b k v^T        with erasing
    o = S^T q + d v                             in both cases

Erasing subtracts from S what an earlier token has stored for the key k.

The first rule is that of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060, where q, k and b are called C,
B and dt) and of lightning attention (Qin et al. 2024, arXiv 2401.04658). The second rule is the
gated delta rule (Yang et al. 2024, arXiv 2412.06464). In Kimi delta attention (arXiv 2510.26692),
g has one number for each of the key_dim rows of S, and exp(g) is a diagonal matrix.

The outputs of all tokens are linear in their values: o = M v. The weight M[t, s] is the factor of
the value of token s in the output of token t. It is 0 if s comes after t. Weights may be negative,
and the rows of M may have any sum. In Mamba-1, each dimension of the values has another M. The
class `SelectiveAttention` combines them into one weight. Scores of heads are computed from the
shares of the absolute weights in a row (`AbsoluteShares`).

To add a rule, write its formula here. `attnviz.extraction.families.LINEAR_RULES` has the name of
each rule and the kind of its formula. ``attnviz.extraction.capture.linear._READERS`` has a function
for each kind, which reads the arguments of the rule. Each extraction compares weights times values
with the output of the layer. Add a row to ``docs/linear-layers.md`` and a model to
``tests/models/test_linear_layers.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from attnviz.record.attention import (
    CausalAttention,
    Columns,
    Heads,
    Normalizers,
    ReweightedAttention,
)
from attnviz.record.masks import Rows
from attnviz.record.softmax import count_rows, row_groups, tile_rows

# Maximum number of successive tokens in a chunk. `StateAttention._fill` computes the weights of one
# chunk of keys (columns) at a time.
_MAX_CHUNK = 64
# Limit of the entries of each temporary tensor in `StateAttention.block` (64 MiB of float32). It
# determines the numbers of tokens, heads and rows that are computed at once.
_MAX_ENTRIES = 1 << 24


class _Inputs(NamedTuple):
    """Inputs of a rule for some heads and tokens, except the values, which weights do not need.

    The letters are those of the module docstring. `queries` (q) and `keys` (k) are (heads, tokens,
    key_dim). `log_decay` (g) is (heads, tokens, 1 or key_dim). `strengths` (b) and `skips` (d) are
    (heads, tokens).
    """

    queries: torch.Tensor
    keys: torch.Tensor
    log_decay: torch.Tensor
    strengths: torch.Tensor
    skips: torch.Tensor


@dataclass(frozen=True)
class StateAttention(CausalAttention):
    """Attention of a layer that follows one of the two rules of the module docstring.

    Subclasses store the inputs of the rule, or tensors from which the method `inputs` computes
    them.
    """

    @property
    @abstractmethod
    def state_dims(self) -> tuple[int, int]:
        """Lengths of the last axes of `_Inputs.keys` (key_dim) and of `_Inputs.log_decay`."""

    @property
    def erases(self) -> bool:
        """Whether the rule is the second one of the module docstring, with erasing."""
        return False

    @abstractmethod
    def inputs(self, heads: Heads, tokens: slice | torch.Tensor) -> _Inputs:
        """Return the inputs of the rule for `heads` and `tokens`, in this order, in float32."""

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        columns = columns or slice(0, self.num_keys)
        device = next(iter(self.parts.values())).device
        positions = torch.arange(self.num_keys)[rows] if isinstance(rows, slice) else rows.cpu()
        block = torch.zeros(len(heads), len(positions), columns.stop - columns.start, device=device)
        key_dim, decay_dim = self.state_dims
        chunk = _MAX_CHUNK
        while chunk > 1 and chunk * chunk * decay_dim > _MAX_ENTRIES:
            chunk //= 2
        together = max(1, _MAX_ENTRIES // (chunk * max(key_dim, chunk * decay_dim)))
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for start in range(0, len(heads), together):
                group = list(heads[start : start + together])
                max_rows = max(1, _MAX_ENTRIES // (key_dim * len(group)))
                for part, _ in row_groups(positions, max_rows):
                    filled = block[start : start + together, part]
                    self._fill(filled, group, positions[part], columns, chunk)
        return block

    def _fill(
        self,
        block: torch.Tensor,
        heads: list[int],
        positions: torch.Tensor,
        columns: slice,
        chunk_size: int,
    ) -> None:
        """Write the weights of `heads` into `block`, (heads, rows, columns), which has zeros.

        `positions` are the ascending positions of the rows, int64, (rows,). `chunk_size` is the
        number of tokens in a chunk.

        The weights of a row are computed from its own token back to the first column. A vector y
        is the query q of the row at its own token. At each token, with the k, b and g of this
        token, the weight of the row is w = b k^T y. Then y becomes exp(g) y, or exp(g) (y - w k) if
        the rule erases, for the token before. The reason: S^T y, with the state S after a token, is
        the contribution of this token and all earlier ones to the output of the row. At the end,
        the skip d is added to the weight of the row's own token. The code does these steps for
        a chunk of tokens at once.
        """
        device = block.device
        inner = positions.to(device)
        queries = self.inputs(heads, inner).queries
        ys = torch.empty_like(queries)
        first = columns.start // chunk_size * chunk_size
        for start in reversed(range(first, int(positions[-1]) + 1, chunk_size)):
            stop = min(start + chunk_size, self.num_keys)
            _, keys, log_decay, strengths, skips = self.inputs(heads, slice(start, stop))
            # Sums of g from the first token of the chunk. Double precision, because the difference
            # of two sums may be far smaller than the sums.
            decay = _sums(log_decay.double())
            # The rows from `begin` to `after` have their own token in the chunk. The rows from
            # `after` on have it after the chunk. Earlier rows have no weight on the chunk.
            begin, after = (int(torch.searchsorted(positions, edge)) for edge in (start, stop))
            own = inner[begin:after] - start
            inside = _decayed_products(queries[:, begin:after], keys, decay[:, own], decay, own)
            to_end = (decay[:, -1:] - decay).float().exp()
            later = ys[:, after:] @ (keys * to_end).transpose(1, 2)
            weights = torch.cat([inside, later], dim=1) * strengths[:, None]
            from_start = decay.float().exp()
            ys[:, after:] *= from_start[:, -1:]
            ys[:, begin:after] = queries[:, begin:after] * from_start[:, own]
            if self.erases:
                before = torch.arange(stop - start, device=device) - 1
                erased = _decayed_products(keys, keys, decay, decay, before) * strengths[:, None]
                weights = torch.linalg.solve_triangular(
                    erased, weights, upper=False, left=False, unitriangular=True
                )
                ys[:, begin:] -= weights @ (keys * from_start)
            weights[:, torch.arange(len(own), device=device), own] += skips[:, own]
            shown = slice(max(start, columns.start), min(stop, columns.stop))
            if shown.start < shown.stop:
                block[:, begin:, shown.start - columns.start : shown.stop - columns.start] = (
                    weights[..., shown.start - start : shown.stop - start]
                )


def _sums(numbers: torch.Tensor) -> torch.Tensor:
    """Return the sums of the numbers up to each token, (heads, tokens, ...)."""
    if numbers.device.type != "cpu" and torch.are_deterministic_algorithms_enabled():
        # CUDA has no deterministic kernel for these sums, and raises an error.
        return numbers.cpu().cumsum(dim=1).to(numbers.device)
    return numbers.cumsum(dim=1)


def _decayed_products(
    queries: torch.Tensor,
    keys: torch.Tensor,
    query_decay: torch.Tensor,
    key_decay: torch.Tensor,
    last: torch.Tensor,
) -> torch.Tensor:
    """Return the dot products of rows and keys of a chunk after decay, (heads, rows, keys).

    A product is the sum over key_dim of ``queries * keys * exp(query_decay - key_decay)``. The
    `queries` are the vectors of the rows, (heads, rows, key_dim). The decays are sums of g from the
    first token of the chunk to the token of the row or key, (heads, rows or keys, 1 or key_dim).
    `last`, (rows,), is for each row the largest index of a key in the chunk, or -1. The products of
    keys with a larger index are 0.
    """
    is_later = torch.arange(keys.shape[1], device=keys.device) > last[:, None]
    differences = (query_decay[:, :, None] - key_decay[:, None]).float()
    factors = differences.masked_fill_(is_later[..., None], -torch.inf).exp_()
    if factors.shape[-1] == 1:
        return (queries @ keys.transpose(1, 2)) * factors[..., 0]
    return torch.einsum("hqd,hkd,hqkd->hqk", queries, keys, factors)


@dataclass(frozen=True)
class LinearAttention(StateAttention):
    """Attention of a linear layer whose decay may differ between heads and dimensions of the keys.

    Attributes
    ----------
    queries, keys : Tensor
        (key_heads, tokens, key_dim): q and k as the rule multiplies them, after normalization and
        scaling. Several heads may share q and k: head h uses the index
        ``h // (heads // key_heads)`` of the first axis.
    log_decay : Tensor
        (heads, tokens, 1 or key_dim): g. A positive number lets the state grow.
    strengths : Tensor
        (heads, tokens): b.
    erases : bool
        Whether the rule is the second one of the module docstring, with erasing.
    skips : Tensor or None
        (heads,): d, or None if it is 0.

    Examples
    --------
    A layer whose state is halved at each token:

    >>> ones = torch.ones(1, 3, 1)
    >>> halved = torch.full((1, 3, 1), 0.5).log()
    >>> LinearAttention(ones, ones, halved, ones[..., 0]).block([0], slice(0, 3))
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.5000, 1.0000, 0.0000],
             [0.2500, 0.5000, 1.0000]]])
    """

    kind = "linear"

    queries: torch.Tensor
    keys: torch.Tensor
    log_decay: torch.Tensor
    strengths: torch.Tensor
    erases: bool = False
    skips: torch.Tensor | None = None

    def __post_init__(self) -> None:
        key_heads, num_tokens, key_dim = self.keys.shape
        heads = self.strengths.shape[0]
        if (
            self.queries.shape != self.keys.shape
            or self.strengths.shape != (heads, num_tokens)
            or self.log_decay.shape[:2] != (heads, num_tokens)
            or self.log_decay.shape[2] not in (1, key_dim)
            or (self.skips is not None and self.skips.shape != (heads,))
            or key_heads == 0
            or heads % key_heads
        ):
            shapes = {name: tuple(part.shape) for name, part in self.parts.items()}
            raise ValueError(
                "queries and keys must be (key_heads, tokens, key_dim), log_decay (heads, tokens, "
                f"1 or key_dim), strengths (heads, tokens) and skips (heads,); got {shapes}"
            )

    @property
    def num_heads(self) -> int:
        return self.strengths.shape[0]

    @property
    def num_keys(self) -> int:
        return self.keys.shape[1]

    @property
    def state_dims(self) -> tuple[int, int]:
        return self.keys.shape[2], self.log_decay.shape[2]

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute weights, or None if the rule may enlarge its state.

        The bound is max |q| * max |b k| + max |d| over all heads and tokens, with the lengths of
        the vectors q and b k. It is valid because neither exp(g) nor 1 - b k k^T makes a vector
        longer. It is None if a g is positive. It is also None if the rule erases and, for any
        token, b < 0 or b |k|^2 > 2.
        """
        keys = self.keys.float().norm(dim=-1).repeat_interleave(self._heads_per_key, dim=0)
        stored = keys * self.strengths.float().abs()
        if bool((self.log_decay > 0).any()):
            return None
        if self.erases and bool((stored * keys > 2).any() or (self.strengths < 0).any()):
            return None
        skip = 0.0 if self.skips is None else float(self.skips.abs().max())
        return float(self.queries.float().norm(dim=-1).max() * stored.max()) + skip

    @property
    def _heads_per_key(self) -> int:
        return self.num_heads // self.keys.shape[0]

    def inputs(self, heads: Heads, tokens: slice | torch.Tensor) -> _Inputs:
        key_heads, heads = [head // self._heads_per_key for head in heads], list(heads)
        # Indexing with a list of heads copies. Select the tokens first, so that only these are
        # copied.
        strengths = self.strengths[:, tokens][heads].float()
        skips = torch.zeros_like(strengths)
        if self.skips is not None:
            skips += self.skips[heads].float()[:, None]
        return _Inputs(
            self.queries[:, tokens][key_heads].float(),
            self.keys[:, tokens][key_heads].float(),
            self.log_decay[:, tokens][heads].float(),
            strengths,
            skips,
        )


@dataclass(frozen=True)
class SelectiveAttention(StateAttention):
    """Attention of a Mamba-1 layer, summed over its channels (Gu and Dao 2023, arXiv 2312.00752).

    A channel is a dimension of the values. Each channel has its own decays and therefore its own
    matrix M of the module docstring. A weight of this attention is the share of token s in the
    output of token t: the dot product of the output with the part of it that comes from s, divided
    by the squared length of the output,

        weight[t, s] = sum over channels of o[t] M[t, s] v[s] / |o[t]|^2

    If the layer multiplies its output by a gate, o is the output after this product, and M contains
    the gate as a factor. Each row sums to 1, or to 0 if o is 0. Weights may be negative.

    Attributes
    ----------
    queries, keys : Tensor
        (heads, tokens, states): C and B in the paper, in this order. The channels share them.
        ``states`` is the length of the state of one channel.
    steps : Tensor
        (heads, tokens, channels): dt in the paper, which is positive.
    rates : Tensor
        (heads, channels, states): A in the paper, which is negative. The log decay g is A dt.
    values : Tensor
        (heads, tokens, channels): v, the inputs of the rule.
    readout : Tensor
        (heads, tokens, channels): o / |o|^2, multiplied by the gate if the layer has one.
    skips : Tensor
        (heads, channels): D in the paper, the skip d of each channel.
    """

    kind = "selective"

    queries: torch.Tensor
    keys: torch.Tensor
    steps: torch.Tensor
    rates: torch.Tensor
    values: torch.Tensor
    readout: torch.Tensor
    skips: torch.Tensor

    @property
    def num_heads(self) -> int:
        return self.steps.shape[0]

    @property
    def num_keys(self) -> int:
        return self.steps.shape[1]

    @property
    def state_dims(self) -> tuple[int, int]:
        dims = self.rates.shape[1] * self.rates.shape[2]
        return dims, dims

    def inputs(self, heads: Heads, tokens: slice | torch.Tensor) -> _Inputs:
        """Return inputs with which the first rule computes the weights of the class docstring.

        The axes of channels and states become one axis, key_dim. The queries contain `readout`, and
        the keys contain `steps` and `values`. All strengths are 1.
        """
        heads = list(heads)
        queries, keys, steps, values, readout = (
            part[:, tokens][heads].float()
            for part in (self.queries, self.keys, self.steps, self.values, self.readout)
        )
        rates, skips = self.rates[heads].float(), self.skips[heads].float()
        return _Inputs(
            (readout[..., None] * queries[:, :, None]).flatten(2),
            ((steps * values)[..., None] * keys[:, :, None]).flatten(2),
            (steps[..., None] * rates[:, None]).flatten(2),
            torch.ones_like(steps[..., 0]),
            (readout * values * skips[:, None]).sum(dim=-1),
        )


def join_heads(*layers: Any) -> Any:
    """Return a `StateAttention` with the heads of all `layers`, one layer after the other.

    All are of the same subclass and have the same tokens.
    """
    return replace(
        layers[0],
        **{name: torch.cat([layer.parts[name] for layer in layers]) for name in layers[0].parts},
    )


@dataclass(frozen=True)
class AbsoluteShares(ReweightedAttention):
    """Absolute weights of `base`, each divided by the sum of the absolute weights of its row.

    The share of a weight M[t, s] is ``abs(M[t, s]) / sum over r of abs(M[t, r])``. It does not
    change if a row of M is multiplied by a number. A row of zeros stays 0.

    Examples
    --------
    >>> ones = torch.ones(1, 3, 1)
    >>> layer = LinearAttention(ones, -ones, torch.zeros(1, 3, 1), torch.tensor([[3.0, 1.0, 4.0]]))
    >>> AbsoluteShares(layer).block([0], slice(1, 3))
    tensor([[[0.7500, 0.2500, 0.0000],
             [0.3750, 0.1250, 0.5000]]])
    """

    @property
    def bounds_sums(self) -> bool:
        """True: a share is at least 0 and a row sums to at most 1, which is the bound."""
        return True

    @property
    def bound(self) -> float:
        """1, the largest possible share."""
        return 1.0

    @property
    def shares_mask(self) -> bool:
        return self.base.shares_mask

    def key_range(self, rows: Rows) -> slice:
        return self.base.key_range(rows)

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        return self.base.has_allowed_key(heads, rows)

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        columns = columns or slice(0, self.num_keys)
        width, count = columns.stop - columns.start, count_rows(rows)
        # The sum needs whole rows, even if only a few columns are returned. Compute only as many
        # rows at once as fit into a tile, or as have no more weights than the result. More rows at
        # once are faster, because a linear layer reads all earlier keys for each group of rows.
        max_rows = max(tile_rows(len(heads) * self.num_keys), count * width // self.num_keys)
        parts = []
        for _, group in row_groups(rows, max_rows):
            sizes = self.base.block(heads, group).abs()
            sums = sizes.sum(dim=-1, keepdim=True)
            parts.append(sizes[..., columns].div_(sums.masked_fill_(sums == 0, 1.0)))
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1) if parts else self.base.block(heads, rows, columns)

"""Reads: the question that views ask about weights, and its answers.

A read selects weights: heads of a layer, a range of queries (rows) and of keys (columns). It can
combine the heads to one matrix, and reduce each matrix. Each reduction is a class. Its fields are
arguments, and its method `reply` computes the reply from the selected `Weights`. In an exported
page, ``js/src/client/page/reductions.ts`` reduces the same matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import msgspec
import torch

from attnviz.record.stack import AttentionStack
from attnviz.server.cells import Cells, CellsHeader
from attnviz.server.codec import EncodedHeader, encode, encode_numbers
from attnviz.server.protocol import Range, Reply, check_heads, check_reply_size, range_slice
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.strongest import Strongest
from attnviz.server.weights import Combine, Weights
from attnviz.server.zeros import mark_zeros


class Lost(msgspec.Struct, frozen=True, tag_field="kind", tag="lost"):
    """Reduction of each row to its lost weight, for a layer whose model chooses keys.

    The lost weight is the weight, from 0 to 1, that the left-out keys would have if all keys were
    chosen. For combined heads, it is the mean of their lost weights. The reply has one column, or
    none if the layer does not store queries and keys.
    """

    def reply(self, weights: Weights) -> Reply:
        vectors, matrices = weights.attention.vectors, weights.matrices
        lost = torch.zeros(len(matrices), weights.num_rows, 0)
        if vectors is not None:
            means = [vectors.lost_weight(heads, weights.rows).mean(dim=0) for heads in matrices]
            lost = torch.stack(means)[..., None]
        return encode_numbers(lost.cpu().numpy(), weights.stack.maximum)


Reduction = Cells | Strongest | Lost
#: Types that the header of a reply can have.
HEADERS = EncodedHeader, CellsHeader


class _Server(Protocol):
    row_normalizers: RowNormalizers

    def stack(self, name: str) -> AttentionStack: ...


@dataclass(frozen=True)
class ReadRequest:
    """Request for weights of some heads of a layer, for a range of queries and of keys.

    Without a reduction, the reply has the weights. If the stack chooses keys
    (`StackNumbers.chooses_keys`), the weight of a masked key is -0, that of a key that was not
    chosen is +0, and all other weights are above 0.

    Attributes
    ----------
    heads : list of int
        Indices of the heads in the layer.
    rows, columns : range
        Range of queries (`rows`) and of keys (`columns`).
    combine : {"separate", "mean", "max"}
        Use of several heads. "separate": a matrix for each head. "mean" and "max": one matrix with
        the mean or the maximum of the weights of all heads. The maximum of signed numbers is the
        number with the largest absolute value.
    reduce : Cells, Strongest or Lost
        Reduction of each matrix.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    columns: Range
    combine: Combine = "separate"
    reduce: Reduction | None = None

    def answer(self, server: _Server) -> Reply:
        stack = server.stack(self.stack)
        layer, heads = check_heads(stack, self.layer, self.heads)
        weights = Weights(
            stack,
            layer,
            heads,
            range_slice("rows", self.rows, len(stack.query_tokens)),
            range_slice("columns", self.columns, len(stack.key_tokens)),
            self.combine,
            server.row_normalizers,
        )
        return _block(weights) if self.reduce is None else self.reduce.reply(weights)


def _block(weights: Weights) -> Reply:
    """Return a reply with the weights of each matrix."""
    stack, rows = weights.stack, weights.rows
    shape = len(weights.matrices), weights.num_rows, weights.num_columns
    check_reply_size("the weights of a block", 4 * math.prod(shape), "Request a smaller block.")
    block = weights.combined().cpu().numpy()
    if stack.chooses_keys:
        block = mark_zeros(block, weights.kinds(rows))
    return encode(block, "float32", stack.maximum, signed=stack.signed, label=weights.label)

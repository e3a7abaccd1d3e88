"""Capture of indexers: modules that score keys, so that a layer can choose some of them.

An indexer (`attnviz.record.ranks`) calls ``torch.matmul`` twice: for the products of its queries
and keys, and for the sum of these products over heads with the weights of the heads. The arguments
of both calls are read while the indexer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.masks import Positions, without_padding
from attnviz.extraction.capture.trace import FunctionMode
from attnviz.extraction.models import hook, in_this_thread
from attnviz.record.ranks import IndexerRanks
from attnviz.utils.cleanup import Cleanup

# Maximum number of queries whose ranks are compared with the choice of the indexer.
_ROWS = 16
# Maximum difference of two scores that can be due to rounding, relative to the largest absolute
# score of the query. Matrix products on some GPUs have only the 10 bits of precision of TF32.
_ROUNDING = 2.0**-9

#: Function that receives an indexer, the two arguments of each of its matrix products, and the
#: indices of the chosen keys, (batch, queries, chosen).
IndexerSink = Callable[[nn.Module, list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor], None]


class _ProductWatch(FunctionMode):
    """Observer of matrix products. `products` has the two arguments of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del types
        if getattr(func, "__name__", "") in ("matmul", "__matmul__"):
            self.products.append((args[0], args[1]))
        return func(*args, **(kwargs or {}))


def report_indexers(indexers: Sequence[nn.Module], sink: IndexerSink, undo: Cleanup) -> None:
    """Pass each run of `indexers` in this thread to `sink`, until `undo` ends."""
    watches: list[_ProductWatch] = []

    def end() -> None:
        while watches:
            watches.pop().stop()

    def before(*_: Any) -> None:
        watches.append(_ProductWatch())
        watches[-1].start()

    def after(module: nn.Module, _args: Any, output: Any) -> None:
        products = watches[-1].products if watches else []
        end()
        if isinstance(output, torch.Tensor):
            sink(module, products, output)

    def hooks() -> Iterator[Any]:
        for module in indexers:
            yield module.register_forward_pre_hook(in_this_thread(before))
            yield module.register_forward_hook(in_this_thread(after), always_call=True)

    undo.add(end)
    hook(hooks(), undo)


def read_ranks(
    products: Sequence[tuple[torch.Tensor, torch.Tensor]],
    chosen: torch.Tensor,
    unpadded: Sequence[Positions],
) -> list[IndexerRanks]:
    """Return the ranks of each example, without padding.

    `products` and `chosen` are as for an `IndexerSink`. `unpadded` has the tokens of each example
    that are not padding. Raise NotImplementedError if the products do not have the shapes of the
    formula of `attnviz.record.ranks`, or if the chosen keys of an example without padding are not
    those with the largest scores.
    """
    if [tensor.dim() for pair in products for tensor in pair] != [4] * 4:
        raise NotImplementedError("the products of the indexer are unknown")
    (queries, keys), (head_weights, _) = products
    vectors = queries.transpose(1, 2), keys.transpose(2, 3), head_weights.permute(0, 3, 1, 2)
    if any(part.shape[2] != chosen.shape[1] for part in vectors):
        # The scores are of blocks of keys.
        raise NotImplementedError("the products of the indexer are unknown")
    try:
        ranks = [
            IndexerRanks(queries, keys, weights[..., 0])
            for queries, keys, weights in (
                [without_padding(part, index, positions.queries) for part in vectors]
                for index, positions in enumerate(unpadded)
            )
        ]
    except ValueError as error:
        raise NotImplementedError("the products of the indexer are unknown") from error
    for index, positions in enumerate(unpadded):
        if positions.keys is None:
            _check_choice(ranks[index], chosen[index])
    return ranks


def _check_choice(ranks: IndexerRanks, chosen: torch.Tensor) -> None:
    """Raise NotImplementedError if a key that was not chosen has a larger score than a chosen key.

    Differences up to `_ROUNDING` are ignored. At most `_ROWS` queries are checked.
    """
    num_tokens = ranks.num_keys
    rows = torch.linspace(0, num_tokens - 1, min(num_tokens, _ROWS)).long()
    scores = ranks.scores(rows)
    is_chosen = torch.zeros_like(scores, dtype=torch.bool)
    is_chosen.scatter_(1, chosen[rows.to(chosen.device)].long(), value=True)
    smallest = scores.masked_fill(~is_chosen | scores.isneginf(), torch.inf).amin(dim=-1)
    largest = scores.masked_fill(is_chosen, -torch.inf).amax(dim=-1)
    size = scores.masked_fill(scores.isneginf(), 0).abs().amax(dim=-1)
    if bool((largest - smallest > _ROUNDING * size).any()):
        raise NotImplementedError("the scores of the indexer do not give the keys that it chose")

"""Capture of attention in a window with global tokens (Longformer and the encoder of LED).

A token attends to the tokens in a window around it and to the global tokens. A global token attends
to all tokens. It has another query, and other keys and values of all tokens, from three separate
projections. The module computes this in chunks, so hooks of its projections read the vectors.

The vectors of a head have two halves. Queries are (q, 0) for local tokens and (0, q) for global
tokens, and keys have the key for local queries and the key for global queries. So the product of a
query and a key is the logit of the model, and memory grows only with the number of tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.dispatch import AttentionCall, Sink
from attnviz.extraction.capture.masks import Positions
from attnviz.extraction.families import WINDOW_SIZE
from attnviz.extraction.models import in_this_thread
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, CutMask, Mask, compact_mask

_PROJECTIONS = ("query", "key", "value", "query_global", "key_global", "value_global")


@dataclass(frozen=True, kw_only=True)
class WindowCall(AttentionCall):
    """Attention in a window with global tokens.

    `value` has the values for queries of local tokens.

    Attributes
    ----------
    window : int
        Largest distance of a query and a key, unless one of them is a global token.
    is_global, is_padding : Tensor
        Whether each token is global, and whether it is padding: bool, (batch, tokens).
    global_value : Tensor or None
        Values for queries of global tokens, with the axes of `value`. None without global tokens.
    """

    window: int
    is_global: torch.Tensor
    is_padding: torch.Tensor
    global_value: torch.Tensor | None

    def first_tokens(self, count: int | None = None) -> WindowCall:
        """Return the call of the first `count` tokens, as views of the same tensors.

        The model pads each text to a multiple of its window. By default, `count` is the position
        after the last token that is not padding.
        """
        if count is None:
            count = int((~self.is_padding).any(dim=0).nonzero().max()) + 1

        def first(vectors: torch.Tensor | None) -> torch.Tensor | None:
            return None if vectors is None else vectors[:, :, :count]

        return replace(
            self,
            query=first(self.query),
            key=first(self.key),
            value=first(self.value),
            global_value=first(self.global_value),
            output=self.output[:, :count],
            is_global=self.is_global[:, :count],
            is_padding=self.is_padding[:, :count],
        )

    def mask_of(self, index: int, positions: Positions) -> Mask | None:
        """Return the mask of an example without padding, or None if all pairs are allowed."""
        is_global = self.is_global[index].cpu()
        tokens = torch.arange(len(is_global)) if positions.keys is None else positions.keys.cpu()
        local, span = ~is_global[tokens], int(tokens[-1] - tokens[0])
        band: Mask | None = BandMask(self.window, self.window)
        if self.window >= span or not bool(local.any()):
            return None
        if span >= len(tokens):
            # Padding between tokens counts for the window.
            distances = (tokens[:, None] - tokens).abs()
            band = compact_mask(distances[None] <= self.window)
        return band if bool(local.all()) else CutMask(torch.tensor([True]), local, local, kept=band)

    def compare(
        self,
        check: SelfCheck,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        name: str,
    ) -> None:
        """Compare the output of the call, as `SelfCheck.compare_output` does.

        The outputs of local and of global tokens are compared separately, because they are sums of
        different values.
        """
        if self.global_value is None:
            check.compare_output(self, attentions, unpadded, name)
            return
        of_local, of_global, positions_of_global = [], [], []
        for index, (attention, positions) in enumerate(zip(attentions, unpadded, strict=True)):
            flags = self.is_global[index].cpu()
            tokens = flags.nonzero().flatten()
            if positions.queries is not None:
                flags = flags[positions.queries.cpu()]
            # Rows without allowed keys are not compared.
            is_key = torch.ones_like(flags)
            mask = CutMask(torch.tensor([True]), flags, is_key, attention.mask)
            of_local.append(replace(attention, mask=mask))
            queries = attention.queries[:, flags.to(attention.queries.device)]
            of_global.append(replace(attention, queries=queries, mask=None))
            positions_of_global.append(Positions(tokens, positions.keys))
        check.compare_output(self, of_local, unpadded, name)
        call = replace(self, value=self.global_value)
        check.compare_output(call, of_global, positions_of_global, name)


def has_window(module: nn.Module) -> bool:
    """Whether a module attends in a window with global tokens."""
    return hasattr(module, WINDOW_SIZE)


def window_hooks(modules: Sequence[nn.Module], sink: Sink) -> Iterator[Any]:
    """Register hooks that pass the calls of `modules` to `sink`. Yield the handle of each hook."""
    projected: dict[nn.Module, dict[str, torch.Tensor]] = {module: {} for module in modules}

    def keep(module: nn.Module, name: str, *arguments: Any) -> None:
        # The module divides the queries in place, so the kept tensor then has the scaled queries.
        projected[module][name] = arguments[-1]

    def report(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        vectors, projected[module] = projected[module], {}
        sink(_call_of(module, vectors, arguments, output[0]))

    for module in modules:
        for name in _PROJECTIONS:
            projection: Any = getattr(module, name)
            yield projection.register_forward_hook(in_this_thread(partial(keep, module, name)))
        after = in_this_thread(report)
        # Report the call before other hooks of the module note that its run has ended.
        yield module.register_forward_hook(after, with_kwargs=True, prepend=True)


def _call_of(
    module: Any,
    projected: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Any],
    output: torch.Tensor,
) -> WindowCall:
    """Return the call of a module from the outputs of its projections, (tokens, batch, width).

    `arguments` are the arguments of the module, and `output` is its output, (batch, tokens, width).
    """

    def by_head(name: str) -> torch.Tensor:
        vectors = projected[name].detach()
        return vectors.view(*vectors.shape[:2], module.num_heads, -1).permute(1, 2, 0, 3)

    query, key, global_value = by_head("query"), by_head("key"), None
    is_global: torch.Tensor = arguments["is_index_global_attn"]
    if bool(is_global.any()):
        # `query_global` gets only the global tokens: those of each example come first.
        example, token = is_global.nonzero(as_tuple=True)
        index = is_global.cumsum(dim=1)[example, token] - 1
        global_query = torch.zeros_like(query)
        global_query[example, :, token] = by_head("query_global")[example, :, index]
        local_query = query.masked_fill(is_global[:, None, :, None], 0.0)
        query = torch.cat([local_query, global_query], dim=-1)
        key = torch.cat([key, by_head("key_global")], dim=-1)
        global_value = by_head("value_global")
    return WindowCall(
        module,
        "window",
        query,
        key,
        by_head("value"),
        options={"scaling": 1.0},
        # A view, so that `sink` can change the output of the module in place.
        output=output.unflatten(-1, (module.num_heads, -1)),
        window=getattr(module, WINDOW_SIZE),
        is_global=is_global,
        is_padding=arguments["is_index_masked"],
        global_value=global_value,
    )

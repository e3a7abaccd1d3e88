"""`attention_function` makes attention functions for models, from a test's own formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def attention_function(
    weights_of: Callable[[Any, torch.Tensor], torch.Tensor],
    *,
    causal: bool = True,
    window: int | None = None,
) -> Callable[..., Any]:
    """Return an attention function for transformers, whose weights `weights_of` computes.

    `weights_of` gets a module and its logits (batch, heads, queries, keys), which are -inf at
    masked keys. With `causal`, a query may attend to the last `window` keys up to its position. If
    `window` is None, it may attend to all keys up to its position. If transformers passes
    `sliding_window`, this number replaces `window`.
    """

    def attend(  # noqa: PLR0917 - as transformers calls it
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        del attention_mask
        group = query.shape[1] // key.shape[1]
        key, value = (vectors.repeat_interleave(group, dim=1) for vectors in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        logits = query @ key.transpose(2, 3) * scale
        if causal:
            distance = torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2])
            limit = sliding_window or window or len(distance)
            logits = logits.masked_fill((distance < 0) | (distance >= limit), -torch.inf)
        return (weights_of(module, logits) @ value).transpose(1, 2).contiguous(), None

    return attend

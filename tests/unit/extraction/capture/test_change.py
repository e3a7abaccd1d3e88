"""Outputs of attention calls are divided into examples and heads."""

from __future__ import annotations

import torch

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import output_by_head


def test_batch_and_heads_may_be_one_axis_in_which_the_batch_comes_first() -> None:
    # 2 examples, 3 heads, 4 queries and 5 axes of the values. torch.bmm returns these axes.
    output = torch.arange(2 * 3 * 4 * 5).view(2 * 3, 4, 5)
    call = AttentionCall(torch.nn.Identity(), output=output, weights=torch.ones(2, 3, 4, 4))
    by_head = output_by_head(call, "layer", examples=2)
    for example in range(2):
        for head in range(3):
            assert torch.equal(by_head[example, :, head], output[3 * example + head])
    # The result is a view: a change of it changes the output of the model.
    by_head[1, :, 2] = 0
    assert not output[5].any()

"""The attention of one forward, collected from modules that compute it themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnviz.extraction.capture.collector import Collector
from attnviz.extraction.inputs.batch import TokenSequence
from attnviz.extraction.options import CaptureOptions
from attnviz.record.attention import StoredWeights
from attnviz.utils.cleanup import Cleanup

HEADS, LENGTH, WIDTH = 3, 5, 4


class ChangedAttention(nn.Module):
    """Attention that changes the logits of one head without torch's functions."""

    def __init__(self, head: int | None) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, HEADS * WIDTH)
        self._head = head

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        vectors = self.project(tokens).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        logits = torch.matmul(vectors, vectors.transpose(2, 3))
        if self._head is not None:
            # The array shares the tensor's memory, but torch's functions do not see it.
            logits.detach().numpy()[:, self._head, :, 0] += 1.0
        weights = torch.softmax(logits, dim=-1)
        return torch.matmul(weights, vectors).mean(dim=1)


class Model(nn.Module):
    def __init__(self, head: int | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ChangedAttention(head) for _ in range(2 * HEADS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens


def layers_known_by_weights_alone(head: int | None) -> list[int]:
    """Return the layers whose queries and keys do not reproduce the model's weights."""
    torch.manual_seed(0)
    model = Model(head)
    collector = Collector(
        model,
        {"input": TokenSequence(LENGTH, [None])},
        1,
        encoder_decoder=False,
        vision=False,
        options=CaptureOptions(),
    )
    with torch.no_grad(), Cleanup() as undo:
        collector.watch(undo)
        model(torch.randn(1, LENGTH, WIDTH))
    assert [run.name for run in collector.runs] == [f"layers.{n}" for n in range(2 * HEADS)]
    return [n for n, run in enumerate(collector.runs) if isinstance(run.calls[0][0], StoredWeights)]


def test_queries_and_keys_that_give_the_weights_are_kept() -> None:
    assert layers_known_by_weights_alone(None) == []


@pytest.mark.parametrize("head", range(HEADS))
def test_every_head_of_every_layer_is_compared_with_the_model(head: int) -> None:
    assert layers_known_by_weights_alone(head) == list(range(2 * HEADS))

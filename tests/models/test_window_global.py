"""Longformer and the encoder of LED: windows, and global tokens with their own projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch

import attnviz as av
from attnviz import extract
from attnviz.extraction.capture.window import has_window
from attnviz.interventions.changes import Change
from attnviz.record.attention import QueryKeyAttention
from model_types.shapes import with_global_tokens
from models.tiny import SIZE, built

WINDOW = 2
_COMMON = {"attention_window": 2 * WINDOW, "vocab_size": 120, "pad_token_id": 1}
_LED = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 64,
}
STACKS = {"LongformerModel": "self", "LEDForConditionalGeneration": "encoder"}


@cache
def model_of(name: str) -> Any:
    sizes = {**SIZE, "max_position_embeddings": 64} if "Long" in name else _LED
    model = built(name, {**_COMMON, **sizes})
    with torch.no_grad():
        for module in model.modules():
            for projection in ("query_global", "key_global"):
                if hasattr(module, projection):
                    getattr(module, projection).weight.mul_(8)
    return model


def inputs_of(name: str, mask: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Return random texts. `mask` is 0 for padding, 1 for local tokens and 2 for global tokens."""
    flags = torch.tensor(mask)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 120, flags.shape, generator=generator)
    inputs = {
        "input_ids": ids,
        "attention_mask": (flags > 0).long(),
        "global_attention_mask": (flags > 1).long(),
    }
    return inputs if "Long" in name else {**inputs, "decoder_input_ids": ids[:, :3]}


def own_weights(name: str, inputs: dict[str, torch.Tensor], example: int) -> list[torch.Tensor]:
    """Return the weights that the model returns for an example, without its padding."""
    with torch.no_grad():
        outputs = model_of(name)(**inputs, output_attentions=True)
    prefix = "" if "Long" in name else "encoder_"
    bands = outputs[f"{prefix}attentions"]
    all_rows = outputs.get(f"{prefix}global_attentions")
    tokens = inputs["global_attention_mask"][example].nonzero().flatten().tolist()
    kept = inputs["attention_mask"][example].bool()
    weights = []
    for layer, band in enumerate(bands):
        heads, length = band.shape[1:3]
        rows = torch.zeros(heads, length, 0) if all_rows is None else all_rows[layer][example]
        weights.append(with_global_tokens(band[example], rows, tokens)[:, kept][:, :, kept])
    return weights


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(
    "mask",
    [
        [[1] * 3],
        [[1] * 21],
        [[2] + [1] * 20],
        [[2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2]],
        [[2, 2]],
        [[2] + [1] * 10, [1] * 9 + [0, 0], [0, 0, 1, 2, 0, 0, 1, 1, 2, 1, 0]],
    ],
    ids=["short", "local", "first", "several", "all", "batch"],
)
def test_weights_equal_the_models_own(name: str, mask: list[list[int]]) -> None:
    inputs = inputs_of(name, mask)
    records = extract(model_of(name), inputs)
    for example, record in enumerate(records if len(mask) > 1 else [records]):
        stack, own = record.stack(STACKS[name]), own_weights(name, inputs, example)
        assert stack.layers == (0, 1)
        for layer, expected in enumerate(own):
            assert expected.amax(dim=-1).mean() > 0.3
            weights = torch.from_numpy(stack.weights(layer=layer))
            assert weights.shape == expected.shape
            assert (weights - expected).abs().max() < 1e-6
            attention = stack.attention(layer)
            assert isinstance(attention, QueryKeyAttention)
            assert attention.queries.shape[-1] in (12, 24)


def dense(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """Return a forward of a module that computes all weights, in one matrix, and changes them."""

    def forward(module: Any, hidden_states: torch.Tensor, **arguments: Any) -> tuple[torch.Tensor]:
        def by_head(name: str) -> torch.Tensor:
            vectors: torch.Tensor = getattr(module, name)(hidden_states)
            return vectors.view(*vectors.shape[:2], 4, -1).transpose(1, 2)

        flags, padding = arguments["is_index_global_attn"], arguments["is_index_masked"]
        tokens = torch.arange(flags.shape[1])
        near = (tokens[:, None] - tokens).abs() <= WINDOW
        allowed = near | flags[:, :, None] | flags[:, None]
        outputs = []
        for end in ("", "_global"):
            logits = by_head(f"query{end}") @ by_head(f"key{end}").mT / 12**0.5
            logits = logits.masked_fill(~allowed[:, None] | padding[:, None, None], -torch.inf)
            weights = change(logits.softmax(dim=-1))
            outputs.append(weights @ by_head(f"value{end}"))
        output = torch.where(flags[:, None, :, None], outputs[1], outputs[0])
        return (output.transpose(1, 2).flatten(2).masked_fill(padding[..., None], 0.0),)

    return forward


def _cut(weights: torch.Tensor) -> torch.Tensor:
    """Remove the pairs of queries 0 and 6 and keys 0 and 4 before the softmax, in head 1."""
    kept = torch.ones(weights.shape[2:])
    for query in (0, 6):
        kept[query, [0, 4]] = 0
    cut = weights[:, 1] * kept
    return torch.cat(
        [weights[:, :1], (cut / cut.sum(-1, keepdim=True))[:, None], weights[:, 2:]], dim=1
    )


def _ablated(weights: torch.Tensor) -> torch.Tensor:
    return weights * torch.tensor([1.0, 1.0, 0.0, 1.0])[:, None, None]


MASK = [[2, 1, 1, 1, 1, 2, 1, 1, 1]]


@pytest.mark.parametrize(("name", "stack"), STACKS.items())
@pytest.mark.parametrize("change", [_cut, _ablated])
def test_changes_equal_those_of_an_explicit_matrix(
    name: str, stack: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """The model pads the text to 12 tokens. Tokens 0 and 5 are global."""
    model, inputs = model_of(name), inputs_of(name, MASK)
    kind = next(type(part) for part in model.modules() if has_window(part))
    states: list[torch.Tensor] = []

    def store(*arguments: Any) -> None:
        field = "last_hidden_state" if "Long" in name else "encoder_last_hidden_state"
        states.append(arguments[-1][field].detach().clone())

    handle = model.register_forward_hook(store)
    for changed in (lambda weights: weights, change):
        with mock.patch.object(kind, "forward", dense(changed)), torch.no_grad():
            model(**inputs)
    unchanged, expected = states
    states.clear()
    made: Change = av.Ablate(heads=2, stack=stack)
    if change is _cut:
        made = av.Knockout(queries=[0, 6], keys=[0, 4], heads=1, stack=stack)
    av.intervene(model, inputs, made, answer=lambda output: output[0].square().sum())
    handle.remove()
    assert (states[0] - unchanged).abs().max() < 1e-5
    assert (expected - unchanged).abs().max() > 1e-3
    assert min((state - expected).abs().max() for state in states) < 1e-5


def test_changes_of_the_encoder_apply_to_generations() -> None:
    model = model_of("LEDForConditionalGeneration")
    inputs = inputs_of("LEDForConditionalGeneration", MASK)
    del inputs["decoder_input_ids"]
    change = av.Knockout(queries=[0, 6], keys=[0, 4], stack="encoder")
    generated = av.intervene(model, inputs, change, generate={"max_new_tokens": 2})
    start = torch.tensor([[model.config.decoder_start_token_id]])
    forward = av.intervene(model, {**inputs, "decoder_input_ids": start}, change)
    assert abs(forward.effect.change) > 100 * forward.effect.noise
    assert generated.effect.change == pytest.approx(forward.effect.change, rel=1e-3)
    for layer in (0, 1):
        weights = generated.stack("encoder").weights(layer=layer)
        own = forward.stack("encoder").weights(layer=layer)
        assert abs(weights - own).max() < 1e-6

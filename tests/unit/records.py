"""Functions that make small records from random numbers or constants, without a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.record.attention import (
    LayerAttention,
    QueryKeyAttention,
    StoredAttention,
    StoredWeights,
)
from attnviz.record.difference import DifferenceAttention
from attnviz.record.images import PatchGrid
from attnviz.record.linear import LinearAttention
from attnviz.record.masks import BandMask, DenseBias, DistanceBias, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

# Token texts: HTML, quotes, templates, a reversed reading direction, a NUL byte, a joined emoji, a
# lone surrogate and an empty string.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "\"'`\\",
    "${alert(1)}{policy}%s",
    "\u202egnp.exe\u202c",
    "\x00",
    "👩‍🚀",
    "\ud800",
    "",
)


def shares(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return random weights of the given shape, whose rows sum to 1."""
    return softmax(np.random.default_rng(seed).normal(size=shape, scale=2))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float32]:
    powers = np.exp(logits)
    weights: NDArray[np.float32] = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    return weights


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return a tensor of the given shape with random float32 numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def words(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{position}" for position in range(count)]


def given_record(heads_per_layer: tuple[int, ...] = (2, 3), num_tokens: int = 5) -> AttentionRecord:
    """Return a record of stored weights, with a layer for each entry of `heads_per_layer`."""
    layers = [
        shares(heads, num_tokens, num_tokens, seed=layer)
        for layer, heads in enumerate(heads_per_layer)
    ]
    return AttentionRecord.from_weights(layers, words(num_tokens), model="given")


def encoder_decoder_record() -> AttentionRecord:
    """Return a record of stored weights in the stacks of an encoder-decoder model."""
    return AttentionRecord.from_weights(
        encoder_attentions=[shares(3, 6, 6, seed=1), shares(3, 6, 6, seed=2)],
        decoder_attentions=[shares(2, 4, 4, seed=3)] * 3,
        cross_attentions=[shares(1, 4, 6, seed=4), shares(5, 4, 6, seed=5)],
        encoder_tokens=words(6, "e"),
        decoder_tokens=words(4, "d"),
        model="encoder-decoder",
    )


def hybrid_record(
    softmax: tuple[int, ...] = (1, 3), linear: tuple[int, ...] = (0, 1, 2), num_tokens: int = 5
) -> AttentionRecord:
    """Return a record with two stacks: softmax layers of 2 heads and linear layers of 3 heads.

    `softmax` and `linear` are the numbers of the layers in the model.
    """
    given = given_record((2,) * len(softmax), num_tokens).stack()
    tokens = given.query_tokens
    layers = {
        layer: LinearAttention(
            queries=vectors(3, num_tokens, 4, seed=layer),
            keys=vectors(3, num_tokens, 4, seed=layer + 50),
            log_decay=torch.full((3, num_tokens, 1), -0.3),
            strengths=torch.ones(3, num_tokens),
        )
        for layer in linear
    }
    stacks = {
        "self": AttentionStack(
            "self", dict(zip(softmax, map(given.attention, given.layers), strict=True)), tokens
        ),
        "linear": AttentionStack("linear", layers, tokens, signed=True, measure="linear weight"),
    }
    return AttentionRecord(stacks, model="hybrid")


def captured_record() -> AttentionRecord:
    """Return a record with the stacks "self" and "cross".

    The layers of "self" differ in mask, bias, soft cap, attention sinks, dtype or gates. "cross"
    has one layer of stored weights.
    """
    flags = torch.from_numpy(np.random.default_rng(5).random((4, 6, 6)) < 0.6)
    flags[:, 3] = False
    causal = BandMask(None, 0)
    packed = PackedMask.pack(flags)
    by_distance = DistanceBias(vectors(4, 11, seed=6), 6)
    dense = DenseBias(vectors(1, 1, 6, seed=7))
    queries, keys = vectors(4, 6, 8, seed=8), vectors(2, 6, 8, seed=9)
    tokens = Tokens.of(
        ["[CLS]", *words(4), "[SEP]"],
        special=[True, False, False, False, False, True],
        sequence=[None, 0, 0, 1, 1, None],
        ids=[101, 1, 2, 3, 4, 102],
    )
    own = {
        2: QueryKeyAttention(queries, keys, 0.25, mask=causal),
        3: QueryKeyAttention(queries, keys, 0.25, mask=causal, softcap=30.0),
        5: QueryKeyAttention(queries, keys, 0.5, mask=packed, bias=by_distance),
        7: QueryKeyAttention(
            queries.bfloat16(), keys.bfloat16(), 0.3, mask=packed, sinks=vectors(4, seed=10)
        ),
        11: QueryKeyAttention(queries.half(), keys.half(), 0.3, mask=causal, bias=by_distance),
        12: QueryKeyAttention(queries, keys, 0.3, bias=dense),
    }
    gates = {layer: vectors(4, 6, seed=layer).sigmoid() for layer in (3, 7)}
    gates[7][1, 2] = torch.nan
    cross = {0: StoredWeights(torch.from_numpy(shares(3, 6, 2, seed=11)))}
    return AttentionRecord(
        {
            "self": AttentionStack("self", own, tokens, gates=gates),
            "cross": AttentionStack("cross", cross, tokens, Tokens.of(["x", " y"])),
        },
        model="captured",
        notes=["made by hand"],
    )


def difference_record(
    tokens: int = 6, *, layers: int = 2, heads: int = 4, with_side: bool = False
) -> AttentionRecord:
    """Return a record of the differences between two random causal attentions, b minus a.

    With `with_side`, the record also has a stack of the weights of a.
    """
    text = Tokens.of(words(tokens))
    sides = [
        [
            QueryKeyAttention(
                2 * vectors(heads, tokens, 6, seed=10 * side + layer),
                2 * vectors(heads, tokens, 6, seed=100 + 10 * side + layer),
                0.4,
                mask=BandMask(None, 0),
            )
            for layer in range(layers)
        ]
        for side in range(2)
    ]
    differences = {
        layer: DifferenceAttention(a, b) for layer, (a, b) in enumerate(zip(*sides, strict=True))
    }
    stack = AttentionStack("self: b − a", differences, text, signed=True, measure="difference")
    side_stack = AttentionStack("self: a", dict(enumerate(sides[0])), text)
    stacks = [side_stack, stack] if with_side else [stack]
    return AttentionRecord({stack.name: stack for stack in stacks}, model="difference")


#: Colours of the background and the shapes in `drawn_image`.
GROUND, DISC, BAR, SQUARE = (236, 228, 208), (206, 60, 48), (38, 92, 170), (52, 140, 84)


def drawn_image(height: int = 96, width: int = 128) -> NDArray[np.uint8]:
    """Return an image of a disc (top left), a diagonal bar and a square (bottom right)."""
    image = np.full((height, width, 3), GROUND, np.uint8)
    y, x = np.mgrid[:height, :width]
    image[(y - 0.3 * height) ** 2 + (x - 0.25 * width) ** 2 < (0.2 * height) ** 2] = DISC
    image[np.abs(y - 0.3 * height - 0.6 * (x - 0.4 * width)) < 0.05 * height] = BAR
    image[(y >= height * 0.625) & (y < height * 0.875) & (x >= width * 0.75)] = SQUARE
    return image


def patch_names(rows: int, columns: int) -> list[str]:
    return [f"{row},{column}" for row in range(rows) for column in range(columns)]


def image_record(rows: int = 6, columns: int = 8, heads: int = 3) -> AttentionRecord:
    """Return a record of two layers. The tokens are ``[CLS]`` and the patches of an image."""
    names = ["[CLS]", *patch_names(rows, columns)]
    tokens = Tokens(
        text=tuple(names),
        special=(True, *[False] * (rows * columns)),
        sequence=(None, *[0] * (rows * columns)),
        grids=(PatchGrid(image=0, start=1, rows=rows, columns=columns),),
    )
    layers = {
        layer: StoredWeights(torch.from_numpy(_near(tokens, heads, seed=layer))) for layer in (0, 1)
    }
    stack = AttentionStack("self", layers, tokens)
    return AttentionRecord({"self": stack}, model="shapes-vit", images=[drawn_image()])


def _near(tokens: Tokens, heads: int, seed: int) -> NDArray[np.float32]:
    """Return random weights. Head h favours patches near the patch h columns right of the query."""
    [grid] = tokens.grids
    cells = np.array([grid.cell(token) for token in range(grid.start, grid.stop)])
    logits = np.random.default_rng(seed).normal(size=(heads, len(tokens), len(tokens)))
    for head in range(heads):
        offsets = cells[:, None] + [0, head] - cells[None]
        inner = slice(grid.start, grid.stop)
        logits[head, inner, inner] -= 0.5 * (offsets**2).sum(-1)
    logits[:, :, 0] += 1.5
    return softmax(logits)


def captioned_record(images: int = 1, side: int = 4, heads: int = 2) -> AttentionRecord:
    """Return a causal record with two equal layers. Its tokens are text, image patches and text."""
    text, special, grids = ["<bos>", "Look", ":"], [True, False, False], []
    for image in range(images):
        grids.append(PatchGrid(image=image, start=len(text), rows=side, columns=side))
        text += ["<image>"] * side**2
    text += ["What", " is", " red", "?"]
    special += [False] * (len(text) - len(special))
    tokens = Tokens(
        text=tuple(text), special=tuple(special), sequence=(0,) * len(text), grids=tuple(grids)
    )
    queries, keys = vectors(heads, len(text), 8, seed=1), vectors(heads, len(text), 8, seed=2)
    attention = QueryKeyAttention(queries, keys, 0.6, mask=BandMask(None, 0))
    stack = AttentionStack("self", {0: attention, 1: attention}, tokens)
    pictures = [drawn_image(64 + 16 * image, 64) for image in range(images)]
    return AttentionRecord({"self": stack}, model="shapes-vlm", images=pictures)


def tensors_of(attention: LayerAttention) -> list[torch.Tensor]:
    """Return the tensors that a layer stores, or an empty list if it is derived."""
    return list(attention.parts.values()) if isinstance(attention, StoredAttention) else []


def assert_same(actual: AttentionRecord, expected: AttentionRecord) -> None:
    """Assert that the models, notes and stacks of two records are equal. Do not compare images."""
    assert (actual.model, actual.notes) == (expected.model, expected.notes)
    assert list(actual.stacks) == list(expected.stacks)
    for name, stack in actual.stacks.items():
        reloaded = expected.stacks[name]
        assert (stack.layers, stack.heads_per_layer) == (reloaded.layers, reloaded.heads_per_layer)
        assert (stack.query_tokens, stack.key_tokens) == (
            reloaded.query_tokens,
            reloaded.key_tokens,
        )
        assert (stack.normalized, stack.signed) == (reloaded.normalized, reloaded.signed)
        assert (stack.measure, stack.causal) == (reloaded.measure, reloaded.causal)
        assert stack.maximum == pytest.approx(reloaded.maximum, rel=1e-5)
        assert repr(stack) == repr(reloaded)
        for layer in stack.layers:
            gates, reloaded_gates = stack.gates(layer), reloaded.gates(layer)
            assert (gates is None) == (reloaded_gates is None)
            if gates is not None and reloaded_gates is not None:
                assert_array_equal(gates, reloaded_gates)
            tensors = tensors_of(stack.attention(layer))
            reloaded_tensors = tensors_of(reloaded.attention(layer))
            assert [tensor.dtype for tensor in tensors] == [t.dtype for t in reloaded_tensors]
            for tensor, reloaded_tensor in zip(tensors, reloaded_tensors, strict=True):
                assert torch.equal(tensor, reloaded_tensor)
            # The rounding of a matrix product can depend on the alignment of memory.
            weights = reloaded.weights(layer=layer)
            assert_allclose(weights, stack.weights(layer=layer), rtol=0, atol=1e-5)

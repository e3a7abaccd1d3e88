"""Attributions by each method of `attribute` equal those by autograd or explicit formulas."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import attnviz as av
from attnviz.interventions import attribution_method
from attnviz.interventions.attributed import GradientAttribution, HeadVectors
from attnviz.interventions.attribution_methods import _BUILT_IN
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.server import RecordServer
from attnviz.server.strongest import Strongest, find_strongest_keys
from models.counting import LiveTensors
from models.explicit_attention import attention_function
from models.make_models import make_model
from rounding import UNIT, relative_error
from unit.complete_replies import whole_reply
from unit.selected import cells, selected

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
PAIR = (7, 8)


def slopes(model: Any, register: Callable[..., str]) -> list[tuple[Any, Any, Any]]:
    """Return the weights and two gradients of each layer, all (heads, queries, keys).

    The first gradient is with respect to the attention weights, and the second with respect to the
    attention logits. The differentiated number is the logit of `PAIR[0]` minus that of `PAIR[1]`.
    """
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []

    def weights_of(_: Any, logits: torch.Tensor) -> torch.Tensor:
        calls.append((logits, logits.softmax(dim=-1)))
        return calls[-1][1]

    changed = copy.deepcopy(model)
    changed.set_attn_implementation(register("explicit", attention_function(weights_of)))
    row = changed(IDS, use_cache=False).logits[0, -1]
    tensors = [tensor for pair in calls for tensor in pair]
    gradients = torch.autograd.grad(row[PAIR[0]] - row[PAIR[1]], tensors)
    return [
        (weights[0].detach().numpy(), by_weights[0].numpy(), by_logits[0].numpy())
        for (_, weights), by_logits, by_weights in zip(
            calls, gradients[::2], gradients[1::2], strict=True
        )
    ]


def close(attributions: Any, expected: Any) -> bool:
    return bool(np.abs(attributions - expected).max() <= 2e-5 * np.abs(expected).max() + 1e-9)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_those_of_autograd(
    kind: str, frozen: bool, register: Callable[..., str]
) -> None:
    model = make_model(kind)
    expected = slopes(model, register)
    model.requires_grad_(not frozen)
    inputs = {"input_ids": IDS}
    gradient = av.attribute(model, inputs, answer=PAIR).stack()
    knockout = av.attribute(model, inputs, answer=PAIR, method="knockout gradient").stack()
    assert gradient.signed
    assert gradient.measure == "gradient x attention"
    for layer, (weights, by_weights, by_logits) in enumerate(expected):
        assert close(gradient.weights(layer=layer), weights * by_weights)
        certain = weights > 1 - 1e-3
        cut = np.where(certain, 0, by_logits / np.where(certain, 1, 1 - weights))
        assert close(np.where(certain, 0, knockout.weights(layer=layer)), cut)
        # The first query has only one key. Removing this key changes its weight from 1 to 0, so the
        # attribution is the gradient with respect to this weight.
        first = np.zeros_like(weights[:, 0])
        first[:, 0] = by_weights[:, 0, 0]
        assert close(knockout.weights(layer=layer)[:, 0], first)
        # In the last layer, the first query does not affect the last token.
        assert first.any() == (layer < len(expected) - 1)
        assert (by_weights < 0).any()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("sink", [None, 1.5])
@pytest.mark.parametrize("sharp", [10.0, 14.0, 18.0, 40.0])
def test_the_attribution_of_a_key_with_almost_all_weight_is_exact(
    sharp: float, sink: float | None
) -> None:
    """If `sharp` is large, the weight of key 2 is so close to 1 that float32 rounds it to 1."""

    def attend(own_logits: torch.Tensor) -> torch.Tensor:
        """Return the weights of the keys. A sink is one more logit, whose weight is dropped."""
        if sink is None:
            return own_logits.softmax(dim=-1)
        with_sink = torch.cat([own_logits, torch.full_like(own_logits[..., :1], sink)], dim=-1)
        return with_sink.softmax(dim=-1)[..., :-1]

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 6, generator=generator).double()
    logits[:, 2] += sharp
    values, gradients = (torch.randn(n, 4, generator=generator) for n in (6, 5))
    weights = attend(logits)
    outputs = weights @ values.double()
    # The keys are an identity matrix and the scale is 1, so the logits equal the queries.
    sinks = None if sink is None else torch.tensor([sink])
    base = QueryKeyAttention(logits.float()[None], torch.eye(6)[None], scale=1.0, sinks=sinks)
    computed = GradientAttribution(
        base, HeadVectors(values[None], outputs.float()[None], gradients[None]), "logits"
    ).block([0], slice(1, 5), slice(1, 4))[0]
    for row, query in enumerate(range(1, 5)):
        for column, key in enumerate(range(1, 4)):
            cut_logits = logits[query].clone()
            cut_logits[key] = -torch.inf
            # Removing the key lowers the output by weight * (value - output without the key).
            lost = (values[key].double() - attend(cut_logits) @ values.double()) @ (
                gradients[query].double()
            )
            expected = float(weights[query, key] * lost)
            assert float(computed[row, column]) == pytest.approx(expected, rel=2e-3, abs=1e-6)


def random_attribution(count: int, at: Any, *, few: bool) -> GradientAttribution:
    """Return a `GradientAttribution` of `count` random tokens.

    The gradients are with respect to `at`, which is "weights" or "logits". With `few`, only the
    last five queries have large gradients.
    """
    generator = torch.Generator().manual_seed(0)
    q, v, g = (torch.randn(2, count, 8, generator=generator) for _ in range(3))
    if few:
        g[:, : count - 5] *= 1e-3
    base = QueryKeyAttention(q, q, 8**-0.5, BandMask(None, 0))
    o = g
    if at == "logits":
        o = nn.functional.scaled_dot_product_attention(
            q, q, v[:1].expand(2, -1, -1), is_causal=True
        )
    return GradientAttribution(base, HeadVectors(v[:1], o, g), at)


@pytest.mark.parametrize("at", ["weights", "logits"])
def test_the_largest_attribution_is_bounded_without_computing_all(at: Any) -> None:
    for few in (True, False):
        attention = random_attribution(300, at, few=few)
        most = float(attention.block([0, 1], slice(0, 300)).abs().max())
        assert attention.bound is not None
        assert attention.bound >= most * (1 - 2 * 8 * UNIT)
        if few:
            # An attribution is a weight times a sum of eight products. `off` is the relative
            # rounding error of the weight, plus two roundings for each product.
            off = relative_error(attention.base) + 2 * 8 * UNIT
            assert attention.bound == pytest.approx(most, rel=off)


def test_requests_for_131072_tokens_make_no_matrix_of_all_pairs() -> None:
    count = 131_072
    attention = random_attribution(count, "weights", few=True)
    tokens = Tokens.of([f"t{index}" for index in range(count)])
    stack = AttentionStack("self", {0: attention}, tokens, signed=True, measure="gradient")
    server = RecordServer(AttentionRecord({"self": stack}))
    with LiveTensors() as tensors:
        whole: dict[str, Any] = {"heads": [0, 1], "rows": [0, count], "columns": [0, count]}
        maps = whole_reply(server, "read", {"stack": "self", "layer": 0, **whole, **cells(32)})
        strongest = find_strongest_keys(
            selected(stack, 0, [1], slice(count - 4, count)), Strongest(k=2)
        )
    assert tensors.largest < 40_000_000
    assert maps.data is not None
    assert len(maps.data) == 2 * 32 * 32
    q, v = attention.base.vectors.queries[1].double(), attention.head_vectors.values[0].double()  # type: ignore[union-attr]
    weights = torch.softmax(q[-1] @ q.T * 8**-0.5, dim=0)
    expected = (weights * (v @ attention.head_vectors.gradients[1, -1].double())).numpy()
    most = np.argsort(-np.abs(expected))[:2]
    assert strongest.keys[0, 3].tolist() == most.tolist()
    assert strongest.weights[0, 3] == pytest.approx(expected[most], rel=1e-4)


def test_integrated_gradients_add_up_to_the_effect_of_a_layer() -> None:
    model = make_model("llama")
    inputs = {"input_ids": IDS}
    record = av.attribute(model, inputs, answer=PAIR, method="integrated gradients")
    for layer in (0, 1, 2):
        lost = -av.intervene(model, inputs, av.Ablate(layer), answer=PAIR).effect.change
        total = float(record.stack().weights(layer=layer).sum())
        assert total == pytest.approx(lost, rel=0.02)
    assert any("sum of a layer's numbers differs" in note for note in record.notes)


def test_value_norms_are_those_of_the_projected_values() -> None:
    model, inputs = make_model("llama"), {"input_ids": IDS}
    attention = model.model.layers[1].self_attn
    projected: list[torch.Tensor] = []
    attention.v_proj.register_forward_hook(lambda *args: projected.append(args[2][0].detach()))
    weights = av.extract(model, inputs).stack().weights(layer=1)
    stack = av.attribute(model, inputs, method="value norm").stack()
    assert not stack.signed
    assert not stack.normalized
    matrix = attention.o_proj.weight.detach().T
    for head in range(4):
        # Two query heads share a value head. Each head has 12 components.
        values = projected[0][:, head // 2 * 12 :][:, :12]
        norms = (values @ matrix[head * 12 : (head + 1) * 12]).norm(dim=-1).numpy()
        assert close(stack.weights(layer=1, head=head), weights[head] * norms)


def test_an_answer_may_be_a_function() -> None:
    model, inputs = make_model("gpt2"), {"input_ids": IDS}

    def logit_difference(outputs: Any) -> torch.Tensor:
        difference: torch.Tensor = outputs.logits[0, -1, PAIR[0]] - outputs.logits[0, -1, PAIR[1]]
        return difference

    expected = av.attribute(model, inputs, answer=PAIR).stack().weights(layer=1)
    record = av.attribute(model, inputs, answer=logit_difference)
    assert close(record.stack().weights(layer=1), expected)
    assert "Attributed number: the value of logit_difference." in record.notes


def test_stacks_of_windows_are_left_out_and_named() -> None:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=24, depths=[1, 1], num_heads=[2, 4], window_size=8
    )
    model = transformers.SwinForImageClassification(config).eval()
    record = av.attribute(model, {"pixel_values": torch.rand(1, 3, 32, 32)})
    # In stage 1, each window is a part of the image. In stage 2, one window is the whole image.
    assert list(record.stacks) == ["vision stage 2"]
    assert record.stack().weights(layer=1).shape == (4, 64, 64)
    assert "stack “vision stage 1”" in record.notes[-1]


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        ("gpt2", {"method": "gradients"}, ValueError, "method='gradients' must be one of 'grad"),
        ("gpt2", {"method": "integrated gradients", "steps": 0}, ValueError, "steps=0"),
        ("gpt2", {"method": "rollout", "answer": 3}, ValueError, "'rollout' has no answer"),
        ("gpt2", {"method": "rollout", "layers": [1]}, ValueError, "Do not pass layers"),
        ("gpt2", {"answer": lambda _: 1.0}, ValueError, "without a gradient"),
        ("bloom", {"answer": PAIR}, NotImplementedError, "cannot be attributed"),
    ],
)
def test_invalid_arguments_are_refused(
    kind: str, options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        av.attribute(make_model(kind), {"input_ids": IDS}, **options)


def test_rollout_multiplies_the_layers() -> None:
    model, inputs = make_model("bert"), {"input_ids": IDS}
    own = av.extract(model, inputs).stack()
    record = av.attribute(model, inputs, method="rollout")
    expected = np.eye(9)
    for layer in own.layers:
        mean = own.weights(layer=layer).astype(np.float64).mean(axis=0)
        expected = (mean / 2 + np.eye(9) / 2) @ expected
        weights = record.stack().weights(layer=layer)[0]
        assert np.abs(weights - expected).max() < 1e-6
        assert np.abs(weights.sum(axis=1) - 1).max() < 1e-6
        assert np.array_equal(
            record.stack().weights(layer=layer, head=0, rows=slice(3, 5)), weights[3:5]
        )
    causal = av.attribute(make_model("gpt2"), inputs, method="rollout")
    matrix = (np.tri(9) / np.arange(1, 10)[:, None] + np.eye(9)) / 2
    share = np.linalg.matrix_power(matrix, 3)[-1, 0]
    # For uniform causal attention in 3 layers, rollout gives the first token the weight `share`.
    assert any(f"the first token gets {share:.0%}" in note for note in causal.notes)


def test_relevance_is_the_recursion_of_its_paper(register: Callable[..., str]) -> None:
    model = make_model("gpt2")
    expected = np.eye(9)
    record = av.attribute(model, {"input_ids": IDS}, answer=PAIR, method="relevance")
    for layer, (weights, by_weights, _) in enumerate(slopes(model, register)):
        expected = expected + np.maximum(weights * by_weights, 0).mean(axis=0) @ expected
        assert close(record.stack().weights(layer=layer)[0], expected)
    assert not record.stack().signed


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_direct_attribution_is_the_decomposition_by_hand(kind: str) -> None:
    model = make_model(kind)
    record = av.attribute(model, {"input_ids": IDS}, answer=PAIR, method="direct").stack()
    if kind == "gpt2":
        norm = model.transformer.ln_f
        projections = [block.attn.c_proj for block in model.transformer.h]
        matrices = [projection.weight for projection in projections]
    else:
        norm = model.model.norm
        projections = [block.self_attn.o_proj for block in model.model.layers]
        matrices = [projection.weight.T for projection in projections]
    inputs_of: dict[Any, torch.Tensor] = {}
    for hooked in (*projections, norm):
        hooked.register_forward_pre_hook(lambda module, args: inputs_of.update({module: args[0]}))
    with torch.no_grad():
        model(IDS, use_cache=False)
    stream = inputs_of[norm][0, -1].detach()
    unembedding = model.lm_head.weight.detach()
    towards = norm.weight.detach() * (unembedding[PAIR[0]] - unembedding[PAIR[1]])
    if kind == "gpt2":
        # GPT-2's norm subtracts the mean before it scales. Llama's norm does not.
        towards = towards - towards.mean()
        scale = (stream.var(unbiased=False) + norm.eps).sqrt()
    else:
        scale = (stream.pow(2).mean() + norm.variance_epsilon).sqrt()
    for layer, (projection, matrix) in enumerate(zip(projections, matrices, strict=True)):
        for head in range(4):
            mine = slice(head * 12, (head + 1) * 12)
            part = inputs_of[projection][0, -1, mine] @ matrix.detach()[mine]
            expected = float(part @ towards / scale)
            weights = record.weights(layer=layer, head=head)
            assert float(weights[-1].sum()) == pytest.approx(expected, rel=1e-4, abs=1e-7)
            # Only the output of a head at the last query affects the answer directly.
            assert not weights[:-1].any()


@pytest.mark.parametrize("kind", ["bert", "gemma2"])
def test_direct_attribution_refuses_norms_after_layers(kind: str) -> None:
    with pytest.raises(NotImplementedError, match="other modules lie between"):
        av.attribute(make_model(kind), {"input_ids": IDS}, answer=PAIR, method="direct")


def test_the_docs_list_every_method() -> None:
    page = (Path(__file__).parents[2] / "docs" / "does-it-matter.md").read_text(encoding="utf-8")
    for method in _BUILT_IN:
        link = r" ([\1](https://arxiv.org/abs/\2))"
        source = re.sub(r"(.+) \(arXiv (\d+\.\d+)\)", link, method.source)
        row = f'| `"{method.name}"` | {method.definition}{source} | {method.meaning} |'
        assert f"{row} {method.check} |" in page.splitlines()
        assert f'``"{method.name}"``: ' in str(av.attribute.__doc__)


def weight_times_gradient(weights: Any, values: Any, outputs: Any, gradients: Any) -> Any:
    del outputs
    return weights * (gradients @ values.T)


@pytest.mark.parametrize(
    ("needs", "formula", "same_as"),
    [
        ("gradient", weight_times_gradient, "gradient"),
        ("mean gradient", weight_times_gradient, "integrated gradients"),
        ("direct gradient", weight_times_gradient, "direct"),
        ("value norms", torch.mul, "value norm"),
    ],
)
@pytest.mark.usefixtures("own_methods")
def test_an_own_method_computes_its_formula(
    needs: Any, formula: Callable[..., Any], same_as: str
) -> None:
    attribution_method("mine", needs=needs, definition="what I want", signed=False)(formula)
    model, inputs = make_model("llama"), {"input_ids": IDS}
    expected = av.attribute(model, inputs, method=same_as).stack()
    record = av.attribute(model, inputs, method="mine")
    stack = record.stack()
    assert (stack.measure, stack.signed, stack.normalized) == ("mine", False, False)
    for layer in expected.layers:
        assert close(stack.weights(layer=layer), expected.weights(layer=layer))
        rows = stack.weights(layer=layer, head=1, rows=slice(2, 5))
        assert close(rows, expected.weights(layer=layer, head=1, rows=slice(2, 5)))
    assert any(note.startswith("Number of a pair: what I want.") for note in record.notes)


@pytest.mark.usefixtures("own_methods")
def test_an_own_method_of_the_weights_needs_no_gradient() -> None:
    attribution_method("squared", needs="weights", signed=False)(lambda weights: weights**2)
    model, inputs = make_model("bloom"), {"input_ids": IDS}
    stack = av.attribute(model, inputs, method="squared").stack()
    weights = av.extract(model, inputs).stack().weights(layer=1)
    assert close(stack.weights(layer=1), weights**2)
    with pytest.raises(ValueError, match="'squared' has no answer"):
        av.attribute(model, inputs, method="squared", answer=PAIR)


@pytest.mark.usefixtures("own_methods")
def test_invalid_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="attnviz has this method"):
        attribution_method("gradient", needs="gradient")
    with pytest.raises(ValueError, match="needs='a gradient' must be one of"):
        attribution_method("mine", needs="a gradient")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="colour"):
        attribution_method("mine", needs="weights", colour="red")(lambda weights: weights)
    attribution_method("mine", needs="weights")(lambda weights: weights.sum())
    record = av.attribute(make_model("gpt2"), {"input_ids": IDS}, method="mine")
    with pytest.raises(ValueError, match=r"must return \(rows, keys\), \(9, 9\)"):
        record.stack().weights(layer=0, head=0)

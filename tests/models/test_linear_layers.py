"""Records of linear layers have the matrices that the models' own rules apply to their values."""

from __future__ import annotations

import copy
import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from traitlets import TraitError
from transformers import PreTrainedModel, Qwen3NextConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention

import attnviz as av
from attnviz.atlas.answers import describe_atlas
from attnviz.extraction.capture import linear, memory
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.capture.linear import globals_of, read_linear, rule_call
from attnviz.extraction.capture.masks import Positions
from attnviz.extraction.families import LINEAR_RULES, linear_size
from attnviz.extraction.modules import attention_modules
from attnviz.interventions.changes import Change
from attnviz.record.record import derive_record
from model_types.build import tiny_model
from model_types.overrides import OVERRIDES
from model_types.reference import noted_rules

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 6])
COUNT = IDS.shape[1]

# Model types with a rule that has one matrix per head.
RULES = [
    "qwen3_next",
    "qwen3_5_text",
    "olmo_hybrid",
    "kimi_linear",
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "nemotron_h",
    "zamba2",
]


def model_of(model_type: str) -> Any:
    return tiny_model(model_type, None, {})


@pytest.mark.parametrize("model_type", RULES)
def test_weights_are_the_outputs_of_the_rule_for_one_hot_values(model_type: str) -> None:
    model = model_of(model_type)
    with torch.no_grad(), noted_rules(model, LINEAR_RULES) as calls:
        model(IDS, use_cache=False)
    stack = av.extract(model, IDS).stacks["linear"]
    assert len(calls) == stack.num_layers
    for layer, (rule, arguments, output) in zip(stack.layers, calls, strict=True):
        name = "value" if "value" in arguments else "hidden_states"
        heads = output.shape[2]
        one_hot = torch.eye(COUNT)[None, :, None].expand(1, COUNT, heads, COUNT)
        result = rule(**{**arguments, name: one_hot})
        weights = (result[0] if isinstance(result, tuple) else result)[0].detach().transpose(0, 1)
        limit = 1e-4 * float(weights.abs().max())
        assert_allclose(stack.weights(layer=layer), weights, atol=limit)
        recomputed = stack.weights(layer=layer) @ arguments[name][0].transpose(0, 1).numpy()
        own = output[0].transpose(0, 1).numpy()
        assert_allclose(recomputed, own, atol=1e-4 * np.abs(own).max())


@pytest.mark.parametrize("model_type", ["qwen3_next", "kimi_linear", "bamba"])
def test_weights_are_the_derivatives_of_the_outputs(model_type: str) -> None:
    model = model_of(model_type)
    ids = IDS[:, :9]
    with torch.no_grad(), noted_rules(model, LINEAR_RULES) as calls:
        model(ids, use_cache=False)
    stack = av.extract(model, ids).stacks["linear"]
    rule, arguments, _ = calls[0]
    name = "value" if "value" in arguments else "hidden_states"

    def outputs(values: torch.Tensor) -> torch.Tensor:
        result = rule(**{**arguments, name: values})
        output = result[0] if isinstance(result, tuple) else result
        first: torch.Tensor = output[0, :, :, 0]
        return first

    gradient = torch.autograd.functional.jacobian(outputs, arguments[name].clone())
    # The derivative of the first dimension of an output with respect to the first dimension of a
    # value. `gradient` is (queries, heads, 1, keys, heads, value_dim).
    derivatives = gradient[:, :, 0, ..., 0].diagonal(dim1=1, dim2=3).permute(2, 0, 1)
    limit = 1e-4 * float(derivatives.abs().max())
    assert_allclose(stack.weights(layer=stack.layers[0]), derivatives, atol=limit)


def test_lightning_attention_is_read_from_the_code_of_its_module() -> None:
    model = model_of("minimax")
    stack = av.extract(model, IDS).stacks["linear"]
    module = model.layers[stack.layers[0]].self_attn
    seen: dict[str, torch.Tensor] = {}
    module.qkv_proj.register_forward_hook(lambda *args: seen.update(vectors=args[2]))
    with torch.no_grad():
        model(IDS, use_cache=False)
    heads = module.num_attention_heads
    queries, keys, _ = module.act_fn(seen["vectors"])[0].unflatten(-1, (heads, -1)).chunk(3, dim=-1)
    distance = np.subtract.outer(np.arange(COUNT), np.arange(COUNT))
    for head, rate in enumerate(module.slope_rate.flatten().tolist()):
        products = (queries[:, head] @ keys[:, head].T).numpy()
        expected = np.where(distance >= 0, products * np.exp(-rate * distance.clip(0)), 0)
        weights = stack.weights(layer=stack.layers[0], head=head)
        assert_allclose(weights, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("model_type", ["mamba", "falcon_mamba", "jamba"])
def test_shares_of_mamba_follow_from_its_outputs_for_single_values(model_type: str) -> None:
    model = model_of(model_type)
    with torch.no_grad(), noted_rules(model, LINEAR_RULES) as calls:
        model(IDS, use_cache=False)
    stack = av.extract(model, IDS).stacks["linear"]
    assert stack.heads_per_layer == (1,) * stack.num_layers
    rule, arguments, output = calls[0]
    weights = stack.weights(layer=stack.layers[0], head=0)
    limit = 1e-4 * np.abs(weights).max()
    for token in (0, 5, COUNT - 1):
        only = torch.zeros_like(arguments["hidden_states"])
        only[..., token] = arguments["hidden_states"][..., token]
        part = rule(**{**arguments, "hidden_states": only})
        part = part[0] if isinstance(part, tuple) else part
        share = (part * output).sum(dim=1) / output.square().sum(dim=1)
        assert_allclose(weights[:, token], share[0].detach(), atol=limit)
    assert_allclose(weights.sum(axis=1), 1.0, atol=limit * COUNT)


def float64_shares(stack: Any, layer: int) -> NDArray[np.float64]:
    """Return the shares of the absolute weights of a layer, (heads, queries, keys)."""
    sizes = np.abs(stack.weights(layer).astype(np.float64))
    sums = sizes.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = np.where(sums > 0, sizes / np.where(sums > 0, sums, 1), 0)
    return shares


@pytest.mark.parametrize("model_type", ["qwen3_next", "bamba", "mamba"])
def test_scores_are_those_of_the_shares_of_absolute_weights(model_type: str) -> None:
    stack = av.extract(model_of(model_type), IDS).stacks["linear"]
    assert (stack.weights(stack.layers[0]) < 0).any()
    entropies = av.analysis.head_scores(stack, "entropy")
    scores = av.analysis.head_scores(stack, "same token")
    even = av.analysis.uniform_scores(stack, "same token")
    ids = IDS[0].numpy()
    earlier = (ids[:, None] == ids) & np.tri(COUNT, k=-1, dtype=bool)
    rows = earlier.any(axis=1)
    for index, layer in enumerate(stack.layers):
        expected = float64_shares(stack, layer)
        logarithms = np.log(np.where(expected > 0, expected, 1))
        assert_allclose(entropies[index], -(expected * logarithms).sum(-1).mean(-1), rtol=1e-5)
        on_pairs = (expected * earlier).sum(axis=-1)[:, rows].mean(axis=-1)
        assert_allclose(scores[index], on_pairs, rtol=1e-5)
        assert_allclose(even[index], (earlier.sum(1) / np.arange(1, COUNT + 1))[rows].mean())


@pytest.mark.parametrize("model_type", ["qwen3_next", "bamba", "mamba"])
def test_statistics_are_those_of_the_shares_of_absolute_weights(model_type: str) -> None:
    model = model_of(model_type)
    records = [av.extract(model, IDS[:, start : start + 24]) for start in range(5)]
    stacks = [record.stacks["linear"] for record in records]
    layers = stacks[0].layers
    given = [
        av.AttentionRecord.from_weights(
            [float64_shares(stack, layer).astype(np.float32) for layer in layers],
            stack.query_tokens,
            stack="linear",
            layers=layers,
        )
        for stack in stacks
    ]
    statistics = av.head_statistics(records, edges=8, progress=False).stack("linear")
    expected = av.head_statistics(given, edges=8, progress=False).stack()
    assert statistics.linear
    assert statistics.causal
    for score in statistics.score_names:
        assert_allclose(statistics.mean(score), expected.mean(score), rtol=1e-4, atol=1e-6)
        baselines = statistics.baseline(score), expected.baseline(score)
        for layer, other in zip(*(baseline or [] for baseline in baselines), strict=True):
            assert_allclose(layer, other, rtol=1e-4, atol=1e-6)
    for layer in layers:
        assert_allclose(statistics.offsets(layer), expected.offsets(layer), rtol=1e-4, atol=1e-6)
        for edge in statistics.strongest(layer, 0):
            of_text = float64_shares(stacks[edge.text], layer)[0]
            assert_allclose(edge.weight, of_text[edge.query, edge.key], rtol=1e-5)


def test_linear_layers_do_not_change_the_statistics_of_other_layers() -> None:
    model = model_of("falcon_h1")
    # Texts of the same length are measured together.
    records = [av.extract(model, IDS[:, :length]) for length in (12, 12, 30, 30, 30, 12)]
    softmax = [derive_record(record, {"self": record.stacks["self"]}) for record in records]
    one, other = (
        av.head_statistics(texts, edges=8, progress=False).stack("self")
        for texts in (records, softmax)
    )
    assert one.score_names == other.score_names
    for score in one.score_names:
        assert_array_equal(one.mean(score), other.mean(score))
        assert_array_equal(one.standard_error(score), other.standard_error(score))
    for layer in one.layers:
        assert_array_equal(one.offsets(layer), other.offsets(layer))
        assert one.sampled(layer, 0) == other.sampled(layer, 0)
        assert one.strongest(layer, 0) == other.strongest(layer, 0)


@pytest.mark.parametrize("model_type", ["qwen3_next", "bamba", "mamba"])
def test_a_capture_changes_neither_the_outputs_nor_the_rules(model_type: str) -> None:
    model = model_of(model_type)
    spaces = {id(space): space for space in map(globals_of, model.modules())}.values()
    before = [dict(space) for space in spaces]
    with torch.no_grad():
        own = model(IDS, use_cache=False).last_hidden_state
    seen: list[torch.Tensor] = []
    handle = model.register_forward_hook(lambda *args: seen.append(args[2].last_hidden_state))
    av.extract(model, IDS)
    handle.remove()
    assert torch.equal(seen[0], own)
    assert [dict(space) for space in spaces] == before


@pytest.mark.parametrize("model_type", ["qwen3_next", "bamba", "mamba"])
def test_padding_does_not_count(model_type: str) -> None:
    model = model_of(model_type)
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[0, :8] = 0
    ids = IDS[:, :20].repeat(2, 1)
    record = av.extract(model, {"input_ids": ids, "attention_mask": mask})[0]
    alone = av.extract(model, ids[:1, 8:])
    for layer in alone.stacks["linear"].layers:
        expected = alone.stacks["linear"].weights(layer=layer)
        weights = record.stacks["linear"].weights(layer=layer)
        assert_allclose(weights, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "mamba"])
def test_padding_between_tokens_is_an_error(model_type: str) -> None:
    """The state decays at the padding, which is neither a row nor a column of the weights."""
    mask = torch.ones(1, 20, dtype=torch.long)
    mask[0, 8:10] = 0
    with pytest.raises(NotImplementedError, match=r"attention_mask .* layers\.0"):
        av.extract(model_of(model_type), {"input_ids": IDS[:, :20], "attention_mask": mask})


def test_a_rule_that_returns_sums_of_rounded_products_in_float32() -> None:
    """Mamba-1 multiplies in the model's bfloat16, but its output is float32."""
    model = model_of("jamba").to(torch.bfloat16)
    ids = torch.randint(5, 90, (1, 72), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), noted_rules(model, LINEAR_RULES) as calls:
        model(ids, use_cache=False)
    assert {output.dtype for *_, output in calls} == {torch.float32}
    stack = av.extract(model, ids).stacks["linear"]
    limit = 8 * torch.finfo(torch.bfloat16).eps
    for layer in stack.layers:
        assert_allclose(stack.weights(layer=layer).sum(axis=-1), 1.0, atol=limit)


def test_selected_layers_and_a_spool(tmp_path: Path) -> None:
    model = model_of("qwen3_next")
    whole = av.extract(model, IDS)
    record = av.extract(model, IDS, layers=[1, 3], spool=tmp_path / "spool")
    assert {name: stack.layers for name, stack in record.stacks.items()} == {
        "self": (3,),
        "linear": (1,),
    }
    expected = whole.stacks["linear"].weights(layer=1)
    assert np.array_equal(record.stacks["linear"].weights(layer=1), expected)


class TwoRules(PreTrainedModel):  # type: ignore[misc]
    """A model with a layer of the gated delta rule and a layer of Mamba-2."""

    config_class = Qwen3NextConfig
    _supports_sdpa = True

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def __init__(self, delta: Any, mamba: Any) -> None:
        super().__init__(delta.config)
        self.embed_tokens = delta.embed_tokens
        self.layers = torch.nn.ModuleList([delta.layers[0].linear_attn, mamba.layers[0].mamba])

    def get_input_embeddings(self) -> Any:
        return self.embed_tokens

    def forward(self, input_ids: torch.Tensor) -> BaseModelOutput:
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return BaseModelOutput(last_hidden_state=hidden)


def test_rules_of_different_kinds_are_different_stacks() -> None:
    model = TwoRules(model_of("qwen3_next"), model_of("bamba")).eval()
    record = av.extract(model, IDS[:, :12])
    assert {name: stack.layers for name, stack in record.stacks.items()} == {
        "linear delta rule": (0,),
        "linear Mamba-2": (1,),
    }
    assert record.stacks["linear delta rule"].linear


def test_notes_say_what_the_numbers_are() -> None:
    [note] = [note for note in av.extract(model_of("minimax"), IDS).notes if "linear" in note]
    assert "MiniMaxLightningAttention" in note
    assert "factor of the key's value" in note
    assert "convolution" not in note
    stack = av.extract(model_of("mamba"), IDS).stacks["linear"]
    assert (stack.measure, stack.signed, stack.normalized) == ("share of output", True, False)


def test_changes_of_linear_layers() -> None:
    """A changed output is the product of the changed matrix and the values."""
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    stack = av.extract(model, IDS).stacks["linear"]
    with torch.no_grad(), noted_rules(model, LINEAR_RULES) as calls:
        model(IDS, use_cache=False)
    values = calls[1][1]["value"][0, :, 2].numpy()
    module = model.model.layers[1].linear_attn

    def outputs(change: Change) -> Any:
        seen: list[Any] = []
        handle = module.norm.register_forward_pre_hook(
            lambda _, args: seen.append(args[0].detach().clone())
        )
        av.intervene(model, IDS, change, answer=5)
        handle.remove()
        return [output.view(-1, COUNT, 4, output.shape[-1])[-1, :, 2].numpy() for output in seen]

    weights = stack.weights(layer=1, head=2)
    for change, changed in [
        (av.Knockout(queries=9, keys=5, layers=1, heads=2, stack="linear"), (9, 5)),
        (av.HideTokens(5, layers=1, heads=2, stack="linear"), (slice(6, None), 5)),
    ]:
        expected = weights.copy()
        expected[changed] = 0
        last = outputs(change)[-1]
        own = expected @ values
        assert_allclose(last, own, atol=1e-4 * np.abs(own).max())
    assert not outputs(av.Ablate(1, 2, stack="linear"))[-1].any()


def test_uniform_weights_are_equal_for_all_earlier_tokens() -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    even = np.tri(COUNT, dtype=np.float32) / np.arange(1, COUNT + 1)[:, None]
    effects = [
        av.intervene(model, IDS, av.SetWeights(0, 1, weights, stack="linear"), answer=5).effect
        for weights in ("uniform", even)
    ]
    assert effects[0].after == pytest.approx(effects[1].after, abs=1e-5)
    assert effects[0].change != 0


def test_a_convolution_may_pass_on_a_token_whose_value_is_hidden() -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    record = av.intervene(model, IDS, av.HideTokens(5, stack="linear"), answer=5)
    assert any("no other token reads the value of" in note for note in record.notes)


@pytest.mark.parametrize("method", ["rollout", "relevance"])
def test_products_of_softmax_layers_say_that_linear_layers_are_not_in_them(method: Any) -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    notes = av.attribute(model, IDS, method=method).notes
    assert any("not in the product" in note for note in notes)


def test_layers_without_a_softmax_are_not_attributed() -> None:
    model = tiny_model("mamba2", "Mamba2ForCausalLM", OVERRIDES["mamba2"]["config"])
    with pytest.raises(NotImplementedError, match="no softmax"):
        av.attribute(model, IDS)


def test_outputs_of_linear_heads_have_no_measure() -> None:
    stack = av.extract(model_of("qwen3_next"), IDS, outputs=True).stacks["linear"]
    for measure in ("output norm", "gate", "lost weight"):
        with pytest.raises(ValueError, match="not defined for the linear layers"):
            av.analysis.head_scores(stack, measure)


def test_linear_layers_cannot_be_changed_during_a_generation() -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    with pytest.raises(NotImplementedError, match=r"'linear' cannot be changed while"):
        av.intervene(model, IDS, av.Ablate(0, 1, stack="linear"), generate=3)


@pytest.mark.parametrize("model_type", ["jamba", "zamba"])
def test_layers_of_mamba_1_can_be_ablated_but_not_cut(model_type: str) -> None:
    name = {"jamba": "JambaForCausalLM", "zamba": "ZambaForCausalLM"}[model_type]
    settings = OVERRIDES[model_type]["config"] if model_type == "zamba" else {}
    model = tiny_model(model_type, name, settings)
    head = av.extract(model, IDS).stacks["linear"].num_heads(0) - 1
    space = globals_of(model.model.layers[0].mamba)
    rule, calls = space["mamba_selective_scan"], 0

    def ablated(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        output = rule(*args, **options)
        return output * 0 if calls == head + 1 else output

    space["mamba_selective_scan"] = ablated
    try:
        with torch.no_grad():
            expected = model(IDS, use_cache=False).logits[0, -1]
    finally:
        space["mamba_selective_scan"] = rule
    effect = av.intervene(model, IDS, av.Ablate(0, head, stack="linear"), answer=(5, 7)).effect
    assert_allclose(effect.after, float(expected[5] - expected[7]), atol=1e-4)
    assert abs(effect.after - effect.before) > 1e-3
    with pytest.raises(NotImplementedError, match="one matrix of weights for each channel"):
        av.intervene(model, IDS, av.Knockout(9, 5, stack="linear"), answer=5)


def test_a_head_of_zamba_is_set_to_its_mean_over_another_text() -> None:
    """Zamba calls the rule once for each of its two heads."""
    model = tiny_model("zamba", "ZambaForCausalLM", OVERRIDES["zamba"]["config"])
    other, calls = IDS[:, :7] + 1, 0
    space = globals_of(model.model.layers[0].mamba)
    rule, mean = space["mamba_selective_scan"], torch.empty(0)

    def changed(*args: Any, **options: Any) -> Any:
        nonlocal calls, mean
        calls += 1
        output = rule(*args, **options)
        if calls == 2:
            mean = output.mean(dim=2, keepdim=True)
        return mean.expand_as(output) if calls == 2 + 2 * len(model.model.layers) else output

    space["mamba_selective_scan"] = changed
    try:
        with torch.no_grad():
            model(other, use_cache=False)
            expected = model(IDS, use_cache=False).logits[0, -1]
    finally:
        space["mamba_selective_scan"] = rule
    change = av.Ablate(0, 1, stack="linear", mean_of=other)
    effect = av.intervene(model, IDS, change, answer=(5, 7)).effect
    assert_allclose(effect.after, float(expected[5] - expected[7]), atol=1e-5)
    assert abs(effect.after - effect.before) > 1e-3


def test_effects_of_the_heads_of_linear_layers() -> None:
    """An effect is the change of the logits if the output of a head is set to 0 by a hook."""
    model = tiny_model("bamba", "BambaForCausalLM", {})
    effects = av.head_effects(model, IDS, answer=(5, 7), stack="linear", progress=False)
    space = globals_of(model.model.layers[0].mamba)
    rule = space["mamba2_chunk_scan"]

    def difference() -> float:
        with torch.no_grad():
            logits = model(IDS, use_cache=False).logits[0, -1]
        return float(logits[5] - logits[7])

    before = difference()
    for head in (0, 3):
        first = True

        def ablated(*args: Any, head: int = head, **options: Any) -> Any:
            nonlocal first
            output = rule(*args, **options)
            if first:
                output[:, :, head] = 0
            first = False
            return output

        space["mamba2_chunk_scan"] = ablated
        try:
            expected = difference() - before
        finally:
            space["mamba2_chunk_scan"] = rule
        assert_allclose(effects[0][head], expected, atol=1e-4)


def test_a_comparison_of_linear_layers() -> None:
    model = model_of("qwen3_next")
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        tuned.layers[0].linear_attn.in_proj_qkvz.weight.mul_(1.5)
    one, two = (av.extract(member, IDS) for member in (model, tuned))
    difference = av.compare(one, two).difference.stacks["linear"]
    expected = two.stacks["linear"].weights(layer=0) - one.stacks["linear"].weights(layer=0)
    assert_allclose(difference.weights(layer=0), expected, atol=1e-6)
    a, b = (record.stacks["linear"].weights(layer=0) for record in (one, two))
    sizes = (np.abs(a) + np.abs(b)).sum(axis=2)
    relative = (np.abs(b - a).sum(axis=2) / sizes).mean(axis=1)
    assert_allclose(av.compare(one, two).distance("linear")[0], relative, atol=1e-5)
    with pytest.raises(ValueError, match=r"Jensen-Shannon.*no softmax"):
        av.compare(one, two).distance("linear", measure="Jensen-Shannon")


def test_statistics_have_the_layers_of_both_kinds(tmp_path: Path) -> None:
    statistics = av.head_statistics(model_of("qwen3_next"), [IDS[0].tolist()], progress=False)
    assert statistics.tokens == COUNT
    loaded = av.HeadStatistics.load(statistics.save(tmp_path / "statistics"))
    for read in (statistics, loaded):
        stacks = [read.stack(name) for name in read.stack_names]
        assert [(stack.name, stack.linear, stack.layers) for stack in stacks] == [
            ("self", False, (2, 3)),
            ("linear", True, (0, 1)),
        ]
        assert any("“linear” are shares of the absolute weights" in note for note in read.notes)
    description = describe_atlas(loaded)
    assert [stack["linear"] for stack in description["stacks"]] == [False, True]
    view = av.AtlasView(loaded)
    assert view.stack == "self"
    view.layer = 0
    assert (view.stack, view.layer) == ("linear", 0)
    with pytest.raises(TraitError, match=r"Layer 0 is in another stack: use stack='linear'"):
        av.AtlasView(loaded, stack="self", layer=0)


@pytest.mark.parametrize("model_type", [*RULES, "minimax", "mamba"])
def test_the_size_of_a_layer_is_known_before_the_model_runs(model_type: str) -> None:
    model = model_of(model_type)
    stack = av.extract(model, IDS).stacks["linear"]
    modules = [entry.module for entry in attention_modules(model) if entry.linear]
    for layer, module in zip(stack.layers, modules, strict=True):
        attention: Any = stack.attention(layer)
        parts = attention.parts.values()
        of_tokens = sum(part.nbytes for part in parts if part.dim() > 1 and COUNT in part.shape)
        assert linear_size(module) == of_tokens / COUNT / 4


def test_too_little_memory_is_an_error_before_the_model_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of("bamba")
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    monkeypatch.setattr(memory, "_MIN_CHECKED", 0)
    monkeypatch.setattr(memory, "free_memory", lambda _: 1000)
    with pytest.raises(MemoryError, match=r"2 layers for 72 tokens takes .* and 1 kB"):
        av.extract(model, IDS)


def test_layers_that_are_not_requested_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    original = Copier.copy

    def copy(self: Any, attention: Any, written: tuple[int, str]) -> Any:
        copied.append(written[1])
        return original(self, attention, written)

    monkeypatch.setattr(Copier, "copy", copy)
    av.extract(model_of("qwen3_next"), IDS, layers=[1, 3])
    assert copied == ["layers.1.linear_attn", "layers.3.self_attn"]


def test_another_formula_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of the model is changed: it erases only half of what is stored for a key."""
    model = model_of("qwen3_next")
    space = globals_of(model.layers[0].linear_attn)
    rule = space["torch_chunk_gated_delta_rule"]

    def changed(query: Any, key: Any, value: Any, g: Any, beta: Any, **options: Any) -> Any:
        output, state = rule(query, key, value, g=g, beta=beta, **options)
        return output + 0.1 * output.flip(1), state

    monkeypatch.setitem(space, "torch_chunk_gated_delta_rule", changed)
    with pytest.raises(NotImplementedError, match=r"layers\.0\.linear_attn.*differs by"):
        av.extract(model, IDS)


def to_tf32(tensor: Any) -> Any:
    """Round float32 vectors to TF32, which has 10 explicit bits of the mantissa."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 4:
        return tensor
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("model_type", ["bamba", "falcon_h1"])
def test_a_rounded_product_that_is_almost_0_is_not_another_formula(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule rounds its vectors, as a kernel on a GPU does.

    In these models, some products q k^T are far smaller than |q| |k|.
    """
    model = model_of(model_type)
    space = globals_of(model.layers[0].mamba)
    rule = space["mamba2_chunk_scan"]

    @functools.wraps(rule)
    def rounding(*args: Any, **options: Any) -> Any:
        rounded = {name: to_tf32(value) for name, value in options.items()}
        return rule(*map(to_tf32, args), **rounded)

    monkeypatch.setitem(space, "mamba2_chunk_scan", rounding)
    assert av.extract(model, IDS).stacks["linear"].layers == (0, 1)


class RuleModule(torch.nn.Module):
    """A rule as a module. The package ``kernels`` turns functions into such modules."""

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.rule(*args, **options)


@pytest.mark.parametrize(
    ("model_type", "mixer", "name"),
    [
        ("qwen3_next", "linear_attn", "torch_chunk_gated_delta_rule"),
        ("bamba", "mamba", "mamba2_chunk_scan"),
        ("falcon_mamba", "mixer", "mamba_selective_scan"),
    ],
)
def test_a_rule_may_be_a_module(
    model_type: str, mixer: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule is a module if the package ``kernels`` is used, as in `test_kernels.py`."""
    model = model_of(model_type)
    weights = av.extract(model, IDS).stacks["linear"].weights(layer=0)
    space = globals_of(getattr(model.layers[0], mixer))
    module = RuleModule(space[name])
    parameters = inspect.signature(space[name]).parameters.values()
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([first, *parameters])
    monkeypatch.setattr(RuleModule.forward, "__signature__", signature, raising=False)
    monkeypatch.setitem(space, name, module)
    assert_array_equal(av.extract(model, IDS).stacks["linear"].weights(layer=0), weights)


def test_the_variable_of_a_missing_kernel_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("qwen3_next")
    monkeypatch.setitem(globals_of(model.layers[0].linear_attn), "chunk_gated_delta_rule", None)
    assert av.extract(model, IDS).stacks["linear"].layers == (0, 1)


@pytest.mark.parametrize("bound", [None, -5.0])
def test_options_of_a_kernel_of_fla(bound: float | None) -> None:
    """The kernel computes decays and strengths itself. Here, a rule of transformers gets them."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values, gates = torch.randn(4, 1, 12, 2, 8, generator=generator)
    strengths = torch.randn(1, 12, 2, generator=generator)
    rates, biases = torch.randn(2, generator=generator), torch.randn(16, generator=generator)
    shifted = gates + biases.view(2, 8)
    if bound is None:
        decay = -rates.exp()[:, None] * torch.nn.functional.softplus(shifted)
    else:
        decay = bound * torch.sigmoid(rates.exp()[:, None] * shifted)
    doubled = 2 * strengths.sigmoid()
    rule = chunk_kimi_delta_attention
    output, _ = rule(2 * queries, keys, values, decay, doubled, use_qk_l2norm_in_kernel=False)
    arguments: dict[str, Any] = {
        "q": queries,
        "k": keys,
        "v": values,
        "g": gates,
        "beta": strengths,
        "scale": 2 * 8**-0.5,
        "lower_bound": bound,
        "cu_seqlens": torch.tensor([0, 12]),
        "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
        "allow_neg_eigval": True,
        "kwargs": {"A_log": rates, "dt_bias": biases},
    }
    call = rule_call(torch.nn.Identity(), "chunk_kda", arguments, output)
    [attention] = read_linear(call, [Positions(None, None)], "layers.0")
    recomputed = attention.block([0, 1], slice(0, 12)) @ values[0].transpose(0, 1)
    own = output[0].transpose(0, 1)
    assert_allclose(recomputed, own, atol=1e-5 * float(own.abs().max()))


@pytest.mark.parametrize("argument", ["initial_state", "cu_seqlens"])
def test_arguments_of_unknown_meaning(argument: str) -> None:
    borders = torch.tensor([0, 1, 2])
    arguments = {"value": torch.zeros(1, 2, 3, 4), "kwargs": {argument: borders}}
    rule = "torch_chunk_gated_delta_rule"
    call = rule_call(torch.nn.Identity(), rule, arguments, torch.zeros(1, 2, 3, 4))
    with pytest.raises(NotImplementedError, match=rf"layers\.0.*{argument}"):
        read_linear(call, [Positions(None, None)], "layers.0")


def test_numbers_that_are_not_finite() -> None:
    model = model_of("bamba")
    with torch.no_grad():
        model.layers[0].mamba.D.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"layers\.0\.mamba.*NaN"):
        av.extract(model, IDS)
    assert linear._sink.get() is None

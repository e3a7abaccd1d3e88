"""Models that compute only some pairs of tokens: Longformer, LED, LongT5, BigBird, Reformer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz import extract
from attnviz.extraction.families import max_batched_length, sparse_kind
from attnviz.interventions.changes import Change
from attnviz.record.attention import QueryKeyAttention
from model_types.shapes import from_chunks, layouts, with_global_tokens
from models.tiny import SIZE, built, reference
from rounding import forwards_error

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
    kind = next(type(part) for part in model.modules() if sparse_kind(part))
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
    assert abs(forward.effect.change) > forward.effect.noise
    assert generated.effect.change == pytest.approx(forward.effect.change, rel=1e-3)
    for layer in (0, 1):
        weights = generated.stack("encoder").weights(layer=layer)
        own = forward.stack("encoder").weights(layer=layer)
        assert abs(weights - own).max() < 1e-6


_LOCAL_T5 = {
    "d_model": 48,
    "d_ff": 64,
    "d_kv": 12,
    "num_layers": 2,
    "num_heads": 4,
    "local_radius": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 4,
}
_BLOCKS = {"block_size": 2, "num_random_blocks": 2, "max_position_embeddings": 64}
IN_BLOCKS: dict[str, dict[str, Any]] = {
    "LongT5EncoderModel": _LOCAL_T5,
    "BigBirdModel": {**SIZE, **_BLOCKS},
    "BigBirdPegasusModel": {**_LED, **_BLOCKS},
}


@cache
def blocks_model(name: str) -> Any:
    model = built(name, {"vocab_size": 120, "pad_token_id": 1, **IN_BLOCKS[name]})
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "relative_attention_bias" in path:
                parameter.normal_()
    return model


def own_blocks(model: Any, inputs: dict[str, torch.Tensor], example: int) -> list[torch.Tensor]:
    """Return the weights that the model returns for an example, without its padding."""
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    kept = inputs["attention_mask"][example].bool()
    weights = []
    for tensor in outputs.get("encoder_attentions") or outputs["attentions"]:
        full = tensor[example].clone()
        if model.config.model_type == "longt5":
            full = torch.from_numpy(next(layouts(full, 4, len(kept), len(kept))))
        else:
            # The first block is also each of the two random blocks, but transformers returns only
            # one of these three equal weights.
            full[:, 2:-2, :2] *= 3
        full = full[:, : len(kept), : len(kept)]
        weights.append(full[:, kept][:, :, kept])
    return weights


def blocks_inputs(name: str, mask: list[list[int]]) -> dict[str, torch.Tensor]:
    inputs = inputs_of("LED", mask)
    del inputs["global_attention_mask"]
    return inputs if "Pegasus" in name else {k: v for k, v in inputs.items() if "decoder" not in k}


@pytest.mark.parametrize("name", IN_BLOCKS)
@pytest.mark.parametrize(
    "mask",
    [[[1] * 25], [[1] * 24, [0, 0, 0] + [1] * 19 + [0, 0], [0, 1, 0] + [1, 1, 0] * 7]],
    ids=["one", "batch"],
)
def test_blocks_equal_the_models_own(name: str, mask: list[list[int]]) -> None:
    model, inputs = blocks_model(name), blocks_inputs(name, mask)
    records = extract(model, inputs)
    for example, record in enumerate(records if len(mask) > 1 else [records]):
        stack = record.stack("self" if name == "BigBirdModel" else "encoder")
        for layer, expected in enumerate(own_blocks(model, inputs, example)):
            assert expected.amax(dim=-1).mean() > 0.3
            assert (expected.sum(dim=-1) - 1).abs().max() < 1e-5
            weights = torch.from_numpy(stack.weights(layer=layer))
            assert weights.shape == expected.shape
            assert (weights - expected).abs().max() < forwards_error(record) < 1e-2
            assert isinstance(stack.attention(layer), QueryKeyAttention)


@cache
def reformer(rounds: int, *, causal: bool) -> Any:
    sizes = {
        "hidden_size": 48,
        "num_attention_heads": 4,
        "attention_head_size": 12,
        "feed_forward_size": 64,
        "attn_layers": ["local", "lsh"],
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
        "num_buckets": 4,
        "num_hashes": rounds,
        "hash_seed": 0,
        "axial_pos_embds": False,
        "max_position_embeddings": 64,
        "vocab_size": 120,
        "is_decoder": causal,
    }
    model = built("ReformerModel", sizes)
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "query_key"):
                module.query_key.weight.mul_(30)
    return model


def own_chunks(model: Any, inputs: dict[str, torch.Tensor], example: int) -> list[torch.Tensor]:
    """Return the weights that the model returns for an example, without its padding."""
    kept = inputs["attention_mask"][example].bool()
    vectors: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []

    def keep(*hooked: Any) -> None:
        vectors.append(hooked[-1][example].view(-1, 4, 12).transpose(0, 1))

    def read(module: Any, _: Any, output: Any) -> None:
        full, count = output.attention_probs[example], output.hidden_states.shape[1]
        if full.dim() > 3 and not hasattr(output, "buckets"):
            order = torch.arange(count).expand(4, -1)
            full = from_chunks(full, order, module.num_chunks_before, torch.ones(4, 1, count))
        elif full.dim() > 3:
            # Tokens are sorted by bucket, in each round separately.
            buckets = output.buckets[example]
            rounds = buckets.shape[1]
            order = buckets.argsort(dim=-1, stable=True)
            query = vectors[-1]
            key = query / (query.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() / 12**0.5
            logits, matrices = query @ key.mT, []
            sums = []
            for number in range(rounds):
                shares = torch.zeros(4, rounds, count)
                shares[:, number] = 1
                chunks = order.flatten(1), module.num_chunks_before, shares
                matrix = from_chunks(full, *chunks)
                # A key may occur twice in a round, in the first and in the last chunk.
                times = from_chunks((full > 0).float(), *chunks)
                matrices.append(matrix)
                # The log-sum-exp of a row is the logit of any key minus the logarithm of the weight
                # of this key.
                largest = matrix.max(dim=-1)
                repeated = times.gather(2, largest.indices[..., None])[..., 0]
                logit = logits.gather(2, largest.indices[..., None])[..., 0]
                is_own = largest.indices == torch.arange(count)
                logit = logit.double().masked_fill(is_own, -1e5)
                sums.append(logit - (largest.values / repeated).log())
            shares = torch.stack(sums, dim=1).softmax(dim=1).float()
            full = sum(matrices[n] * shares[:, n, :, None] for n in range(rounds))
        weights.append(full[:, : len(kept), : len(kept)][:, kept][:, :, kept])

    handles = []
    for module in model.modules():
        if sparse_kind(module):
            handles.append(module.register_forward_hook(read))
        if hasattr(module, "query_key"):
            handles.append(module.query_key.register_forward_hook(keep))
    with torch.no_grad():
        model(**inputs, output_attentions=True)
    for handle in handles:
        handle.remove()
    return weights


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "mask",
    [[[1] * 3], [[1] * 24], [[1] * 22, [1] * 17 + [0] * 5]],
    ids=["one chunk", "chunks", "padding"],
)
def test_chunks_equal_the_models_own(rounds: int, causal: bool, mask: list[list[int]]) -> None:
    model, inputs = reformer(rounds, causal=causal), inputs_of("Long", mask)
    del inputs["global_attention_mask"]
    records = extract(model, inputs)
    for example, record in enumerate(records if len(mask) > 1 else [records]):
        for layer, expected in enumerate(own_chunks(model, inputs, example)):
            assert expected.amax(dim=-1).mean() > 0.3
            weights = torch.from_numpy(record.stack().weights(layer=layer))
            assert weights.shape == expected.shape
            assert (weights - expected).abs().max() < 1e-5
            assert isinstance(record.stack().attention(layer), QueryKeyAttention)


@pytest.mark.parametrize("name", [*IN_BLOCKS, "ReformerModel"])
def test_changed_rows_are_products_with_the_values(name: str) -> None:
    """The change is in the last layer, so the values do not change."""
    inputs = blocks_inputs(name, [[1] * 25])
    is_reformer = name == "ReformerModel"
    model = reformer(3, causal=False) if is_reformer else blocks_model(name)
    stack = "self" if name in ("BigBirdModel", "ReformerModel") else "encoder"
    weights = (own_chunks if is_reformer else own_blocks)(model, inputs, 0)[1]
    keys = weights[1, [4, 24]].argmax(dim=-1).tolist()
    kept = torch.ones(25, 25)
    for query in (4, 24):
        kept[query, keys] = 0
    cut = torch.stack([weights[0], weights[1] * kept, *weights[2:]])
    cut /= cut.sum(dim=-1, keepdim=True)
    paths = [path for path, module in model.named_modules() if sparse_kind(module)]
    module = model.get_submodule(paths[-1])
    value = module.v if hasattr(module, "v") else module.value
    values: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []

    def store(*hooked: Any) -> None:
        # attnviz changes the stored tensors in place.
        outputs.append(hooked[-1][0])

    handles = [
        value.register_forward_hook(lambda *hooked: values.append(hooked[-1])),
        module.o.register_forward_pre_hook(store)
        if hasattr(module, "o")
        else module.register_forward_hook(store),
    ]
    change = av.Knockout(queries=[4, 24], keys=keys, heads=1, layers=1, stack=stack)
    av.intervene(model, inputs, change, answer=lambda output: output[0].square().sum())
    for handle in handles:
        handle.remove()
    by_head = values[0][0, :25].view(25, 4, 12).transpose(0, 1)
    plain, expected = ((rows @ by_head).transpose(0, 1).flatten(1) for rows in (weights, cut))
    assert (plain - expected).abs().max() > 1e-2
    assert (outputs[0][0, :25] - plain).abs().max() < 1e-5
    assert min((output[0, :25] - expected).abs().max() for output in outputs) < 1e-5


def test_changes_of_reformer_need_generations_without_a_cache() -> None:
    """Layers with buckets are left out, because transformers 5.23 cannot use their cache."""
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "attention_head_size": 12}
    chunks = {"attn_layers": ["local"] * 2, "local_attn_chunk_length": 4, "vocab_size": 120}
    options = {"is_decoder": True, "axial_pos_embds": False, "hash_seed": 0}
    model = built("ReformerModelWithLMHead", {**sizes, **chunks, **options})
    inputs, change = {"input_ids": torch.arange(5, 14)[None]}, av.Ablate(layers=1, heads=0)
    with pytest.raises(NotImplementedError, match="with a cache cannot be read"):
        av.intervene(model, inputs, change, generate={"max_new_tokens": 3})
    generate = {"max_new_tokens": 3, "use_cache": False}
    record = av.intervene(model, inputs, change, generate=generate)
    assert record.effect.change != 0
    assert len(record.stack().query_tokens) == 12


def test_a_token_of_reformer_is_masked_at_a_length_that_is_not_a_multiple_of_its_chunks() -> None:
    model = reformer(1, causal=True)
    ids = torch.arange(5, 28)[None]

    def answer(output: Any) -> Any:
        return output.last_hidden_state[0, -1, 0]

    effects = av.token_effects(model, ids, answer=answer, progress=False)
    assert len(effects.values) == 23
    for token in (2, 20):
        mask = torch.ones_like(ids)
        with torch.no_grad():
            before = float(answer(model(ids, attention_mask=mask)))
            mask[0, token] = 0
            after = float(answer(model(ids, attention_mask=mask)))
        assert effects.values[token] == pytest.approx(after - before, abs=1e-5)
    assert abs(after - before) > 1e-3


def test_a_token_alone_attends_to_itself_in_each_round_of_reformer() -> None:
    """A padded text of one token runs in chunks, in which the only key is the token's own."""
    ids = torch.arange(5, 69).view(2, 32)
    mask = torch.ones_like(ids)
    mask[1, 1:] = 0
    records = extract(reformer(3, causal=True), {"input_ids": ids, "attention_mask": mask})
    for layer in records[1].stack().layers:
        assert records[1].stack().weights(layer=layer).tolist() == [[[1.0]]] * 4


@pytest.mark.parametrize("name", ["BigBirdModel", "BigBirdPegasusModel"])
def test_a_short_text_does_not_change_the_attention_to_later_texts(name: str) -> None:
    """transformers replaces the modules of sparse attention when it reads a short text."""
    model = copy.deepcopy(blocks_model(name))
    short, long = (blocks_inputs(name, [[1] * count]) for count in (9, 40))
    stack = "encoder" if "Pegasus" in name else "self"
    modules, state = dict(model.named_modules()), torch.get_rng_state()
    before = extract(model, long).stack(stack).weights(layer=0)
    full = extract(model, short).stack(stack)
    assert dict(model.named_modules()) == modules
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(extract(model, long).stack(stack).weights(layer=0), before)
    new: Any = blocks_model.__wrapped__(name)
    (new.encoder if "Pegasus" in name else new).set_attention_type("original_full")
    own = reference(new, short)[stack]
    assert np.abs(full.weights(layer=0) - own[0][0]).max() < 1e-6


def test_a_padded_text_that_also_runs_alone_leaves_bigbird_as_it_is() -> None:
    """Without its padding, the text is short, and BigBird would keep full attention."""
    model = copy.deepcopy(blocks_model("BigBirdModel"))
    inputs = blocks_inputs("BigBirdModel", [[0] * 12 + [1] * 10])
    modules = [type(module) for module in model.modules()]
    extract(model, inputs)
    assert model.attention_type == "block_sparse"
    assert [type(module) for module in model.modules()] == modules


@pytest.mark.parametrize("name", ["BigBirdModel", "BigBirdPegasusModel", "ReformerModel"])
def test_long_texts_of_a_batch_would_change_each_other(name: str) -> None:
    """Padding moves the last block of BigBird, and the chunks of Reformer."""
    model = reformer(1, causal=False) if name == "ReformerModel" else blocks_model(name)
    # A short text replaces the modules of BigBird.
    model = copy.deepcopy(model)
    longest = int(max_batched_length(model.config))

    def error(short: int, long: int) -> float:
        padded = blocks_inputs(name, [[1] * short + [0] * (long - short), [1] * long])
        alone = blocks_inputs(name, [[1] * short])
        alone["input_ids"] = padded["input_ids"][:1, :short]
        if "decoder_input_ids" in alone:
            padded["decoder_input_ids"] = alone["decoder_input_ids"].expand(2, -1)
        own, other = (extract(model, inputs) for inputs in (alone, padded))
        stack = "encoder" if "Pegasus" in name else "self"
        weights = (record.stack(stack).weights(layer=0) for record in (own, other[0]))
        return float(abs(np.subtract(*weights)).max())

    assert error(longest + 1, 25) > 0.1
    assert error(longest - 1, longest) < 1e-6

"""Keys that a model does not choose for its softmax are left out, and not masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from torch.overrides import TorchFunctionMode

import attnviz as av
from attnviz.corpus.batches import _difference
from attnviz.extraction.families import indexer_size
from attnviz.record.record import derive_record
from model_types.build import tiny_model
from model_types.overrides import OVERRIDES

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 3])
COUNT = IDS.shape[1]
CAUSAL = np.tri(COUNT, dtype=np.bool_)

# Model types that choose keys, with settings that leave keys out of a text of `COUNT` tokens.
MODELS: dict[str, dict[str, Any]] = {
    "deepseek_v32": {"index_topk": 8},
    "axk2": {"index_topk": 8},
    # The second layer uses the choice of the first.
    "glm_moe_dsa": {"index_topk": 8, "indexer_types": ["full", "shared"]},
    "hy_v4": {"index_topk": 8},
    "mistral_large4_text": {"index_topk": 8},
    # Layers choose blocks of keys, for each of two groups of heads.
    "minimax_m3_vl_text": {
        "layer_types": ["minimax_m3_sparse"] * 2,
        "num_key_value_heads": 2,
        "index_n_heads": 2,
        "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "glm5_next_text": OVERRIDES["glm5_next_text"]["config"],
    "qwen4_exp_text": OVERRIDES["qwen4_exp_text"]["config"],
}


@pytest.mark.parametrize(
    ("model_type", "implementation"),
    [*((model_type, "eager") for model_type in MODELS), ("deepseek_v32", "sdpa")],
)
def test_left_out_keys_are_those_without_a_weight_that_the_mask_allows(
    model_type: str, implementation: str
) -> None:
    model = tiny_model(model_type, None, MODELS[model_type])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(IDS, output_attentions=True, use_cache=False).attentions
    own = [weights[0].numpy() for weights in attentions if weights is not None]
    model.set_attn_implementation(implementation)
    record = av.extract(model, IDS)
    stack = record.stacks["self"]
    assert stack.chooses_keys
    assert "not chosen" in " ".join(record.notes)
    assert len(own) == stack.num_layers
    for layer, weights in zip(stack.layers, own, strict=True):
        for head in range(stack.num_heads(layer)):
            left_out = stack.left_out(layer=layer, head=head)
            assert_array_equal(left_out, CAUSAL & (weights[head] == 0))
            assert_array_equal(stack.allowed(layer=layer, head=head), CAUSAL & ~left_out)
            assert left_out.any()


def check_lost_weight(stack: av.AttentionStack, layer: int, dense: np.ndarray[Any, Any]) -> None:
    """Compare lost weights with `dense`, the weights without a choice, (heads, queries, keys)."""
    lost = stack.lost_weight(layer)
    assert lost is not None
    left_out = stack.left_out(layer=layer, head=0)
    assert_allclose(lost, np.where(left_out, dense, 0).sum(axis=-1), atol=1e-5)
    assert lost.max() > 0.1


@pytest.mark.parametrize("model_type", ["deepseek_v32", "hy_v4"])
def test_the_lost_weight_is_that_of_the_model_that_chooses_all_keys(model_type: str) -> None:
    model: Any = tiny_model(model_type, None, {"index_topk": 8})
    stack = av.extract(model, IDS).stacks["self"]
    for layer in model.layers:
        layer.self_attn.indexer.index_topk = COUNT
    model.set_attn_implementation("eager")
    with torch.no_grad():
        dense = model(IDS, output_attentions=True, use_cache=False).attentions[0][0].numpy()
    # Only the first layer has the same inputs in both forwards.
    check_lost_weight(stack, 0, dense)
    # If all keys are chosen, the record is that of a model without a choice, bit for bit.
    complete = av.extract(model, IDS).stacks["self"]
    assert not complete.chooses_keys
    assert_array_equal(complete.lost_weight(0), 0)


def test_padding_changes_neither_the_choice_nor_the_ranks() -> None:
    model = tiny_model("deepseek_v32", None, {"index_topk": 8})
    alone = av.extract(model, IDS[:, :20])
    mask = torch.ones(2, COUNT, dtype=torch.int64)
    mask[0, : COUNT - 20] = 0
    ids = IDS.repeat(2, 1)
    ids[0, COUNT - 20 :] = IDS[0, :20]
    padded = av.extract(model, {"input_ids": ids, "attention_mask": mask})[0]
    stack, other = alone.stacks["self"], padded.stacks["self"]
    for layer in stack.layers:
        left_out = stack.left_out(layer=layer, head=1)
        assert_array_equal(other.left_out(layer=layer, head=1), left_out)
        lost, other_lost = stack.lost_weight(layer), other.lost_weight(layer)
        assert lost is not None
        assert other_lost is not None
        assert_allclose(other_lost, lost, atol=1e-5)
        ranks = [record.stacks["indexer"].weights(layer=layer) for record in (alone, padded)]
        # Rounding may exchange keys with nearly equal scores, but not many.
        assert np.mean(np.abs(ranks[0] - ranks[1]) > 1e-6) < 0.05


@pytest.mark.parametrize("model_type", ["deepseek_v32", "minimax_m3_vl_text"])
def test_a_choice_that_the_scores_do_not_give_is_named(model_type: str) -> None:
    model: Any = tiny_model(model_type, None, MODELS[model_type])

    def choose_the_first(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return torch.arange(output.shape[-1]).expand_as(output)

    model.layers[0].self_attn.indexer.register_forward_hook(choose_the_first)
    record = av.extract(model, IDS)
    assert record.stacks["indexer"].layers == (1,)
    name = type(model.layers[0].self_attn.indexer).__name__
    assert f"The scores with which {name} chooses keys are not shown." in record.notes


@pytest.mark.parametrize("model_type", ["deepseek_v32", "minimax_m3_vl_text"])
def test_choice_and_ranks_are_saved_with_the_record(model_type: str, tmp_path: Path) -> None:
    model = tiny_model(model_type, None, MODELS[model_type])
    record = av.extract(model, IDS)
    record.save(tmp_path / "record.safetensors")
    spooled = av.extract(model, IDS, spool=tmp_path / "spool", layers=1)
    for other in (av.load(tmp_path / "record.safetensors"), spooled):
        stack, loaded = record.stacks["self"], other.stacks["self"]
        assert_array_equal(loaded.left_out(layer=1, head=2), stack.left_out(layer=1, head=2))
        assert_array_equal(loaded.lost_weight(1), stack.lost_weight(1))
        ranks = [each.stacks["indexer"].weights(layer=1) for each in (record, other)]
        assert_array_equal(ranks[0], ranks[1])
    assert spooled.stacks["indexer"].layers == (1,)


# Model types whose indexers give one score for each pair of query and key.
SCORED = ["deepseek_v32", "axk2", "hy_v4", "mistral_large4_text"]


@contextmanager
def noted_scores(model: Any) -> Iterator[list[list[torch.Tensor]]]:
    """Collect the scores that each run of an indexer passes to ``topk``."""
    scores: list[list[torch.Tensor]] = []
    handles = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__name__", "") == "topk":
                scores[-1].append(args[0].clone())
            return func(*args, **(kwargs or {}))

    watching = ExitStack()

    def before(*_: Any) -> None:
        scores.append([])
        watching.enter_context(Watch())

    def after(*_: Any) -> None:
        watching.close()

    for name, module in model.named_modules():
        if name.endswith(".indexer"):
            handles += [
                module.register_forward_pre_hook(before),
                module.register_forward_hook(after),
            ]
    try:
        yield scores
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("model_type", SCORED)
def test_ranks_are_those_of_the_scores_of_the_indexer(model_type: str) -> None:
    model = tiny_model(model_type, None, {"index_topk": 8})
    with torch.no_grad(), noted_scores(model) as scores:
        model(IDS, use_cache=False)
    stack = av.extract(model, IDS).stacks["indexer"]
    assert len(scores) == stack.num_layers
    assert (stack.measure, stack.normalized, stack.signed) == ("rank", False, False)
    for layer, [own] in zip(stack.layers, scores, strict=True):
        for query in range(COUNT):
            row = own[0, query, : query + 1].numpy()
            # Scores that differ only by rounding have no definite order.
            close = np.abs(row[:, None] - row) <= 1e-6 * np.abs(row).max()
            smaller = (row < row[:, None]) & ~close
            lowest, highest = smaller.sum(axis=1), (smaller | close).sum(axis=1) - 1
            ranks = stack.weights(layer=layer, head=0)[query, : query + 1] * (query + 1) - 1
            assert np.all(lowest - 1e-3 <= ranks)
            assert np.all(ranks <= highest + 1e-3)
        assert not stack.weights(layer=layer, head=0)[~CAUSAL].any()


@pytest.mark.parametrize("model_type", SCORED)
def test_a_note_counts_choices_that_rounding_can_change(model_type: str) -> None:
    model = tiny_model(model_type, None, {"index_topk": 8})
    with torch.no_grad(), noted_scores(model) as scores:
        model(IDS, use_cache=False)
    rows = torch.cat([own[0].sort(descending=True).values for [own] in scores])
    # Some models mask keys by the lowest number instead of minus infinity.
    rows = rows.masked_fill(rows < -1e30, -torch.inf)
    sizes = rows.masked_fill(rows.isinf(), 0).abs().amax(dim=-1)
    gaps = (rows[:, 7] - rows[:, 8]).masked_fill(rows[:, 8].isinf(), torch.inf) / sizes
    [note] = [note for note in av.extract(model, IDS).notes if "than rounding" in note]
    close, compared = map(int, re.findall(r"\d+", note)[:2])
    assert compared == len(rows)
    # The scores are computed again, so gaps near the limit of 8 roundings (1e-6) may not count.
    assert 0 < int((gaps < 1e-7).sum()) <= close <= int((gaps < 1e-5).sum())


def test_choices_of_all_keys_have_no_such_note() -> None:
    model = tiny_model("hy_v4", None, {"index_topk": COUNT})
    assert "than rounding" not in " ".join(av.extract(model, IDS).notes)


# Model types whose indexers score blocks, and the numbers of keys of these blocks.
BLOCKS = {"minimax_m3_vl_text": 4, "glm5_next_text": 2, "qwen4_exp_text": 2}


def rows_of_scores(
    scores: list[torch.Tensor], size: int, positions: list[range]
) -> list[list[list[list[float]]]]:
    """Return the scores of each example, head and token, as lists of the scores of blocks.

    `positions` are those of the tokens of each example. Qwen4 scores the blocks of one query after
    another, and has no scores for queries without a complete block of keys.
    """
    if len(scores) > 1:
        calls = (call.tolist() for call in scores)
        visible = [
            [sum(token <= query for token in tokens) for query in range(COUNT)]
            for tokens in positions
        ]
        rows = [[[next(calls) if count >= size else [] for count in counts]] for counts in visible]
        assert next(calls, None) is None
    else:
        rows = (scores[0] if scores[0].dim() == 4 else scores[0][:, None]).tolist()
    return [
        [head[tokens.start : tokens.stop] for head in example]
        for example, tokens in zip(rows, positions, strict=True)
    ]


def block_ranks(
    rows: list[list[float]], blocks: list[int], unscored: float
) -> np.ndarray[Any, np.dtype[Any]]:
    """Compute the ranks of keys from the scores of each query, and the block of each token.

    `unscored` is the score of the block of a query if it is not complete and has no score.
    """
    ranks = np.zeros((len(blocks), len(blocks)))
    for query, row in enumerate(rows):
        seen = set(blocks[: query + 1])
        scores = dict.fromkeys(seen, unscored)
        scores |= {block: row[block] for block in seen if block < len(row) and row[block] > -1e30}
        for key in range(query + 1):
            smaller = [block for block in seen if scores[block] < scores[blocks[key]]]
            ranks[query, key] = (len(smaller) + 1) / len(seen)
    return ranks


@pytest.mark.parametrize(
    ("model_type", "left", "takes_tail"),
    [
        *((model_type, left, True) for model_type in BLOCKS for left in (0, 5)),
        ("glm5_next_text", 0, False),
    ],
)
def test_ranks_of_blocks_are_those_of_the_scores_of_the_indexer(
    model_type: str, left: int, takes_tail: bool
) -> None:
    tail = {} if takes_tail else {"index_kpool_always_select_tail": False}
    model = tiny_model(model_type, None, MODELS[model_type] | tail)
    mask = torch.ones(2, COUNT, dtype=torch.int64)
    mask[0, :left] = mask[1, COUNT - 3 :] = 0
    inputs = {"input_ids": IDS.repeat(2, 1), "attention_mask": mask}
    with torch.no_grad(), noted_scores(model) as scores:
        model(**inputs, use_cache=False)
    records = av.extract(model, inputs)
    positions = [range(left, COUNT), range(COUNT - 3)]
    size = BLOCKS[model_type]
    for number, layer in enumerate(records[0].stacks["indexer"].layers):
        own = rows_of_scores(scores[number], size, positions)
        for record, rows, tokens in zip(records, own, positions, strict=True):
            stack, chosen = record.stacks["indexer"], record.stacks["self"]
            # MiniMax-M3 also counts padding: the first block begins at the first position.
            first = tokens.start if "minimax" in model_type else 0
            blocks = [(first + token) // size for token in range(len(tokens))]
            assert stack.num_heads(layer) == len(rows)
            per_group = chosen.num_heads(layer) // len(rows)
            for head, rows_of_head in enumerate(rows):
                ranks = stack.weights(layer=layer, head=head)
                expected = block_ranks(rows_of_head, blocks, np.inf if takes_tail else -np.inf)
                assert_allclose(ranks, expected, rtol=1e-6)
                for other in range(per_group):
                    left_out = chosen.left_out(layer=layer, head=head * per_group + other)
                    allowed = chosen.allowed(layer=layer, head=head * per_group + other)
                    largest = np.where(left_out, ranks, 0).max(axis=1)
                    assert np.all(largest <= np.where(allowed, ranks, 1).min(axis=1))
                    assert left_out.any()


@pytest.mark.parametrize("model_type", BLOCKS)
def test_parts_of_the_ranks_of_blocks(model_type: str) -> None:
    stack = av.extract(tiny_model(model_type, None, MODELS[model_type]), IDS).stacks["indexer"]
    attention = stack.attention(stack.layers[-1])
    heads = [*range(attention.num_heads)][::-1]
    whole = attention.block(heads, slice(0, COUNT))
    rows = torch.tensor([30, 2, 17])
    assert_array_equal(attention.block(heads, rows, slice(3, 20)), whole[:, rows, 3:20])


@pytest.mark.parametrize("model_type", BLOCKS)
def test_a_text_shorter_than_a_block_has_the_largest_rank(model_type: str) -> None:
    model = tiny_model(model_type, None, MODELS[model_type])
    stack = av.extract(model, IDS[:, :1]).stacks["indexer"]
    assert all(np.all(stack.weights(layer=layer) == 1) for layer in stack.layers)


@pytest.mark.parametrize(
    ("model_type", "every"),
    [
        ("minimax_m3_vl_text", {"index_topk_blocks": COUNT}),
        ("glm5_next_text", {"index_topk": COUNT}),
        ("qwen4_exp_text", {"indexer_budget": COUNT}),
        ("deepseek_v4", {"index_topk": COUNT}),
    ],
)
def test_a_choice_of_all_keys_loses_nothing(model_type: str, every: dict[str, int]) -> None:
    model = tiny_model(model_type, None, MODELS.get(model_type, {}) | every)
    stacks = av.extract(model, IDS).stacks
    stack = stacks["self" if model_type in BLOCKS else EVERY_4]
    assert not stack.chooses_keys
    for layer in stack.layers:
        assert_array_equal(stack.lost_weight(layer), 0)
    assert "indexer" in stacks


EVERY_4 = "self with summaries every 4 tokens"


def test_summaries_that_a_layer_does_not_choose_are_left_out() -> None:
    model: Any = tiny_model("deepseek_v4", None, {"index_topk": 2})
    with torch.no_grad():
        own = model(IDS, output_attentions=True, use_cache=False).attentions
    stack = av.extract(model, IDS).stacks[EVERY_4]
    assert stack.layers == (2, 3)
    query, key = np.indices((COUNT, COUNT))
    in_window = (key <= query) & (key > query - model.config.sliding_window)
    # A summary of four tokens can be chosen when all of them have been read.
    is_complete = np.arange(COUNT // 4) < (np.arange(COUNT)[:, None] + 1) // 4
    could_attend = np.concatenate([in_window, is_complete], axis=1)
    for layer in stack.layers:
        for head in range(stack.num_heads(layer)):
            left_out = could_attend & (own[layer][0, head].numpy() == 0)
            assert_array_equal(stack.left_out(layer=layer, head=head), left_out)
            assert left_out.sum() == sum(max(0, (token + 1) // 4 - 2) for token in range(COUNT))
    # Let layers 2 and 3 choose all summaries. Then only layer 2 has the same inputs as before.
    for layer in model.layers[2:]:
        layer.self_attn.compressor.indexer.index_topk = COUNT
    with torch.no_grad():
        dense = model(IDS, output_attentions=True, use_cache=False).attentions[2][0].numpy()
    check_lost_weight(stack, 2, dense)


def padded_inputs(left: int) -> dict[str, torch.Tensor]:
    """Return two texts: the first has `left` positions of padding before it, the second 3 after."""
    mask = torch.ones(2, COUNT, dtype=torch.int64)
    mask[0, :left] = mask[1, COUNT - 3 :] = 0
    return {"input_ids": IDS.repeat(2, 1), "attention_mask": mask}


@pytest.mark.parametrize("left", [0, 6])
def test_ranks_of_summaries_are_those_of_the_scores_of_the_indexer(left: int) -> None:
    model: Any = tiny_model("deepseek_v4", None, {"index_topk": 2})
    inputs = padded_inputs(left)
    with torch.no_grad(), noted_scores(model) as scores:
        own = model(**inputs, output_attentions=True, use_cache=False).attentions
    records = av.extract(model, inputs)
    positions = [range(left, COUNT), range(COUNT - 3)]
    assert records[0].stacks["indexer"].layers == (2, 3)
    for [of_layer], layer in zip(scores, (2, 3), strict=True):
        for index, (record, tokens) in enumerate(zip(records, positions, strict=True)):
            expected = np.zeros((len(tokens), COUNT // 4))
            for query, row in enumerate(of_layer[index, tokens.start : tokens.stop].tolist()):
                allowed = [score for score in row if score > -np.inf]
                for key, score in enumerate(row[: len(allowed)]):
                    smaller = sum(other < score for other in allowed)
                    expected[query, key] = (smaller + 1) / len(allowed)
            ranks = record.stacks["indexer"]
            assert_allclose(ranks.weights(layer=layer, head=0), expected, rtol=1e-6)
            assert_array_equal(ranks.allowed(layer=layer, head=0), expected > 0)
            assert ranks.key_tokens.text == record.stacks[EVERY_4].key_tokens.text[len(tokens) :]
            # Keys are the tokens without padding, and all summaries.
            weights = own[layer][index, :, tokens.start : tokens.stop]
            keys = [*tokens, *range(COUNT, COUNT + COUNT // 4)]
            stack = record.stacks[EVERY_4]
            assert stack.key_tokens.text[: len(tokens)] == stack.query_tokens.text
            assert_allclose(stack.weights(layer=layer), weights[..., keys], atol=1e-5)


@pytest.mark.parametrize("left", [0, 6])
@pytest.mark.parametrize("size", [4, 6])
def test_names_of_summaries_are_those_of_the_tokens_that_change_them(left: int, size: int) -> None:
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 6}
    model: Any = tiny_model("deepseek_v4", None, {"compress_rates": rates})
    layer = {4: 2, 6: 0}[size]
    inputs = padded_inputs(left)
    record = av.extract(model, inputs)[0]
    compressor = model.layers[layer].self_attn.compressor
    states: list[torch.Tensor] = []
    compressor.register_forward_pre_hook(
        lambda _module, args: states.append(args[0].detach().requires_grad_())
    )
    with torch.no_grad():
        model(**inputs, use_cache=False)
    # Change the inputs of the compressor one token after another.
    residual = torch.zeros(2, COUNT, model.config.q_lora_rank)
    arguments = (residual, torch.arange(COUNT)[None], None, layer)
    hidden = states[0].detach()
    before = compressor(hidden, *arguments)[0][0, 0]
    changed = np.zeros((len(before), COUNT), np.bool_)
    for token in range(COUNT):
        other = hidden.clone()
        other[0, token] += torch.linspace(-1, 1, hidden.shape[-1])
        changed[:, token] = (compressor(other, *arguments)[0][0, 0] != before).any(dim=-1)
    keys = record.stacks[f"self with summaries every {size} tokens"].key_tokens
    names = keys.text[COUNT - left :]
    assert len(names) == len(changed)
    for name, flags in zip(names, changed[:, left:], strict=True):
        tokens = np.flatnonzero(flags)
        assert name == (f"tokens {tokens[0]}–{tokens[-1]}" if len(tokens) else "padding")


def test_a_short_text_has_the_same_stacks_without_summaries() -> None:
    model = tiny_model("deepseek_v4", None, {})
    stack = av.extract(model, IDS[:, :3]).stacks[EVERY_4]
    assert stack.key_tokens.text == stack.query_tokens.text
    texts = [IDS[0, :count].tolist() for count in (3, 20, 9, 31)]
    assert EVERY_4 in av.head_statistics(model, texts, progress=False).stack_names


def test_a_generation_ablates_heads_with_summaries_but_hides_no_tokens() -> None:
    config = tiny_model("deepseek_v4", None, {"index_topk": 2}).config
    torch.manual_seed(0)
    model: Any = transformers.DeepseekV4ForCausalLM(config).eval()
    stack = "self with summaries every 128 tokens"
    with pytest.raises(NotImplementedError, match=r"only Ablate is possible while"):
        av.intervene(model, IDS, av.HideTokens([2], stack=stack), generate=2)
    changed = av.intervene(model, IDS, av.Ablate(heads=[0, 1, 2, 3], stack=stack), generate=4)
    # Without the outputs of its heads, a layer adds 0 to the residual stream.
    for layer in model.model.layers[:2]:
        torch.nn.init.zeros_(layer.self_attn.o_b_proj.weight)
    with torch.no_grad():
        own = model.generate(IDS, max_new_tokens=4, do_sample=False)[0, COUNT:].tolist()
    predictions = changed.stacks[stack].query_tokens.predictions
    assert [prediction.token.id for prediction in predictions] == own


def test_summaries_are_saved_with_the_record(tmp_path: Path) -> None:
    record = av.extract(tiny_model("deepseek_v4", None, {"index_topk": 2}), IDS)
    record.save(tmp_path / "record.safetensors")
    loaded = av.load(tmp_path / "record.safetensors")
    for name, stack in record.stacks.items():
        other = loaded.stacks[name]
        assert other.key_tokens == stack.key_tokens
        assert_array_equal(
            other.weights(layer=other.layers[0]), stack.weights(layer=other.layers[0])
        )


def test_layers_that_share_a_choice_have_one_indexer() -> None:
    model = tiny_model("glm_moe_dsa", None, MODELS["glm_moe_dsa"])
    stacks = av.extract(model, IDS).stacks
    assert stacks["self"].layers == (0, 1)
    assert stacks["indexer"].layers == (0,)


@pytest.mark.parametrize("model_type", ["deepseek_v32", "minimax_m3_vl_text"])
def test_analyses_of_weights_do_not_take_ranks(model_type: str) -> None:
    model = tiny_model(model_type, None, MODELS[model_type])
    record = av.extract(model, IDS)
    ranks = record.stacks["indexer"]
    assert av.analysis.distinct_head(ranks) is None
    with pytest.raises(ValueError, match="stack 'indexer' has ranks"):
        av.analysis.head_scores(ranks, "entropy")
    assert av.head_statistics(model, [IDS[0].tolist()]).stack_names == ("self",)
    assert not np.any(av.compare(record, record).distance("indexer"))
    changed = av.intervene(model, IDS, av.Ablate(layers=0, heads=0))
    assert changed.stacks["indexer"].layers == (0, 1)
    with pytest.raises(KeyError, match="stack='indexer'"):
        av.intervene(model, IDS, av.Ablate(layers=0, heads=0, stack="indexer"))
    attributions = av.attribute(
        model, IDS, answer=lambda output: output.last_hidden_state[0, -1, 0], progress=False
    )
    assert list(attributions.stacks) == ["self"]


def test_merged_words_leave_ranks_out() -> None:
    model = tiny_model("deepseek_v32", None, MODELS["deepseek_v32"])
    record = av.extract(model, IDS)
    tokens = av.Tokens.of(["a"] * COUNT, words=[index // 2 for index in range(COUNT)])
    stacks = {
        name: stack.derive({0: stack.attention(0)}, tokens) for name, stack in record.stacks.items()
    }
    words = derive_record(record, stacks).merge_words()
    assert list(words.stacks) == ["self"]
    assert any("are ranks of keys" in note for note in record.notes)
    assert not any("are ranks of keys" in note for note in words.notes)
    assert words.notes[-1].startswith("Stack “indexer” is left out")
    with pytest.raises(ValueError, match="stack 'indexer' has ranks"):
        derive_record(record, {"indexer": stacks["indexer"]}).merge_words()


def test_a_changed_run_distinguishes_keys_that_were_not_chosen_from_removed_ones() -> None:
    model = tiny_model("deepseek_v32", None, MODELS["deepseek_v32"] | {"index_topk": 4})
    changed = av.intervene(model, IDS, av.HideTokens([2]))
    stack = changed.stacks["self"]
    assert stack.chooses_keys
    for layer in stack.layers:
        left_out = stack.left_out(layer=layer, head=0)
        assert left_out.any()
        assert not left_out[3:, 2].any()
        vectors = stack.attention(layer).vectors
        assert vectors is not None
        scores = vectors.queries @ vectors.keys.transpose(1, 2) * vectors.scale
        could_attend = torch.ones(COUNT, COUNT).tril().bool()
        could_attend[3:, 2] = False
        dense = scores.masked_fill(~could_attend, -torch.inf).softmax(dim=-1)
        lost = (dense * torch.from_numpy(left_out)).sum(dim=-1)
        assert_allclose(stack.lost_weight(layer), lost, atol=1e-6)


def test_ranks_do_not_decide_whether_texts_can_be_read_together() -> None:
    record = av.extract(tiny_model("deepseek_v32", None, MODELS["deepseek_v32"]), IDS)
    indexer = record.stacks["indexer"]
    ranks: Any = indexer.attention(0)
    exchanged = indexer.derive({0: replace(ranks, keys=ranks.keys.flip(1))})
    assert not np.array_equal(exchanged.weights(layer=0), indexer.weights(layer=0))
    other = av.AttentionRecord({"self": record.stacks["self"], "indexer": exchanged})
    assert _difference(record, other) == 0


@pytest.mark.parametrize("model_type", SCORED)
def test_the_memory_check_counts_what_the_record_keeps_of_an_indexer(model_type: str) -> None:
    model: Any = tiny_model(model_type, None, {"index_topk": 8})
    ranks: Any = av.extract(model, IDS).stacks["indexer"].attention(0)
    kept = sum(tensor.numel() for tensor in ranks.parts.values())
    assert indexer_size(model.layers[0].self_attn) == kept / COUNT


@pytest.mark.parametrize("model_type", BLOCKS)
def test_the_memory_check_counts_scores_of_blocks(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []

    def check(sizes: Any, options: Any) -> None:
        noted.extend(size.size(options) for size in sizes if not size.head_dim)

    monkeypatch.setattr("attnviz.extraction.capture.forward.check_memory", check)
    model = tiny_model(model_type, None, MODELS[model_type])
    stack = av.extract(model, IDS).stacks["indexer"]
    for layer in stack.layers:
        ranks: Any = stack.attention(layer)
        noted.remove(ranks.block_scores.nbytes)

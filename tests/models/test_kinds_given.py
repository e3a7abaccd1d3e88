"""`extract` obeys masks and positions in its inputs, and refuses caches and encoder outputs.

If the model is in training mode, `extract` disables dropout and adds a note to the record.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import attnviz as av
from attnviz import extract
from models.make_models import extract_own, make_model
from models.tiny import reference

DECODERS = ["gpt2", "llama", "mistral"]
IMPLEMENTATIONS = ["sdpa", "eager"]
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7], [7, 31, 12, 99, 5, 210, 44, 9]])
ONES = torch.ones_like(IDS)
# `PACKED` contains the positions of two texts in one row. `APART` is a mask that separates the two
# texts: it is True only for pairs of tokens of the same text.
PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
APART = torch.zeros(8, 8, dtype=torch.bool)
APART[:4, :4] = APART[4:, 4:] = True


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", [*DECODERS, "bert", "bart", "t5", "bloom"])
def test_padding_on_the_left_and_masks_with_holes(kind: str, implementation: str) -> None:
    """A record has no tokens, rows or columns for masked positions."""
    model = make_model(kind, None if kind == "bloom" else implementation)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0, 1, 1]])
    arguments = {"input_ids": IDS, "attention_mask": mask}
    if kind in ("bart", "t5"):
        arguments["decoder_input_ids"] = IDS[:, :5]
    kept_positions = [np.flatnonzero(row) for row in mask]
    keep = [{"input": positions, "decoder": np.arange(5)} for positions in kept_positions]
    for ids, positions, record in zip(
        IDS, kept_positions, extract_own(model, arguments, keep), strict=True
    ):
        tokens = next(iter(record.stacks.values())).key_tokens
        assert tokens.ids == tuple(ids[positions].tolist())


@pytest.mark.parametrize(("cache", "mask"), product([None, True, False], [False, True]), ids=str)
@pytest.mark.parametrize("kind", DECODERS)
def test_packed_texts_by_their_positions(*, kind: str, cache: bool | None, mask: bool) -> None:
    """Transformers separates packed texts only if there is no mask and ``use_cache=False``."""
    model = make_model(kind)
    arguments: dict[str, Any] = {"input_ids": IDS[:1], "position_ids": PACKED}
    if cache is not None:
        arguments["use_cache"] = cache
    if mask:
        arguments["attention_mask"] = ONES[:1]
    record = extract_own(model, arguments)
    apart = cache is False and not mask
    across = record.stack().weights(layer=0)[:, 4:, :4]
    assert (across.max() == 0) == apart


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", [*DECODERS, "bert"])
def test_packed_texts_by_a_mask_of_pairs(kind: str, implementation: str) -> None:
    model = make_model(kind, implementation)
    allowed = (APART if kind == "bert" else APART.tril())[None, None]
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    arguments = {"input_ids": IDS[:1], "position_ids": PACKED, "attention_mask": added}
    extract_own(model, arguments)
    as_flags = arguments | {"attention_mask": allowed}
    if implementation == "sdpa":
        # Only SDPA accepts a mask of booleans. Eager attention would add them to the logits.
        record = extract_own(model, as_flags, own=reference(model, arguments))
        assert record.stack().weights(layer=0)[:, 4:, :4].max() == 0
    else:
        with pytest.raises(NotImplementedError, match=r"is not softmax\(scale"):
            extract(model, as_flags)


@pytest.mark.parametrize("argument", ["past_key_values", "cache"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_cache_argument_is_refused(kind: str, argument: str) -> None:
    """Since transformers 5.24, this argument is called ``cache``."""
    model = make_model(kind)
    with torch.no_grad():
        cache = model(IDS[:1, :4], use_cache=True).past_key_values
    arguments = {"input_ids": IDS[:1, 4:], argument: cache}
    with pytest.raises(ValueError, match=rf"inputs: {argument} is a result .* pass th"):
        extract(model, arguments)
    assert cache.get_seq_length() == 4
    # None is no cache and is accepted.
    extract(model, {"input_ids": IDS[:1], argument: None})


# Causal mask that allows no key for token 4.
ONE_EMPTY_ROW = torch.ones(8, 8, dtype=torch.bool).tril()
ONE_EMPTY_ROW[4] = False


def masks_by_kind() -> dict[str, torch.Tensor]:
    """Return masks for two examples. The first token of the second one is masked."""
    full = torch.ones(2, 1, 8, 8, dtype=torch.bool).tril()
    full[1, ..., 0] = False
    lowest = torch.finfo(torch.float32).min
    return {
        name: torch.zeros(2, 1, 8, 8).masked_fill(~allowed, lowest)
        for name, allowed in {
            "full_attention": full,
            "sliding_attention": full & torch.ones(8, 8, dtype=torch.bool).triu(-4),
        }.items()
    }


@pytest.mark.parametrize("kind", ["gemma2", "gpt_oss"])
def test_masks_by_kind_of_layer(kind: str) -> None:
    """Layers 0 and 2 have a window of 5 tokens."""
    model = make_model(kind, "eager")
    masks = masks_by_kind()
    inputs = {"input_ids": IDS, "attention_mask": masks}
    with torch.no_grad():
        own = model(**inputs, output_attentions=True).attentions
    records = extract(model, inputs)
    for index, record in enumerate(records):
        for layer, weights in enumerate(record.to_numpy()):
            queries = slice(index, None)
            assert np.abs(weights - own[layer][index].numpy())[:, queries].max() < 1e-5
    # The first query of the second example sees only a masked key.
    assert "token 0" in " ".join(records[1].notes)
    assert "all keys" not in " ".join(records[0].notes)
    with torch.no_grad():
        alone = {name: mask[:1] for name, mask in masks.items()}
        result = av.intervene(
            model,
            {"input_ids": IDS[:1], "attention_mask": alone},
            [av.Knockout(7, 6)],
            answer=(7, 8),
        )
    assert result.effect != 0


@pytest.mark.parametrize("by_kind", [False, True])
def test_tokens_cannot_be_added_to_masks_of_pairs(*, by_kind: bool) -> None:
    model = make_model("gemma2", "eager")
    masks: Any = {name: mask[:1] for name, mask in masks_by_kind().items()}
    inputs = {
        "input_ids": IDS[:1],
        "attention_mask": masks if by_kind else masks["full_attention"],
    }
    with pytest.raises(ValueError, match=r"generate: the attention_mask .* pairs of tokens"):
        extract(model, inputs, generate=2)
    with pytest.raises(ValueError, match=r'pairs of tokens\. Pass "mean embedding"'):
        av.token_effects(model, inputs, answer=5)
    av.token_effects(model, inputs, answer=5, removal="mean embedding", progress=False)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, -1e4])
def test_a_query_whose_keys_are_all_lowered_has_a_note(implementation: str, lowest: float) -> None:
    """A softmax of logits that are all lowered by finite numbers is not 0."""
    model = make_model("llama", "eager")
    mask = torch.zeros(1, 1, 8, 8).masked_fill(~ONE_EMPTY_ROW, lowest)
    inputs = {"input_ids": IDS[:1], "attention_mask": mask}
    with torch.no_grad():
        own = model(**inputs, output_attentions=True).attentions[0][0, :, 4]
    assert_allclose(own.sum(dim=-1), 1, rtol=1e-5)
    model.set_attn_implementation(implementation)
    record = extract(model, inputs)
    assert not record.to_numpy()[0][:, 4].any()
    assert "lowers the logits of all keys for token 4." in " ".join(record.notes)


@pytest.mark.parametrize("boolean", [False, True])
def test_a_query_whose_keys_are_all_removed_has_no_note(*, boolean: bool) -> None:
    mask = ONE_EMPTY_ROW[None, None]
    if not boolean:
        mask = torch.zeros(1, 1, 8, 8).masked_fill(~mask, -torch.inf)
    record = extract(make_model("llama", "sdpa"), {"input_ids": IDS[:1], "attention_mask": mask})
    assert not record.to_numpy()[0][:, 4].any()
    assert "all keys" not in " ".join(record.notes)


def test_encoder_outputs_as_input_are_refused() -> None:
    model = make_model("t5")
    with torch.no_grad():
        outputs = model.get_encoder()(IDS[:1])
    with pytest.raises(ValueError, match=r"encoder_outputs is a result .* Remove it"):
        extract(model, {"decoder_input_ids": IDS[:1, :3], "encoder_outputs": outputs})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gpt2", ["attn_pdrop", "resid_pdrop", "embd_pdrop"]),
        ("bert", ["attention_probs_dropout_prob", "hidden_dropout_prob"]),
        ("bloom", ["attention_dropout", "hidden_dropout"]),
    ],
)
def test_dropout_in_training_mode_is_disabled_and_noted(kind: str, names: list[str]) -> None:
    model = make_model(kind, **dict.fromkeys(names, 0.5)).train()
    arguments = {"input_ids": IDS[:1]}
    with torch.no_grad():
        # In training mode, a forward of the model applies dropout.
        assert not torch.equal(model(**arguments).logits, model.eval()(**arguments).logits)
    record = extract_own(model.train(), arguments)
    assert model.training
    assert sum("training mode" in note for note in record.notes) == 1

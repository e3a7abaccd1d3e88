"""A note says that padding changes the weights of a text, exactly if it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnviz import AttentionRecord, extract
from models.make_models import make_model
from models.tiny import SIZE, built

TEXT = torch.tensor([[7, 31, 12, 99, 5, 44, 8]])
OTHER = [61, 17, 9, 23, 51, 6, 77, 13, 29, 40]
COUNTS = {
    "gpt2", "bert", "openai-gpt", "deberta-v2", "bart", "ctrl", "xlm", "biogpt", "xglm",
}  # fmt: skip
OTHERS = {"roberta", "llama", "mistral", "bloom", "t5", "opt", "gptj", "roformer", "m2m"}
SMALL: dict[str, Any] = {"n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 300}
BUILT: dict[str, tuple[str, dict[str, Any]]] = {
    "ctrl": ("CTRLLMHeadModel", {**SMALL, "dff": 64}),
    "xlm": ("XLMModel", {"emb_dim": 48, "n_layers": 2, "n_heads": 4, "vocab_size": 300}),
    "biogpt": ("BioGptForCausalLM", {**SIZE, "vocab_size": 300}),
    "xglm": (
        "XGLMForCausalLM",
        {"d_model": 48, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64, "vocab_size": 300},
    ),
    "opt": (
        "OPTForCausalLM",
        {**SIZE, "ffn_dim": 64, "vocab_size": 300, "word_embed_proj_dim": 48},
    ),
    "gptj": ("GPTJForCausalLM", {**SMALL, "rotary_dim": 8}),
    "roformer": ("RoFormerModel", {**SIZE, "vocab_size": 300, "embedding_size": 48}),
    "m2m": (
        "M2M100Model",
        {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "vocab_size": 300},
    ),
}  # fmt: skip


def model_of(kind: str) -> Any:
    if kind in BUILT:
        return built(*BUILT[kind])
    return make_model(kind)


def arguments_of(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    decoder = {"decoder_input_ids": ids[:, -4:]} if model.config.is_encoder_decoder else {}
    return {"input_ids": ids, **decoder}


def padded(num_padding: int, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids of two rows, the first of which begins with padding, and their mask."""
    length = num_padding + TEXT.shape[1]
    ids = torch.tensor([[padding] * num_padding + TEXT[0].tolist(), OTHER[:length]])
    mask = torch.ones_like(ids)
    mask[0, :num_padding] = 0
    return ids, mask


def notes_of(record: AttentionRecord) -> list[str]:
    return [note for note in record.notes if note.startswith("Padding before tokens")]


def largest_difference(one: AttentionRecord, other: AttentionRecord) -> float:
    stacks = [name for name in one.stacks if name in ("self", "encoder")]
    assert stacks
    return max(
        float(np.abs(a - b).max())
        for name in stacks
        for a, b in zip(one.to_numpy(name), other.to_numpy(name), strict=True)
    )


@pytest.mark.parametrize("num_padding", [1, 3])
@pytest.mark.parametrize("kind", sorted(COUNTS | OTHERS))
def test_the_note_is_there_if_the_weights_differ(kind: str, num_padding: int) -> None:
    model = model_of(kind)
    padding = model.config.pad_token_id
    ids, mask = padded(num_padding, padding if isinstance(padding, int) else 0)
    single = extract(model, arguments_of(model, TEXT), progress=False)
    first, second = extract(
        model, {**arguments_of(model, ids), "attention_mask": mask}, progress=False
    )
    differs = largest_difference(single, first) > 1e-4
    assert differs == (kind in COUNTS)
    assert bool(notes_of(first)) == differs
    assert notes_of(second) == []


def test_a_single_row_with_one_padding_token() -> None:
    """OPT and RoBERTa give it the position before that of the first token."""
    for kind in ("opt", "roberta", "m2m", "gpt2", "bart"):
        model = model_of(kind)
        ids, mask = padded(1, model.config.pad_token_id or 0)
        record = extract(
            model, {**arguments_of(model, ids[:1]), "attention_mask": mask[:1]}, progress=False
        )
        assert bool(notes_of(record)) == (kind in COUNTS), kind


def test_own_positions_and_padding_at_the_end_have_no_note() -> None:
    model = make_model("gpt2")
    single = extract(model, TEXT, progress=False)
    ids, mask = padded(3, 0)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    own = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    at_the_end = {"input_ids": ids.roll(-3, 1), "attention_mask": mask.roll(-3, 1)}
    for arguments in (own, at_the_end):
        first, _ = extract(model, arguments, progress=False)
        assert notes_of(first) == []
        assert largest_difference(single, first) < 1e-5


def test_padding_inside_of_a_text() -> None:
    model = make_model("gpt2")
    ids = torch.tensor([[0, 7, 31, 0, 12, 99]])
    mask = (ids != 0).long()
    record = extract(model, {"input_ids": ids, "attention_mask": mask}, progress=False)
    assert len(notes_of(record)) == 1


HYBRID: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        {**SIZE, "num_hidden_layers": 3, "lru_width": 48, "vocab_size": 300},
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        {**SIZE, "vocab_size": 300, "num_key_value_heads": 2, "full_attn_idxs": [1]},
    ),
}


@pytest.mark.parametrize("kind", HYBRID)
def test_layers_that_process_padding_like_tokens(kind: str) -> None:
    """The recurrent layers of RecurrentGemma read the padding. The convolutions of LFM2 do not."""
    model = built(*HYBRID[kind])
    single = extract(model, TEXT, progress=False)
    ids, mask = padded(3, 0)
    first, second = extract(model, {"input_ids": ids, "attention_mask": mask}, progress=False)
    notes = [note for note in first.notes if note.startswith("Padding before tokens")]
    assert (largest_difference(single, first) > 1e-4) == (kind == "recurrent_gemma")
    assert bool(notes) == (kind == "recurrent_gemma")
    assert not any("padding" in note for note in second.notes)


@pytest.mark.parametrize("name", ["FunnelModel", "FunnelForSequenceClassification"])
def test_pooled_padding(name: str) -> None:
    sizes = {"d_model": 48, "n_head": 4, "d_head": 12, "d_inner": 64, "block_sizes": [1, 1]}
    model = built(name, {**sizes, "vocab_size": 300}, factor=1)
    ids, mask = padded(3, 0)
    first, second = extract(model, {"input_ids": ids, "attention_mask": mask}, progress=False)
    with torch.no_grad():
        pair = [
            model(input_ids=one, attention_mask=m, output_attentions=True).attentions[0]
            for one, m in ((TEXT, torch.ones_like(TEXT)), (ids[:1], mask[:1]))
        ]
    assert (pair[0] - pair[1][..., 3:, 3:]).abs().max() > 1e-3
    assert any(note.startswith("Padding before tokens") for note in first.notes)
    assert not any("padding" in note for note in second.notes)

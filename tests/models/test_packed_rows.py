"""A note names the borders between packed texts, and says whether attention crosses them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from attnviz import extract
from models.make_models import make_model
from models.tiny import IDS, built, reference

DECODERS = ["gpt2", "llama", "mistral", "gemma2"]
#: The second text begins at token 4, and the third at token 7.
PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2]])
TEXTS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
APART = TEXTS[:, None] == TEXTS
SEPARATE = (
    "The row has 3 texts, which do not attend to each other. They begin at token 0 (“#7”), "
    "token 4 (“#5”), token 7 (“#8”)."
)


def notes_of(record: Any) -> list[str]:
    return [note for note in record.notes if "text" in note]


def crosses(model: Any, arguments: dict[str, Any], border: int) -> bool:
    """Return whether the model's own weights cross a border."""
    own = reference(model, arguments)["self"]
    return any(bool(weights[0][:, border:, :border].any()) for weights in own)


@pytest.mark.parametrize(("cache", "mask"), product([None, True, False], [False, True]), ids=str)
@pytest.mark.parametrize("kind", DECODERS)
def test_positions_that_restart(*, kind: str, cache: bool | None, mask: bool) -> None:
    model = make_model(kind)
    arguments: dict[str, Any] = {"input_ids": IDS, "position_ids": PACKED}
    if cache is not None:
        arguments["use_cache"] = cache
    if mask:
        arguments["attention_mask"] = torch.ones_like(IDS)
    notes = notes_of(extract(model, arguments))
    if crosses(model, arguments, 4):
        assert cache is not False or mask
        [note] = notes
        assert note.startswith(
            "position_ids restart at token 4 (“#5”), token 7 (“#8”), where other texts may begin. "
            "Attention crosses from there to earlier texts, as in the model's own call."
        )
    else:
        assert notes == [SEPARATE]


@pytest.mark.parametrize("kind", [*DECODERS, "bert"])
def test_a_mask_of_pairs(kind: str) -> None:
    model = make_model(kind)
    allowed = (APART if kind == "bert" else APART.tril())[None, None]
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    arguments: dict[str, Any] = {
        "input_ids": IDS, "attention_mask": added, "position_ids": PACKED,
    }  # fmt: skip
    assert not crosses(model, arguments, 4)
    assert notes_of(extract(model, arguments)) == [SEPARATE]
    if model.config._attn_implementation == "sdpa":
        # Eager attention adds booleans to the logits, which is an error.
        arguments["attention_mask"] = allowed
        assert notes_of(extract(model, arguments)) == [SEPARATE]


@pytest.mark.parametrize("kind", [*DECODERS, "bert", "bloom"])
def test_other_rows_have_no_note(kind: str) -> None:
    model = make_model(kind)
    padded = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [1] * 10])
    batch: dict[str, Any] = {"input_ids": IDS.expand(2, -1), "attention_mask": padded}
    causal = torch.ones(10, 10, dtype=torch.bool).tril()
    causal[:, :2] = causal[:2] = False
    causal[[0, 1], [0, 1]] = True
    rows: list[dict[str, Any]] = [{"input_ids": IDS}, batch]
    if kind != "bloom":
        positions = (padded.cumsum(-1) - 1).clamp(min=1)
        rows += [
            {"input_ids": IDS, "position_ids": torch.arange(10)[None] + 3},
            # A gap is no other text.
            {
                "input_ids": IDS,
                "position_ids": torch.tensor([[0, 1, 2, 3, 9, 10, 11, 12, 13, 14]]),
                "use_cache": True,
            },
            {**batch, "position_ids": positions},
            {"input_ids": IDS, "attention_mask": torch.where(causal, 0.0, -1e38)[None, None]},
        ]
    for arguments in rows:
        if kind == "bert":
            arguments.pop("use_cache", None)
        records = extract(model, arguments, progress=False)
        for record in records if isinstance(records, list) else [records]:
            assert not [note for note in notes_of(record) if "begin" in note or "restart" in note]


def test_a_row_of_a_batch_has_its_own_borders() -> None:
    model = make_model("gpt2")
    positions = torch.stack([torch.arange(10), PACKED[0]])
    arguments = {"input_ids": IDS.expand(2, -1), "position_ids": positions, "use_cache": False}
    one, other = extract(model, arguments, progress=False)
    assert notes_of(one) == []
    assert notes_of(other) == [SEPARATE]


def test_borders_are_named_without_padding() -> None:
    model = make_model("gpt2")
    mask = torch.ones_like(IDS)
    mask[0, :2] = 0
    positions = torch.tensor([[1, 1, 0, 1, 2, 3, 0, 1, 2, 3]])
    record = extract(model, {"input_ids": IDS, "attention_mask": mask, "position_ids": positions})
    assert record.tokens.ids == tuple(IDS[0, 2:].tolist())
    [note] = notes_of(record)
    assert note.startswith(f"position_ids restart at token 4 (“#{int(IDS[0, 6])}”), where")
    assert np.count_nonzero(record.stack().weights(layer=0)[:, 4:, :4])


def test_linear_layers_carry_their_state_over_the_border() -> None:
    model = built(
        "Qwen3NextForCausalLM",
        {
            "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32,
            "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1,
            "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
        },
    )  # fmt: skip
    record = extract(model, {"input_ids": IDS, "position_ids": PACKED, "use_cache": False})
    assert np.count_nonzero(record.stacks["linear"].weights(layer=0)[:, 4:, :4])
    assert any(note.startswith("position_ids restart at token 4") for note in record.notes)

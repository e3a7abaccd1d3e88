"""Shipped checkpoints of demo models load, and their training script saves such checkpoints."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnviz import demos
from attnviz.analysis.patterns import repeated_induction
from train_demos.__main__ import main as train


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_training_script_leaves_checkpoints_that_transformers_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["induction", "--out", str(tmp_path), "--steps", "10", "--checkpoints", "0,1,4,10"]
    with torch.enable_grad():
        assert train(arguments) == 0
    assert "checkpoints after 0, 1, 4, 10 steps in" in capsys.readouterr().out

    folders = sorted((tmp_path / "induction-checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["step-00", "step-01", "step-04", "step-10"]
    stored = [load_file(folder / "model.safetensors") for folder in folders]
    assert same(stored[-1], load_file(tmp_path / "induction" / "model.safetensors"))
    assert not any(same(a, b) for a, b in pairwise(stored))
    # The saved tokenizers have the vocabulary of the demo decoder.
    expected = demos.load("decoder")[1]("the cat sat")["input_ids"]
    for folder in folders:
        model = AutoModelForCausalLM.from_pretrained(folder)
        assert next(model.parameters()).dtype == torch.float32
        assert AutoTokenizer.from_pretrained(folder)("the cat sat")["input_ids"] == expected
    with pytest.raises(SystemExit):
        train(["induction", "--out", str(tmp_path), "--checkpoints", "3"])
    assert "induction-checkpoints is not empty: remove it" in capsys.readouterr().err


def induction_scores(model: Any, tokenizer: Any) -> np.ndarray:
    """Return the induction score of each head, (layers, heads), on repeated random tokens."""
    generator = np.random.default_rng(4711)
    half = np.stack([generator.permutation(np.arange(3, len(tokenizer)))[:16] for _ in range(16)])
    rows = torch.from_numpy(np.concatenate([half, half], axis=1))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(rows, output_attentions=True).attentions
    scores: np.ndarray = repeated_induction(torch.stack(attentions).numpy(), 16).mean(axis=1)
    return scores


def test_the_first_checkpoint_of_the_decoder_has_its_induction_head() -> None:
    """Training starts from weights that make head 0 of layer 1 an induction head."""
    models, tokenizer = demos.checkpoints("decoder", [0])
    scores = induction_scores(models[0], tokenizer)
    assert scores[1, 0] > 0.6
    assert np.sort(scores.ravel())[-2] < 0.06


def test_induction_heads_form_in_training() -> None:
    """The model is random before training. In training, induction heads form only in layer 1."""
    models, tokenizer = demos.checkpoints("induction", [480, 100, 0, 200, 300])
    assert list(models) == [0, 100, 200, 300, 480]
    scores = [induction_scores(model, tokenizer) for model in models.values()]
    best = [score[1].max() for score in scores]
    assert best == sorted(best)
    assert best[0] < 0.06
    assert best[-1] > 0.8
    assert max(score[0].max() for score in scores) < 0.1


def test_bad_arguments_of_checkpoints_are_refused() -> None:
    with pytest.raises(ValueError, match="'induction', not 'bert'"):
        demos.checkpoints("bert", [0])
    with pytest.raises(ValueError, match="training steps of 'induction': 0, 100, 200, 300, 480"):
        demos.checkpoints("induction", [0, 481])

"""`compare` reads two texts with one model, or one text with several models."""

from __future__ import annotations

import copy
import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from models.tiny import reference

HE = "The doctor asked the nurse a question because he was tired."
SHE = HE.replace(" he ", " she ")


def eager(model: Any, tokenizer: Any, text: str) -> list[np.ndarray]:
    """Return the model's own weights as one array (heads, queries, keys) for each layer."""
    own = reference(model, tokenizer(text, return_tensors="pt"))["self"]
    return [layer[0] for layer in own]


def test_two_texts_differ_as_the_models_own_weights(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    comparison = av.compare(model, HE, SHE, tokenizer=tokenizer, names=("he", "she"))
    assert comparison.a.tokens.text[9] == "he→she"
    one, two = np.stack(eager(model, tokenizer, HE)), np.stack(eager(model, tokenizer, SHE))
    expected = np.abs(two.astype(np.float64) - one).sum(-1).mean(-1) / 2
    assert np.allclose(np.stack(comparison.distance()), expected, atol=1e-5)
    edge = comparison.to_pandas(top_k=1).iloc[0]
    index = np.unravel_index(np.abs(two - one).argmax(), one.shape)
    assert tuple(edge[["layer", "head", "query", "key"]]) == index
    assert edge["difference"] == pytest.approx(two[index] - one[index], abs=1e-4)


def test_models_with_shared_parameters_give_a_note(minilm: tuple[Any, Any]) -> None:
    """A PEFT model and its base model share parameters, so a comparison shows no difference."""
    model, tokenizer = minilm
    comparison = av.compare((model, model), HE, tokenizer=tokenizer, names=("base", "tuned"))
    (note,) = comparison.notes
    assert note.startswith("base and tuned have the same parameters in memory")
    other = av.compare((model, copy.deepcopy(model)), HE, tokenizer=tokenizer)
    assert other.notes == ()
    # A generator may change the parameters of a model between two yields, so there is no note.
    steps = av.compare((model for _ in range(2)), HE, tokenizer=tokenizer)
    assert steps.notes == ()


def test_inserted_tokens_have_no_weight_in_the_other_text(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    longer = HE.replace(" tired", " very very tired")
    comparison = av.compare(model, HE, longer, tokenizer=tokenizer)
    assert comparison.notes == ("2 tokens of b are not in a.",)
    positions = [
        index for index, text in enumerate(comparison.a.tokens.text) if not text.startswith("+")
    ]
    one, two = eager(model, tokenizer, HE), eager(model, tokenizer, longer)
    for layer in (0, 5):
        a = comparison.a.stack().weights(layer=layer)
        assert np.allclose(a[np.ix_(range(12), positions, positions)], one[layer], atol=1e-4)
        assert a.sum() == pytest.approx(one[layer].sum(), abs=1e-2)
        assert np.allclose(comparison.b.stack().weights(layer=layer), two[layer], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_copy_in_half_precision_differs_by_less_than_rounding(
    minilm: tuple[Any, Any], dtype: torch.dtype
) -> None:
    model, tokenizer = minilm
    rounded = copy.deepcopy(model).to(dtype)
    for text in (HE, "If it rains tomorrow, we will stay at home and read."):
        comparison = av.compare((model, rounded), text, tokenizer=tokenizer)
        share = np.stack(comparison.distance()) / np.stack(comparison.rounding())
        assert 0.03 < share.min() < share.max() < 1


def test_only_one_model_at_a_time_is_in_memory() -> None:
    model, tokenizer = av.demos.load("decoder")
    alive: list[int] = []
    references: list[weakref.ref[Any]] = []

    def load(factor: float) -> Any:
        gc.collect(1)
        alive.append(sum(reference() is not None for reference in references))
        copied = copy.deepcopy(model)
        with torch.no_grad():
            # Scale the queries of layer 2, head 0.
            size = model.config.n_embd // model.config.n_head
            copied.transformer.h[2].attn.c_attn.weight[:, :size] *= factor
        references.append(weakref.ref(copied))
        return copied

    factors = (1.0, 1.5, 2.0)
    for models in (
        (load(factor) for factor in factors),
        [partial(load, factor) for factor in factors],
    ):
        names = ["start", "middle", "end"]
        comparison = av.compare(models, "the cat sat on the mat", tokenizer=tokenizer, names=names)
        gc.collect(1)
        assert not any(reference() is not None for reference in references)
        assert comparison.names == ("start", "middle", "end")
        distances = [np.stack(comparison.pair(name).distance()) for name in ("middle", "end")]
        assert all(layer.argmax() == 2 * 4 for layer in distances)
        assert distances[1][2, 0] > distances[0][2, 0]
        assert not distances[0][:2].any()
    assert alive == [0] * 6


def test_bad_inputs_are_refused(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    record = av.extract(model, HE, tokenizer=tokenizer)
    for arguments, options, error, words in (
        ((model, [HE, SHE], HE), {"progress": False}, ValueError, "has 2 examples"),
        (([model, model],), {}, TypeError, "pass two records"),
        (([record, record], HE), {}, TypeError, "Do not pass the input, tokenizer"),
        (([model] * 3, HE), {"tokenizer": [tokenizer] * 2}, ValueError, "tokenizer has 2 entries"),
    ):
        with pytest.raises(error, match=words):
            av.compare(*arguments, **({"tokenizer": tokenizer} | options))


def test_records_are_spooled_to_a_folder_each(tmp_path: Path) -> None:
    model, tokenizer = av.demos.load("decoder")
    texts = "the cat sat", "the dog sat down"
    plain = av.compare(model, *texts, tokenizer=tokenizer)
    comparison = av.compare(model, *texts, tokenizer=tokenizer, spool=tmp_path / "spooled")
    assert sorted(file.name for file in (tmp_path / "spooled").iterdir()) == ["0", "1"]
    assert np.array_equal(np.stack(comparison.distance()), np.stack(plain.distance()))


def test_every_stack_of_an_encoder_decoder_is_compared() -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    texts = "the cat sat", "the dog sat down"
    comparison = av.compare(model, *texts, tokenizer=tokenizer, target="le chat", names=("x", "y"))
    assert list(comparison.record().stacks) == [
        f"{stack}: {name}" for stack in comparison.a.stacks for name in ("x", "y", "y − x")
    ]
    assert set(comparison.describe()["stacks"]) == {"encoder", "decoder", "cross"}
    # In cross-attention, the queries are the common target, and the keys are the two texts.
    queries, keys = comparison.alignment("cross")
    assert queries.identical
    assert not keys.identical
    assert any(note.startswith("Stack “cross”: Keys: ") for note in comparison.notes)
    cross = comparison.difference.stack("cross")
    assert np.abs(cross.weights(layer=cross.layers[0]).sum(-1)).max() < 1e-5

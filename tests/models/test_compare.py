"""Two texts of one model, and two models over one text, with real models."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import attnviz as av

pytestmark = pytest.mark.models

HE = "The doctor asked the nurse a question because he was tired."
SHE = HE.replace(" he ", " she ")


@pytest.fixture(scope="module")
def minilm(checkpoint_folder: Path) -> tuple[Any, Any]:
    """A trained BERT of 6 layers with 12 heads, and its tokenizer."""
    return (
        AutoModel.from_pretrained(checkpoint_folder, dtype=torch.float32).eval(),
        AutoTokenizer.from_pretrained(checkpoint_folder),
    )


def test_what_the_docs_say_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "1 token is replaced by another" in printed
    assert "layer 0: [" in printed


def eager(model: Any, tokenizer: Any, text: str) -> list[np.ndarray]:
    """The model's own weights."""
    own = copy.deepcopy(model)
    own.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = own(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    return [layer[0].numpy() for layer in outputs.attentions]


def test_two_texts_against_the_models_own_weights(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    found = av.compare(model, HE, SHE, tokenizer=tokenizer, names=("he", "she"))
    assert found.a.tokens.text[9] == "he→she"
    one, two = np.stack(eager(model, tokenizer, HE)), np.stack(eager(model, tokenizer, SHE))
    wanted = np.abs(two.astype(np.float64) - one).sum(-1).mean(-1) / 2
    assert np.allclose(np.stack(found.distance()), wanted, atol=1e-5)
    edge = found.to_pandas(top_k=1).iloc[0]
    place = np.unravel_index(np.abs(two - one).argmax(), one.shape)
    assert tuple(edge[["layer", "head", "query", "key"]]) == place
    assert edge["difference"] == pytest.approx(two[place] - one[place], abs=1e-4)


def test_inserted_tokens_have_no_weight_in_the_other_text(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    longer = HE.replace(" tired", " very very tired")
    found = av.compare(model, HE, longer, tokenizer=tokenizer)
    assert found.notes == ("2 tokens of b are not in a.",)
    there = [each for each, text in enumerate(found.a.tokens.text) if not text.startswith("+")]
    one, two = eager(model, tokenizer, HE), eager(model, tokenizer, longer)
    for layer in (0, 5):
        a = found.a.stack().weights(layer=layer)
        assert np.allclose(a[np.ix_(range(12), there, there)], one[layer], atol=1e-4)
        assert a.sum() == pytest.approx(one[layer].sum(), abs=1e-2)
        assert np.allclose(found.b.stack().weights(layer=layer), two[layer], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_copy_in_half_precision_stays_under_what_rounding_does(
    minilm: tuple[Any, Any], dtype: torch.dtype
) -> None:
    model, tokenizer = minilm
    rounded = copy.deepcopy(model).to(dtype)
    found = av.compare((model, rounded), HE, tokenizer=tokenizer)
    share = np.stack(found.distance()) / np.stack(found.rounding())
    assert 0.1 < share.min() < share.max() < 1


def test_a_head_that_was_changed_is_over_what_rounding_does(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    other = copy.deepcopy(model)
    with torch.no_grad():
        # The queries of layer 3, head 5.
        other.encoder.layer[3].attention.self.query.weight[5 * 32 : 6 * 32] *= 1.3
        other.encoder.layer[3].attention.self.query.bias[5 * 32 : 6 * 32] *= 1.3
    found = av.compare((model, other), HE, tokenizer=tokenizer, names=("before", "after"))
    distances, rounding = np.stack(found.distance()), np.stack(found.rounding())
    assert distances.argmax() == 3 * 12 + 5
    changed = distances > rounding
    assert not changed[:3].any()
    assert changed[3].sum() == 1
    assert changed[4:].any()
    # Any view orders heads by them.
    view = av.ModelView(found.b, scores={"distance": found.distance()}, order="distance")
    assert '"distance"' in view.to_html()


def test_two_tokenizers_over_one_text(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    decoder, its = av.demos.load("decoder")
    text = "the cat sat on the mat"
    found = av.compare((model, decoder), text, tokenizer=(tokenizer, its), names=("BERT", "GPT"))
    spelled = "".join(found.a.tokens.text).replace("·", "")
    assert "thecatsatonthemat" in spelled
    assert any("not in GPT" in note for note in found.notes)
    assert all(values.shape for values in found.distance())


def test_a_list_of_texts_is_refused(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    with pytest.raises(ValueError, match="holds 2 examples"):
        av.compare(model, [HE, SHE], HE, tokenizer=tokenizer, progress=False)

"""The classes that a classifier predicts are part of the record, and views show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnviz as av
from attnviz.server.description import describe

LABELS = {0: "negative", 1: "neutral", 2: "positive"}


def classifier(**options: Any) -> Any:
    torch.manual_seed(0)
    options = {"id2label": LABELS} | options
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        **options,
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.classifier.weight.data *= 50
    return model


INPUTS = {"input_ids": torch.arange(5, 13)[None]}


@pytest.mark.parametrize("problem", [None, "multi_label_classification"])
def test_classes_have_the_names_and_probabilities_of_the_model(
    problem: str | None, tmp_path: Path
) -> None:
    model = classifier(problem_type=problem)
    logits = model(**INPUTS).logits[0].detach().double()
    expected = logits.softmax(-1) if problem is None else logits.sigmoid()
    record = av.extract(model, INPUTS)
    assert [one.text for one in record.classes] == [
        LABELS[index] for index in expected.argsort(descending=True).tolist()
    ]
    for one in record.classes:
        assert one.probability == pytest.approx(float(expected[one.id]), abs=1e-6)
    loaded = av.load(record.save(tmp_path / "x.safetensors"))
    assert loaded.classes == record.classes
    names = [one["text"] for one in json.loads(json.dumps(describe(loaded)))["classes"]]
    assert names == [one.text for one in record.classes]


def test_each_example_has_its_own_classes() -> None:
    ids = torch.stack([torch.arange(5, 13), torch.arange(20, 28)])
    model = classifier()
    records = av.extract(model, {"input_ids": ids})
    shares = model(input_ids=ids).logits.detach().softmax(-1)
    assert [record.classes[0].id for record in records] == shares.argmax(-1).tolist()


def test_a_changed_run_has_its_own_classes() -> None:
    model = classifier()
    changed = av.intervene(model, INPUTS, av.HideTokens([2, 3]))
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    mask[..., [2, 3]] = False
    mask[..., 2, 2] = mask[..., 3, 3] = True
    expected = model(**INPUTS, attention_mask=mask).logits[0].detach().softmax(-1)
    shares = {one.id: one.probability for one in changed.classes}
    for index, share in enumerate(expected.tolist()):
        assert shares[index] == pytest.approx(share, abs=1e-5)
    assert shares != {one.id: one.probability for one in av.extract(model, INPUTS).classes}


def test_a_score_is_no_class() -> None:
    record = av.extract(classifier(num_labels=1, id2label={0: "score"}), INPUTS)
    assert record.classes == ()
    assert "classes" not in describe(record)

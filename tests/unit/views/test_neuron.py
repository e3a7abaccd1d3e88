"""State of the neuron view, and the records that it accepts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from traitlets import TraitError

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.views.neuron import NeuronView
from unit.page_data import data_of
from unit.records import captioned_record, captured_record


def test_stacks_with_vectors_keep_the_images_of_the_record() -> None:
    record = captioned_record()
    [stack] = record.stacks.values()
    weights_only = AttentionStack(
        "given", {0: StoredWeights(torch.from_numpy(stack.weights(layer=0)))}, stack.query_tokens
    )
    both = AttentionRecord({"self": stack, "given": weights_only}, images=record.images)
    served = NeuronView(both).served_record
    assert list(served.stacks) == ["self"]
    np.testing.assert_array_equal(served.images[0], record.images[0])


def test_stacks_of_weights_are_omitted_if_others_remain() -> None:
    record = captured_record()
    assert list(record.stacks) == ["self", "cross"]
    view = NeuronView(record)
    assert list(view.record.stacks) == ["self"]
    assert (view.record.model, view.record.notes) == (record.model, record.notes)
    with pytest.raises(TraitError, match="cross"):
        view.stack = "cross"
    # The original record is unchanged.
    assert list(record.stacks) == ["self", "cross"]
    alone = AttentionRecord({"self": record.stack("self")})
    assert NeuronView(alone).record is alone


def test_a_page_contains_vectors_and_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.pages.html.bundle", lambda *_: "export const a = 1;")
    html = NeuronView(captured_record()).to_html()
    data = data_of(html)
    assert data["view"] == "neuron"
    assert data["blocks"] == []
    layers = [
        (layer_data["stack"], layer_data["layer"]) for layer_data in data["vectors"]["layers"]
    ]
    assert layers == [("self", layer) for layer in (2, 3, 5, 7, 11, 12)]

"""State of the neuron view, and the records that it accepts."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from traitlets import TraitError

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.neuron import NeuronView
from attnviz.views.record_view import RecordView
from unit.page_data import data_of
from unit.records import captioned_record, captured_record, given_record


def test_the_state_is_that_of_all_views_and_the_order_of_dimensions() -> None:
    view = NeuronView(captured_record())
    shared = (RecordView, HeadOrder, GeneratedToken)
    names = {name for view_class in shared for name in view_class.state_names()}
    assert set(view.state) == names | {"sort_dimensions"}
    assert json.loads(json.dumps(view.state)) == view.state


def test_the_default_state() -> None:
    view = NeuronView(captured_record())
    assert view.heads == [0]
    assert (view.token, view.key, view.sort_dimensions) == (None, None, True)


def test_traits_are_checked_against_the_record() -> None:
    record = captured_record()
    view = NeuronView(record, heads=[1], token=0, key=1, sort_dimensions=False)
    assert (view.heads, view.token, view.key, view.sort_dimensions) == ([1], 0, 1, False)
    with pytest.raises(TraitError, match="heads"):
        view.heads = [99]
    with pytest.raises(TraitError, match="token"):
        view.token = 999
    with pytest.raises(TypeError, match="sort_dimensions"):
        NeuronView(record, sorted_dimensions=True)


def in_words() -> AttentionRecord:
    starts = np.array([0, 1, 3])
    merged = MergedWeights(captured_record().stack().attention(2), starts, starts)
    return AttentionRecord({"self": AttentionStack("self", {2: merged}, Tokens.of(list("abc")))})


def signed() -> AttentionRecord:
    numbers = [[[[0.5, -0.5], [0.1, 0.2]]]]
    return AttentionRecord.from_weights(numbers, ["a", "b"], signed=True, measure="difference")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            given_record,
            r"created from weights.*attnviz\.extract.*HeadView, ModelView or MatrixView",
        ),
        (signed, r"\(difference\) are signed.*record of weights.*HeadView"),
        (in_words, r"merged into words.*before merge_words\(\).*HeadView"),
    ],
)
def test_records_without_vectors_are_refused_with_alternatives(
    record: Callable[[], AttentionRecord], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        NeuronView(record())


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

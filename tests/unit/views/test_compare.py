"""Tests of `CompareView` and `show_compare_view`."""

from __future__ import annotations

import numpy as np
import pytest
import traitlets

import attnviz as av
from attnviz.views.show import show_compare_view
from unit.page_data import data_of
from unit.records import shares, words

N, MOVED = 6, (1, 2)
WEIGHTS = shares(6, N, N).reshape(2, 3, N, N)


@pytest.fixture(scope="module")
def comparison() -> av.Comparison:
    """Compare two records. Layer 1, head 2 differs strongly, and layer 0, head 1 slightly."""
    changed = WEIGHTS.copy()
    # All weight of the last query moves to the first key.
    changed[MOVED][-1] = np.eye(N)[0]
    changed[0, 1] = 0.9 * WEIGHTS[0, 1] + 0.1 * np.eye(N)
    a, b = (
        av.AttentionRecord.from_weights(list(member), words(N)) for member in (WEIGHTS, changed)
    )
    return av.compare(a, b, names=("before", "after"))


def test_the_view_opens_at_the_head_with_the_largest_distance(comparison: av.Comparison) -> None:
    view = av.CompareView(comparison)
    assert (view.layer, view.heads) == (1, [2])
    assert (view.opening["layer"], view.opening["head"]) == MOVED
    # The distance is the mean over N rows of the moved weight. Only the last row differs.
    moved = (1 - WEIGHTS[MOVED][-1, 0]) / N
    assert view.opening["distance"] == pytest.approx(moved, abs=1e-6)
    chosen_layer = av.CompareView(comparison, layer=0)
    assert (chosen_layer.heads, chosen_layer.opening) == ([1], None)
    equal = av.CompareView(av.compare(comparison.a, comparison.a))
    assert (equal.layer, equal.heads, equal.opening) == (0, [0], None)


def test_tokens_of_one_member_alone_are_named() -> None:
    a = av.AttentionRecord.from_weights([shares(1, 3, 3)], ["it", "was", "tired"])
    b = av.AttentionRecord.from_weights([shares(1, 4, 4)], ["it", "was", "very", "tired"])
    missing = av.CompareView(av.compare(a, b)).comparison["stacks"]["self"]["missing"]
    assert missing == [{"queries": [2], "keys": [2]}, {"queries": [], "keys": []}]


@pytest.mark.parametrize("text", ["he", "she", "he→she", 1, -3])
def test_a_replaced_token_is_found_by_the_text_of_each_member(text: str | int) -> None:
    view = av.CompareView(_compared("so he said it", "so she said it"))
    view.token = view.key = text
    assert (view.token, view.key) == (1, 1)


def test_a_token_of_several_pairs_is_ambiguous() -> None:
    view = av.CompareView(_compared("he saw he and it", "he saw him and it"))
    with pytest.raises(traitlets.TraitError, match=r"token='he': 2 tokens .* \[0, 2\]"):
        view.token = "he"
    with pytest.raises(traitlets.TraitError, match="token='they': no token has this text"):
        view.token = "they"


def _compared(*texts: str) -> av.Comparison:
    size = len(texts[0].split())
    return av.compare(
        *(av.AttentionRecord.from_weights(shares(1, 1, size, size), text.split()) for text in texts)
    )


def test_include_layers_omits_other_layers_everywhere(comparison: av.Comparison) -> None:
    view = av.CompareView(comparison, include_layers=0)
    assert view.heads == [1]
    assert len(view.comparison["stacks"]["self"]["distances"][1]) == 1
    stacks = data_of(view.to_html())["description"]["stacks"]
    assert {tuple(stack["layers"]) for stack in stacks} == {(0,)}


def test_show_compare_view_accepts_records_and_comparisons(comparison: av.Comparison) -> None:
    view = show_compare_view(comparison.a, comparison.b, names=("one", "two"), layer=1, heads=0)
    assert (view.layer, view.heads) == (1, [0])
    assert view.comparison["names"] == ["one", "two"]
    assert show_compare_view(comparison).compared is comparison
    with pytest.raises(TypeError, match=r"a is a Comparison, .*Omit b, names"):
        show_compare_view(comparison, comparison.b, names=("one", "two"))
    with pytest.raises(TypeError, match="Do not pass tokenizer"):
        show_compare_view(comparison.a, comparison.b, tokenizer=object())


def test_a_page_is_named_after_the_models_of_its_members() -> None:
    record = av.AttentionRecord.from_weights([shares(1, 3, 3)], words(3), model="base")
    view = av.CompareView(av.compare(record, record, names=("he", "she")))
    assert (view.served_record.model, view.file_name) == ("base", "base-compare-view")
    other = av.AttentionRecord.from_weights([shares(1, 3, 3)], words(3), model="tuned")
    assert av.CompareView(av.compare(record, other)).served_record.model == "base, tuned"
    named = av.compare(record, other, names=("before", "after"))
    assert av.CompareView(named).served_record.model == "before, after"

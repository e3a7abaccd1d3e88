"""Traits of the compare view: the opening, errors and pages."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz as av
from attnviz.views.show import show_compare_view
from unit.page_data import data_of
from unit.records import shares, words

N, MOVED = 6, (1, 2)


def pair() -> av.Comparison:
    """Return a comparison of two records. Head 1.2 differs strongly, and head 0.1 slightly."""
    weights = shares(6, N, N).reshape(2, 3, N, N)
    changed = weights.copy()
    # All weight of the last query moves to the first key.
    changed[MOVED][-1] = np.eye(N)[0]
    changed[0, 1] = 0.9 * weights[0, 1] + 0.1 * np.eye(N)
    a, b = (
        av.AttentionRecord.from_weights(list(member), words(N)) for member in (weights, changed)
    )
    return av.compare(a, b, names=("before", "after"))


@pytest.fixture(scope="module")
def comparison() -> av.Comparison:
    return pair()


def test_the_view_opens_at_the_head_with_the_largest_distance(comparison: av.Comparison) -> None:
    weights = shares(6, N, N).reshape(2, 3, N, N)
    # Only the last row of this head differs: the weight of other keys moved to the first one.
    moved = (1 - weights[MOVED][-1, 0]) / N
    for arguments in ({}, {"token": 2}):
        view = av.CompareView(comparison, **arguments)
        assert (view.layer, view.heads) == (1, [2])
        assert view.opening["distance"] == pytest.approx(moved, abs=1e-6)
        assert (view.opening["layer"], view.opening["head"]) == MOVED
    assert av.CompareView(comparison, layer=0).heads == [1]
    assert av.CompareView(comparison, layer=0).opening is None
    assert av.CompareView(comparison, heads=0).layer == 0
    equal = av.CompareView(av.compare(comparison.a, comparison.a))
    assert (equal.layer, equal.heads, equal.opening) == (0, [0], None)


def test_tokens_of_one_member_alone_are_named() -> None:
    a = av.AttentionRecord.from_weights([shares(1, 3, 3)], ["it", "was", "tired"])
    b = av.AttentionRecord.from_weights([shares(1, 4, 4)], ["it", "was", "very", "tired"])
    missing = av.CompareView(av.compare(a, b)).comparison["stacks"]["self"]["missing"]
    assert missing == [{"queries": [2], "keys": [2]}, {"queries": [], "keys": []}]


def test_include_layers_omits_other_layers_everywhere(comparison: av.Comparison) -> None:
    view = av.CompareView(comparison, include_layers=0)
    assert view.heads == [1]
    assert len(view.comparison["stacks"]["self"]["distances"][1]) == 1
    stacks = data_of(view.to_html())["description"]["stacks"]
    assert {tuple(stack["layers"]) for stack in stacks} == {(0,)}


def test_a_page_contains_both_members_and_their_description(comparison: av.Comparison) -> None:
    view = av.CompareView(comparison, form="matrix", order="distance")
    data = data_of(view.to_html())
    names = [stack["name"] for stack in data["description"]["stacks"]]
    described = data["state"]["comparison"]["stacks"]["self"]
    assert {*described["members"], *filter(None, described["differences"])} == set(names)
    assert data["state"]["comparison"]["names"] == ["before", "after"]
    assert (data["state"]["form"], data["state"]["order"]) == ("matrix", "distance")
    assert data["state"]["opening"]["head"] == 2


def test_show_compare_view_accepts_records_and_comparisons(comparison: av.Comparison) -> None:
    view = show_compare_view(
        comparison.a, comparison.b, names=("one", "two"), layer=1, heads=0, form="matrix"
    )
    assert (view.layer, view.heads, view.form) == (1, [0], "matrix")
    assert view.comparison["names"] == ["one", "two"]
    assert show_compare_view(comparison).compared is comparison
    with pytest.raises(TypeError, match=r"a is a Comparison, .*Omit b, names"):
        show_compare_view(comparison, comparison.b, names=("one", "two"))
    with pytest.raises(TypeError, match="Do not pass tokenizer"):
        show_compare_view(comparison.a, comparison.b, tokenizer=object())


def test_a_file_is_named_after_the_model() -> None:
    records = [
        av.AttentionRecord.from_weights([shares(1, 3, 3, seed=seed)], words(3), model=model)
        for seed, model in enumerate(["base", "base", "tuned"])
    ]
    same = av.CompareView(av.compare(*records[:2], names=("he", "she")))
    assert same.file_name == "base-compare-view"
    assert same.served_record.model == "base"
    assert av.CompareView(av.compare(records[0], records[2])).served_record.model == "base, tuned"

"""Tests of the description of the record, which is in the opening message of a view."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import traitlets

import attnviz as av
from attnviz.pages.html import packed_bundle
from attnviz.record.record import AttentionRecord
from attnviz.server.description import describe
from attnviz.server.server import RecordServer
from attnviz.views import widget
from unit.records import given_record, hybrid_record


def opening_state(view: Any) -> Any:
    """Return the description that the view's opening message contains, or None."""
    view._is_opening = True
    try:
        return view.get_state()["_description"]
    finally:
        view._is_opening = False


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "has_kernel", lambda: True)


def test_the_description_is_only_in_the_opening_message() -> None:
    shown_record = given_record()
    view = av.HeadView(shown_record)
    assert opening_state(view) == {**describe(shown_record), "record": 0}
    assert view.get_state()["_description"] is None
    assert "_description" not in view.state
    view.record = new_record = given_record((2, 3), 6)
    assert opening_state(view) == {**describe(new_record), "record": 1}


def test_kinds_of_layers_of_one_model_are_siblings() -> None:
    record = hybrid_record()
    siblings = [[{"name": "self", "linear": False}, {"name": "linear", "linear": True}]]
    assert describe(record)["siblings"] == siblings
    other = given_record((1,), 6).stack()
    image = other.derive({0: other.attention(0)}, name="image")
    more = AttentionRecord({**record.stacks, "image": image})
    assert describe(more)["siblings"] == siblings
    for one in ("self", "linear"):
        assert "siblings" not in describe(AttentionRecord({one: record.stacks[one]}))
    # Two stacks of softmax layers are not siblings.
    twice = AttentionRecord({"other": other, "image": image})
    assert "siblings" not in describe(twice)


def test_a_long_description_is_requested() -> None:
    tokens = ["token" * 20] * 2000
    queries, keys = torch.zeros(2, 1, 1, 2000, 2)
    long = av.AttentionRecord.from_qk(queries, keys, tokens, causal=True)
    assert opening_state(av.HeadView(long, layer=0)) is None


def test_an_error_is_raised_by_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("the file is gone")

    view = av.HeadView(given_record())
    monkeypatch.setattr(RecordServer, "reply", broken)
    assert opening_state(view) is None


def test_nothing_is_described_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "has_kernel", lambda: False)
    monkeypatch.setattr(RecordServer, "reply", lambda *_: pytest.fail("the record was described"))
    assert opening_state(av.HeadView(given_record())) is None


def test_a_browser_sets_neither_the_description_nor_the_code() -> None:
    view = av.HeadView(given_record())
    code = view._code
    view.set_state({"_description": {"stacks": []}, "_code": "alert(1)", "layer": 1})
    assert (view.layer, view._description, view._code) == (1, None, code)
    for name, value in (("_description", {}), ("_code", "alert(1)")):
        with pytest.raises(traitlets.TraitError):
            setattr(view, name, value)


def test_the_code_is_one_widget_for_all_views_of_records() -> None:
    record = given_record()
    first, second = av.HeadView(record), av.ModelView(record)
    assert first.get_state(["_code"]) == second.get_state(["_code"])
    assert first._code.get_state(["code"]) == {"code": packed_bundle("records")}
    first._code.set_state({"code": "alert(1)"})
    assert first._code.code == packed_bundle("records")
    first._code.close()
    assert av.HeadView(record)._code.comm is not None


def test_in_marimo_each_view_contains_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.views.widget.in_marimo", lambda: True)
    state = av.HeadView(given_record()).get_state(["_code"])
    assert state == {"_code": packed_bundle("records")}

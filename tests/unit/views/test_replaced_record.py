"""Tests of views whose record is replaced: which state is kept, and what the browser receives."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import traitlets

import attnviz as av
from attnviz import (
    AttentionRecord,
    Dashboard,
    HeadView,
    ModelView,
    NeuronView,
)
from attnviz.views.record_view import RecordView
from unit.records import captured_record, given_record, shares, words
from unit.views.test_positions import predicted_record


def record_of(layers: int, heads: int, tokens: int, prefix: str = "t") -> AttentionRecord:
    weights = [shares(heads, tokens, tokens, seed=layer) for layer in range(layers)]
    return AttentionRecord.from_weights(weights, words(tokens, prefix))


def replies_of(view: RecordView, record: int, name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return the view's replies to a request about record number `record`."""
    replies: list[dict[str, Any]] = []
    view._channel._send = lambda message, _buffers: replies.append(message)
    request = {"attnviz": "request", "id": "1", "name": name, "arguments": arguments}
    view._receive_message(view, request | {"record": record}, [])
    return replies


@pytest.mark.parametrize("kind", [HeadView, ModelView, NeuronView, Dashboard])
def test_valid_state_is_kept(kind: type[RecordView]) -> None:
    view = kind(captured_record(), layer=11, heads=[1], token=1, key=0, theme="dark")
    before = view.state
    view.record = new_record = captured_record()
    assert (view.state, view.opening) == (before, None)
    assert view.served_record.stack("self").layers == new_record.stack("self").layers


def test_invalid_state_is_replaced_by_defaults() -> None:
    options: dict[str, Any] = {
        "layer": 3,
        "heads": [0, 4],
        "token": 9,
        "key": 2,
        "leave_out": ["special", 1, 9],
        "query_window": [2, 10],
        "key_window": [0, 3],
        "token_scores": {"mine": np.arange(10.0)},
        "scores": {"own": np.zeros((4, 6))},
        "threshold": 0.25,
    }
    view = HeadView(record_of(4, 6, 10), **options)
    view.record = record_of(2, 5, 4)
    state = view.state
    assert (state["layer"], state["heads"], state["token"], state["key"]) == (1, [0, 4], None, 2)
    assert (state["query_window"], state["key_window"]) == (None, [0, 3])
    assert state["leave_out"] == ["special", 1]
    assert (state["token_scores"], state["scores"], state["order"]) == ({}, {}, "number")
    assert state["threshold"] == 0.25
    with pytest.warns(UserWarning, match="is reduced to \\[0\\]"):
        view.record = record_of(2, 4, 4)
    assert view.heads == [0]


def test_a_generated_token_is_kept_if_it_exists() -> None:
    view = HeadView(predicted_record(), prediction=1)
    view.record = predicted_record()
    assert (view.prediction, view.token) == (1, 2)
    view.record = record_of(1, 2, 4)
    assert (view.prediction, view.token) == (None, 2)


def test_the_browser_receives_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    view = HeadView(record_of(3, 4, 9), layer=2, heads=[3], token=8)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(view, "_send", lambda message, buffers=None: sent.append(message))  # noqa: ARG005
    view.record = record_of(2, 4, 5)
    [state] = [message["state"] for message in sent if message.get("method") == "update"]
    assert (state["_record_number"], state["layer"], state["token"]) == (1, 1, None)
    # The browser cannot set the number of the record.
    view.set_state({"_record_number": 7})
    assert view._record_number == 1


def test_requests_are_answered_about_the_record_that_is_shown() -> None:
    view = HeadView(record_of(1, 2, 4))
    [reply] = replies_of(view, 0, "describe")
    assert len(reply["header"]["stacks"][0]["query_tokens"]["text"]) == 4
    view.record = record_of(1, 2, 6)
    assert not replies_of(view, 0, "describe")
    [reply] = replies_of(view, 1, "describe")
    assert len(reply["header"]["stacks"][0]["query_tokens"]["text"]) == 6
    assert "t5" in view.to_html()


def test_included_layers_are_those_of_the_new_record() -> None:
    view = ModelView(record_of(4, 2, 3), include_layers=[1, 2], include_heads={2: [0]})
    view.record = record_of(3, 1, 3)
    assert view.record.stack().layers == (1, 2)
    assert view.include_heads == {"2": [0]}


def test_a_record_that_cannot_be_shown_changes_nothing() -> None:
    view = NeuronView(captured_record(), token=1)
    before, record = view.state, view.record
    with pytest.raises(ValueError, match="needs queries and keys"):
        view.record = given_record()
    with pytest.raises(TypeError, match="list of 1 records"):
        view.record = [captured_record()]  # type: ignore[assignment]
    assert (view.state, view.record, view._record_number) == (before, record, 0)
    comparison = av.CompareView(av.compare(given_record(), given_record()))
    with pytest.raises(TypeError, match="Create a new view with attnviz"):
        comparison.record = given_record()


def test_changes_stay_with_their_text_and_their_model() -> None:
    model, tokenizer = av.demos.load("decoder")
    extract = partial(av.extract, model, tokenizer=tokenizer)
    changes = [av.Ablate(layer, 0) for layer in (0, 2)]
    what_if = {"model": model, "inputs": "the cat sat", "tokenizer": tokenizer}
    view = HeadView(extract("the cat sat"), **what_if, changes=changes, run="after")
    view.record = extract("the cat sat", layers=[0, 1])
    assert [change.layers for change in view.changes] == [0]
    changed = view.changed_record
    assert changed is not None
    assert changed.stack().weights(layer=1).shape[-1] == len(view.record.tokens)
    assert view.run == "after"
    view.record = extract("the dog sat")
    assert (view.changes, view.run) == ([], "before")
    with pytest.raises(traitlets.TraitError, match="no model that could run"):
        view.run = "after"

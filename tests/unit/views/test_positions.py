"""Positions as users write them: texts of tokens, negative numbers, one head or all."""

from __future__ import annotations

import json

import numpy as np
import pytest
import traitlets

from attnviz import (
    AttentionRecord,
    Dashboard,
    EmbeddingView,
    HeadView,
    MatrixView,
    ModelView,
    NeuronView,
    Tokens,
)
from attnviz.views.record_view import RecordView
from unit.records import captured_record, shares

WORDS = ["[CLS]", "the", "animal", "crossed", "the", "street", ",", "it", "was", "[SEP]"]


def spoken_record() -> AttentionRecord:
    special = [word.startswith("[") for word in WORDS]
    weights = [shares(4, len(WORDS), len(WORDS), seed=layer) for layer in range(3)]
    return AttentionRecord.from_weights(weights, Tokens.of(WORDS, special=special))


@pytest.mark.parametrize("kind", [HeadView, ModelView, MatrixView, Dashboard])
def test_positions_become_numbers(kind: type[RecordView]) -> None:
    view = kind(spoken_record(), token="it", key="animal", layer=-1, heads=1)
    assert (view.token, view.key, view.layer, view.heads) == (7, 2, 2, [1])
    # The state that the browser receives.
    assert json.loads(json.dumps(view.get_state()))["token"] == 7
    view.token, view.key, view.layer, view.heads = "street", -1, -2, "all"  # type: ignore[assignment]
    assert (view.token, view.key, view.layer, view.heads) == (5, 9, 1, [0, 1, 2, 3])
    view.heads = (3, 0, -1)  # type: ignore[assignment]
    assert view.heads == [3, 0]
    view.heads = np.array([-2])  # type: ignore[assignment]
    assert view.heads == [2]
    view.heads = np.int64(-1)  # type: ignore[assignment]
    assert view.heads == [3]
    view.token = None
    assert view.token is None


def test_negative_layers_count_existing_layers() -> None:
    assert NeuronView(captured_record(), layer=-1).layer == 12
    assert HeadView(captured_record(), include_layers=[5, 11], layer=-1).layer == 11
    view = HeadView(captured_record(), include_layers=-2)
    assert view.record.stacks["self"].layers == (11,)


def test_a_text_of_two_tokens_is_refused() -> None:
    view = HeadView(spoken_record())
    message = (
        r"token='the': 2 tokens have this text, at positions 1 \(\[CLS\] \[the\] animal crossed\), "
        r"4 \(animal crossed \[the\] street ,\)\. Pass one of these positions"
    )
    with pytest.raises(traitlets.TraitError, match=message):
        view.token = "the"
    assert view.token is None


def test_a_missing_text_is_refused() -> None:
    with pytest.raises(
        traitlets.TraitError, match=r"key='anmial': .*Similar texts are 'animal'\. Pass"
    ):
        HeadView(spoken_record(), key="anmial")


def test_a_word_is_chosen_by_its_text() -> None:
    tokens = Tokens.of(["un", "##do", "it", "."])
    record = AttentionRecord.from_weights([shares(2, 4, 4)], tokens)
    with pytest.raises(traitlets.TraitError, match=r"consists of 2 tokens, 0 to 1 .*words=True"):
        HeadView(record, token="undo")
    assert HeadView(record.merge_words(), token="undo").token == 0
    assert HeadView(record.merge_words(), token="it").token == 1


def test_keys_are_excluded_by_text() -> None:
    view = HeadView(spoken_record(), leave_out=["the", "[CLS]", "special", -1])
    assert view.leave_out == [1, 4, 0, "special", 9]
    view.leave_out = "first"  # type: ignore[assignment]
    assert view.leave_out == ["first"]
    with pytest.raises(traitlets.TraitError, match=r"leave_out='\[PAD\]': no token has this text"):
        view.leave_out = ["[PAD]"]
    assert view.leave_out == ["first"]


def test_the_tokens_of_a_corpus_are_those_of_the_text() -> None:
    records = [captured_record(), captured_record()]
    names = records[0].stack().query_tokens
    view = EmbeddingView(records, token=names[2], text=1, layer=-1, heads=1)
    assert (view.token, view.layer, view.heads) == (2, 12, [1])
    with pytest.raises(traitlets.TraitError, match="token='none'"):
        view.token = "none"

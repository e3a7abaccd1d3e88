"""Where a token came from, as views and pages say it: against the weights themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnviz as av
from attnviz.record.record import AttentionRecord
from attnviz.server import sources
from attnviz.server.server import RecordServer
from attnviz.views.head import HeadView
from rounding import weights_error
from unit.page_data import data_of
from unit.records import given_record


@pytest.fixture(scope="module")
def record() -> AttentionRecord:
    model, tokenizer = av.demos.load("decoder")
    found = av.extract(model, "the cat sat on the", tokenizer=tokenizer, generate=5)
    assert isinstance(found, AttentionRecord)
    return found


def test_the_keys_that_all_heads_look_at_most(record: AttentionRecord) -> None:
    stack = record.stack()
    server = RecordServer(record)
    # Five digits are sent.
    off = 5e-6 + max(weights_error(stack.attention(layer)) for layer in stack.layers)
    for query in (0, 4, 9):
        header = server.reply("sources", {"stack": "self", "query": query}).header
        rows = np.concatenate([stack.weights(layer=layer)[:, query] for layer in stack.layers])
        assert (header["heads"], header["layers"], header["query"]) == (12, 3, query)
        means = rows.mean(axis=0)
        listed = [each["key"] for each in header["keys"]]
        assert listed == np.argsort(-means, kind="stable")[: len(listed)].tolist()
        assert len(listed) == min(8, query + 1)
        for each in header["keys"]:
            assert each["mean"] == pytest.approx(means[each["key"]], abs=off)
            assert each["most"] == pytest.approx(rows[:, each["key"]].max(), abs=off)
            assert each["even"] == pytest.approx(1 / (query + 1), abs=1e-5)
            own = stack.weights(layer=each["layer"], head=each["head"])[query, each["key"]]
            assert own == pytest.approx(each["most"], abs=off)
        rest = 1 - means[listed].sum()
        assert header["rest"] == pytest.approx(rest, abs=1e-4)


def test_a_page_contains_them_for_each_token_that_came(record: AttentionRecord) -> None:
    [found] = data_of(HeadView(record).to_html())["sources"]
    assert found["stack"] == "self"
    queries = [each.query for each in record.stack().query_tokens.predictions]
    assert [each["query"] for each in found["of"]] == queries
    server = RecordServer(record)
    for each in found["of"]:
        asked = {"stack": "self", "query": each["query"]}
        assert each == json.loads(json.dumps(server.reply("sources", asked).header))
    assert "sources" not in data_of(HeadView(given_record()).to_html())


def test_a_page_of_a_long_answer_is_made_without(
    record: AttentionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MOST_TOKENS", 4)
    assert "sources" not in data_of(HeadView(record).to_html())
    monkeypatch.undo()
    monkeypatch.setattr(sources, "_MOST_WEIGHTS", 5 * 12 * 10 - 1)
    assert "sources" not in data_of(HeadView(record).to_html())
    monkeypatch.setattr(sources, "_MOST_WEIGHTS", 5 * 12 * 10)
    assert "sources" in data_of(HeadView(record).to_html())

"""`show_embedding_view` and the command `embedding-view` show texts and refuse bad arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import traitlets
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.corpus.extract import extract_corpus
from unit import page_data
from unit.random_corpora import corpus, record
from unit.records import given_record, shares, words

TEXTS = [
    "the animal did not cross the street because it was too wide",
    "the animal did not cross the street because it was too tired",
    "the street was wide",
    "it was tired",
]


@pytest.fixture(autouse=True)
def nowhere_to_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Write pages to a temporary folder, and open no browser."""
    monkeypatch.setattr("webbrowser.open", lambda _: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def data_of(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = page_data.bare_data_of(path.read_text(encoding="utf-8"))
    return data


def test_a_model_reads_texts(decoder: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = decoder
    view = av.show_embedding_view(
        model,
        TEXTS,
        tokenizer=tokenizer,
        columns={"ends": ["wide", "tired", "wide", "tired"]},
        seed=3,
        name="mine",
        layers=[0, 2],
        layer=2,
        heads=[1],
        enlarged=True,
        color="ends",
    )
    assert isinstance(view, av.EmbeddingView)
    assert view.corpus.model == "mine"
    assert len(view.corpus.records) == len(TEXTS)
    assert (view.corpus.seed, view.seed) == (3, 3)
    assert view.record.stack().layers == (0, 2)
    path = Path(capsys.readouterr().out.strip())
    state = data_of(path)["state"]
    assert (state["layer"], state["heads"], state["color"]) == (2, [1], "ends")
    # The record of `TEXTS[2]` in the corpus has the same queries as a record of this text alone.
    alone = av.extract(model, TEXTS[2], tokenizer=tokenizer)
    index = [str(name).startswith("the street") for name in view.corpus.names].index(True)
    one = view.corpus.records[index].stack()
    queries, expected = (stack.queries(layer=2, head=1) for stack in (one, alone.stack()))
    assert queries is not None
    assert expected is not None
    assert_allclose(queries, expected, atol=1e-5)


def test_a_corpus_and_records_are_shown_unchanged(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    extracted = extract_corpus(model, TEXTS, tokenizer=tokenizer, max_points=40, progress=False)
    view = av.show_embedding_view(extracted, include_layers=[1], method="pca")
    assert view.corpus.points() is extracted.points()
    records = [record(6), record(5, seed=1)]
    view = av.show_embedding_view(records, max_points=12, seed=1, columns={"kind": ["a", "b"]})
    # `record(6)` has six queries and six keys, so `max_points=12` leaves out `record(5)`.
    assert len(view.corpus.points()) == 12
    assert len(set(view.corpus.points().query_text)) == 1
    assert view.corpus.column_names == ("kind",)


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        (None, {}, TypeError, "texts is missing. Pass the texts that the model reads"),
        (None, {"texts": "one text"}, TypeError, "list"),
        (None, {"texts": TEXTS, "colour": "text"}, TypeError, "no argument 'colour'"),
        (None, {"texts": TEXTS, "columns": {"kind": ["a"]}}, ValueError, "kind"),
        (corpus([4, 5]), {"texts": TEXTS}, TypeError, "model is a corpus.*Omit texts"),
        ([record(4)], {"texts": TEXTS}, TypeError, "model is a list of records.*Omit texts"),
        (record(4), {}, TypeError, "model is a AttentionRecord.*a list of the records"),
        ([given_record()], {}, ValueError, "no queries and keys"),
        ((shares(2, 3, 3),), {"texts": words(3)}, TypeError, "weights alone have no queries"),
    ],
)
def test_bad_arguments_are_refused(
    inputs: Any,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    decoder: tuple[Any, Any],
) -> None:
    """If `inputs` is None, use the fixture `decoder`, which the parameters cannot contain."""
    if inputs is None:
        inputs, options = decoder[0], {**options, "tokenizer": decoder[1]}
    with pytest.raises(error, match=message):
        av.show_embedding_view(inputs, **options)


def test_missing_packages_raise_before_a_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    words_of = "UMAP needs umap: pip install 'attnviz[embedding]'"
    monkeypatch.setattr("attnviz.embedding.view.missing_package", lambda _: words_of)
    with pytest.raises(ImportError, match=r"method='umap': .*attnviz\[embedding\]"):
        av.show_embedding_view("no such model", TEXTS, method="umap")


@pytest.mark.parametrize(
    ("options", "message", "max_forwards"),
    [
        ({"color": "foo"}, "color='foo' must be one of 'type'.* 'position'.* 'ends'", 0),
        ({"dimensions": 7}, "'dimensions' trait .* should not be greater than 3", 0),
        ({"layer": 1, "heads": [9]}, r"heads=\[9\]: layer 1 of stack 'self' has heads 0 to 3", 1),
        ({"include_layers": [9]}, r"include_layers: layers=\[9\]", 1),
    ],
)
def test_an_impossible_view_raises_before_all_texts_are_read(
    options: dict[str, Any], message: str, max_forwards: int, decoder: tuple[Any, Any]
) -> None:
    model, tokenizer = decoder
    forwards: list[Any] = []
    handle = model.register_forward_pre_hook(lambda *_: forwards.append(1))
    with pytest.raises((traitlets.TraitError, IndexError), match=message):
        av.show_embedding_view(
            model, TEXTS, tokenizer=tokenizer, columns={"ends": [1, 2, 3, 4]}, **options
        )
    handle.remove()
    assert len(forwards) <= max_forwards

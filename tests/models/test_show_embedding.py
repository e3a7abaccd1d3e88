"""`show_embedding_view` and the command `embedding-view` show texts and refuse bad arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import traitlets
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.cli import main
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


@pytest.mark.parametrize(
    ("options", "message", "max_forwards"),
    [
        ({"dimensions": 7}, "'dimensions' trait .* should not be greater than 3", 1),
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


def command(folder: Path, decoder: tuple[Any, Any]) -> list[str]:
    """Save a demo model and a file of texts. Return the command line that reads them."""
    model, tokenizer = decoder
    model.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    (folder / "texts.txt").write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    return ["embedding-view", str(folder / "tiny"), str(folder / "texts.txt")]


def test_the_command_writes_a_page(
    decoder: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--layer", "1", "--heads", "2", "--color", "position", "--enlarged"]
    options += ["--top-keys", "3", "--layers", "0,1", "--max-points", "60", "--theme", "dark"]
    assert main([*command(tmp_path, decoder), *options]) == 0
    data = data_of(tmp_path / "tiny-embedding-view.html")
    state = data["state"]
    assert (state["layer"], state["heads"], state["enlarged"]) == (1, [2], True)
    assert (state["color"], state["theme"]) == ("position", "dark")
    plots, lines = (
        [reply for reply in data["replies"] if reply["request"] == name]
        for name in ("plot", "lines")
    )
    assert [plot["arguments"]["layer"] for plot in plots] == [0, 1]
    count = plots[0]["common"]["count"]
    assert count <= 60
    # A key of a query has four bytes, and half of the points are queries.
    keys = page_data.unpacked(lines[0]["data"])
    assert len(keys) == 4 * 3 * len(plots[0]["header"]) * (count // 2)


def test_the_command_reads_the_lines_of_a_text_file(
    decoder: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = command(tmp_path, decoder)
    # The file has a byte order mark and line ends of Windows. U+2028 does not end a line.
    lines = "\ufeffthe cat sat\u2028on the dog\r\n\r\nthe dog sat\r\n"
    (tmp_path / "texts.txt").write_bytes(lines.encode())
    assert main(arguments) == 0
    page = (tmp_path / "tiny-embedding-view.html").read_text(encoding="utf-8")
    texts = json.loads(
        page_data.unpacked(page_data.reply_of(page, "points", stack="self")["compressed"])
    )
    assert texts["names"] == ["the cat sat on the dog", "the dog sat"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "none.txt"),
        (["blank.txt"], "texts is empty"),
        (["latin.txt"], "'utf-8' codec can't decode"),
    ],
)
def test_the_command_checks_before_it_loads_a_model(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text(TEXTS[0], encoding="utf-8")
    Path("blank.txt").write_text("\n \n", encoding="utf-8")
    Path("latin.txt").write_bytes("Müller".encode("latin-1"))
    assert main(["embedding-view", "no-such-model", *arguments]) == 1
    assert message in capsys.readouterr().err

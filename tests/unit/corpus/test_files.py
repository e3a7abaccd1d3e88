"""Texts of files: one a line, JSON lines, comma-separated values, Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from attnviz.corpus.files import read_texts

TEXTS = ["the cat sat", 'a "quoted", text', "línea"]
PARTS = ["DET", "NOUN", "VERB"]


def written(folder: Path, ending: str) -> Path:
    file = folder / f"corpus{ending}"
    table = pd.DataFrame({"text": TEXTS, "pos": PARTS})
    if ending == ".txt":
        file.write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    elif ending in (".jsonl", ".ndjson"):
        rows = [json.dumps({"text": a, "pos": b}) for a, b in zip(TEXTS, PARTS, strict=True)]
        file.write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    elif ending == ".parquet":
        table.to_parquet(file)
    else:
        table.to_csv(file, index=False, sep="\t" if ending == ".tsv" else ",")
    return file


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"])
def test_the_texts_of_a_file_are_read(ending: str, tmp_path: Path) -> None:
    columns = [] if ending == ".txt" else ["pos"]
    texts, found = read_texts(written(tmp_path, ending), columns=columns)
    assert texts == TEXTS
    assert found == ({} if ending == ".txt" else {"pos": PARTS})


def test_other_columns_and_strings_alone_are_read(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"sentence": "one"}\n{"sentence": null}\n', encoding="utf-8")
    assert read_texts(file, "sentence") == (["one", None], {})
    file.write_text('"one"\n"two"\n', encoding="utf-8")
    assert read_texts(file) == (["one", "two"], {})


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("x.doc", b"a", [], "files that end in .txt, .jsonl, .csv, .tsv or .parquet"),
        ("x.txt", b"\n \n", [], "contains no text"),
        ("x.txt", b"a", ["pos"], "is a text file and has no columns 'pos'"),
        ("x.txt", b"\xff\xfe\x00", [], "is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{', [], "line 2 is not JSON"),
        ("x.jsonl", b"[1, 2]", [], "line 1: each line must be an object with 'text'"),
        (
            "x.jsonl",
            b'{"words": "a"}',
            [],
            "line 1: column 'text' does not exist; there are 'words'",
        ),
        ("x.jsonl", b'{"text": 3}', [], "contains no text"),
        ("x.csv", b"words\na", [], "column 'text' does not exist; there are 'words'"),
        ("x.csv", b"", [], "column 'text' does not exist"),
        ("x.parquet", b"no table", [], "cannot be read as Parquet"),
    ],
)
def test_what_is_no_file_of_texts_is_refused(
    name: str, content: bytes, columns: list[str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_texts(file, columns=columns)


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.csv", "x.parquet"])
def test_a_file_that_is_not_there_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / name)


def test_without_pyarrow_parquet_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        read_texts(tmp_path / "x.parquet")


def test_what_is_no_path_is_refused() -> None:
    given: Any = 3
    with pytest.raises(TypeError, match="path"):
        read_texts(given)

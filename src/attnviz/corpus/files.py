"""Texts in a file: one a line, JSON lines, or a table of comma-separated values or Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attnviz.utils.arguments import as_path, shown

__all__ = ["read_texts"]


def read_texts(
    path: str | os.PathLike[str], column: str = "text", columns: Sequence[str] = ()
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Read the texts of a file, and columns beside them.

    Parameters
    ----------
    path : path-like
        By its ending: ``.txt``, one text a line, lines without text are left out; ``.jsonl`` or
        ``.ndjson``, an object or a string a line; ``.csv`` or ``.tsv`` with names in the first
        line; ``.parquet``.
    column : str, default "text"
        Where in a row the text is. Of a text file, and of strings in JSON lines, there is none.
    columns : sequence of str
        Further columns that are wanted.

    Returns
    -------
    texts : list
        One a row; None where a row has none.
    columns : dict of str to list
        For each of `columns` a value a row.

    Raises
    ------
    ValueError
        If the file has another ending, no text, a line that cannot be read, or no such column.
    ImportError
        If a package is missing that reads Parquet; says which.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> texts, parts = read_texts("corpus.jsonl", "sentence", ["pos"])     # doctest: +SKIP
    """
    file = as_path("path", path, "file").expanduser()
    names = [column, *columns]
    ending = file.suffix.lower()
    readers: dict[str, Callable[[Path, Sequence[str]], Iterable[Sequence[Any]]]] = {
        ".txt": _lines,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".csv": _comma_separated,
        ".tsv": _comma_separated,
        ".parquet": _parquet,
    }
    if ending not in readers:
        raise ValueError(
            f"{shown(str(path))}: texts are read from files that end in .txt, .jsonl, .csv, .tsv "
            "or .parquet"
        )
    try:
        rows = list(readers[ending](file, names))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}") from None
    if not any(isinstance(row[0], str) and row[0].strip() for row in rows):
        raise ValueError(f"{file} contains no text")
    texts = [row[0] for row in rows]
    return texts, {
        name: [row[place] for row in rows] for place, name in enumerate(columns, start=1)
    }


def _lines(file: Path, names: Sequence[str]) -> Iterable[Sequence[Any]]:
    if names[1:]:
        raise ValueError(
            f"{file} is a text file and has no columns {', '.join(map(repr, names[1:]))}; give a "
            ".jsonl, .csv or .parquet file"
        )
    with file.open(encoding="utf-8-sig") as lines:
        for line in lines:
            if line.strip():
                yield (line.rstrip("\n"),)


def _json_lines(file: Path, names: Sequence[str]) -> Iterable[Sequence[Any]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (RecursionError, ValueError) as error:
                raise ValueError(f"{file}, line {number} is not JSON: {error}") from None
            if isinstance(row, str) and len(names) == 1:
                yield (row,)
            elif isinstance(row, dict):
                yield _of_row(f"{file}, line {number}", row, names)
            else:
                raise ValueError(
                    f"{file}, line {number}: each line must be an object with {names[0]!r}; got "
                    f"{shown(row)}"
                )


def _comma_separated(file: Path, names: Sequence[str]) -> Iterable[Sequence[Any]]:
    # A text may be a book.
    csv.field_size_limit(1 << 30)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        separator = "\t" if file.suffix.lower() == ".tsv" else ","
        rows = csv.DictReader(lines, delimiter=separator)
        try:
            _check_names(str(file), rows.fieldnames or (), names)
            for row in rows:
                yield [row[name] for name in names]
        except csv.Error as error:
            raise ValueError(f"{file}, line {rows.line_num}: {error}") from None


def _parquet(file: Path, names: Sequence[str]) -> Iterable[Sequence[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(
            f"{file}: Parquet files are read with pyarrow: pip install pyarrow"
        ) from error
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist")
    try:
        table = parquet.ParquetFile(file)
        _check_names(str(file), table.schema_arrow.names, names)
        for batch in table.iter_batches(columns=list(names)):
            columns = [batch.column(name).to_pylist() for name in names]
            yield from zip(*columns, strict=True)
    except ArrowException as error:
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from None


def _of_row(where: str, row: dict[str, Any], names: Sequence[str]) -> list[Any]:
    missing = [name for name in names if name not in row]
    if missing:
        _check_names(where, row, names)
    return [row[name] for name in names]


def _check_names(where: str, known: Iterable[str], names: Sequence[str]) -> None:
    there = list(known)
    for name in names:
        if name not in there:
            raise ValueError(
                f"{where}: column {name!r} does not exist; there are {', '.join(map(repr, there))}"
            )

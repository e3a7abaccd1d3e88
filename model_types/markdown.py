"""Functions that format parts of docs/coverage.md as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with the column titles `head` and the rows `rows`.

    "|" in a cell becomes "/", because "|" separates cells.
    """
    table_rows = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in table_rows
    )


def short(text: str, length: int = 170) -> str:
    """Return `text` in one line of at most `length` characters, with "<" as "&lt;".

    A longer text is cut at the last space that leaves room for " …", which is then added. If it has
    no such space, it is cut within a word.
    """
    text = " ".join(text.split()).replace("<", "&lt;")
    if len(text) <= length:
        return text
    words, space, _ = text[: length - 1].rpartition(" ")
    return (words if space else text[: length - 2]) + " …"


def number(value: float | None) -> str:
    """Format a number with one significant digit. Return "" for None."""
    return "" if value is None else f"{value:.0e}"

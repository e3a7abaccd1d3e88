"""Access to the texts of a corpus and their columns, from a list, a dataset or a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attnviz.corpus.columns import check_column_names, check_entry
from attnviz.record.record import AttentionRecord

__all__ = ["TextColumns", "Texts"]

_KINDS = (
    "a list of texts, of pairs of texts or of images, or a dataset or table (datasets.Dataset, "
    "DataFrame) with column="
)


class Texts:
    """Sequence of texts, pairs of texts, or images. An item is loaded when it is accessed.

    `column` names the column with the texts in a dataset or table. If an item of a list is a dict,
    `column` is the key of the text.

    Examples
    --------
    >>> texts = Texts(["the cat", {"text": "sat"}, None], "text")
    >>> len(texts), texts[1], texts[2] is None
    (3, 'sat', True)
    """

    def __init__(self, texts: Any, column: str = "text") -> None:
        if isinstance(texts, Mapping):
            splits = ", ".join(map(repr, list(texts)[:5]))
            raise TypeError(f"texts is a mapping of {splits}. Pass one of its entries.")
        if isinstance(texts, np.ndarray) and texts.ndim == 0:
            texts = texts.item()
        if isinstance(texts, str | bytes):
            raise TypeError("texts is one text. Pass a list, [text].")
        self._names: tuple[str, ...] | None = None
        self._table: Any = texts
        if hasattr(texts, "columns") and hasattr(texts, "shape"):
            self._names = tuple(texts.columns)
            _check_name(column, self._names, "table")
            texts = texts[column]
        # Convert a pandas Series to a list, because its items are accessed by label. Convert an
        # array of strings, because its items are not Python strings. Both are already in memory.
        kind = getattr(getattr(texts, "dtype", None), "kind", None)
        if hasattr(texts, "iloc") or (isinstance(texts, np.ndarray) and kind in {"O", "U", "T"}):
            texts = texts.tolist()
        if not hasattr(texts, "__len__") or not hasattr(texts, "__getitem__"):
            raise TypeError(
                f"texts must be {_KINDS}. {type(texts).__name__} has no random access. Pass "
                "list(texts), or list(texts.take(1000)) for a stream."
            )
        if hasattr(texts, "column_names"):
            self._names = tuple(texts.column_names)
            _check_name(column, self._names, "dataset")
        self._texts, self._column = texts, column
        if not len(self):
            raise ValueError(f"texts is empty. Pass {_KINDS}.")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Any:
        text = self._texts[index]
        if isinstance(text, Mapping) and self._column in text:
            return text[self._column]
        return text

    def values(self, name: str) -> tuple[Any, list[str] | None]:
        """Return the values of a column of the dataset or table, and the names of its classes.

        The names are None unless the values are class indices (``datasets.ClassLabel``).
        """
        if self._names is None:
            raise ValueError(
                f"columns: {name!r} must be a column of the dataset, but texts is not a dataset. "
                f"Pass a mapping, columns={{{name!r}: values}}."
            )
        if name not in self._names:
            names = ", ".join(map(repr, self._names))
            raise ValueError(f"columns: {name!r} is not one of the columns of the dataset, {names}")
        feature = getattr(self._table, "features", {}).get(name)
        values = self._table[name]
        # Convert a pandas Series to a list, because its items are accessed by label.
        listed = values.tolist() if hasattr(values, "iloc") else values
        return listed, getattr(feature, "names", None)


class TextColumns:
    """Columns of all texts. A column has an entry for each text.

    An entry is one value, or a sequence with a value for each token. `columns` maps names to lists
    of entries, or has the names of columns of the dataset.

    Examples
    --------
    >>> columns = TextColumns({"label": ["a", "b", "c"]}, Texts(["the", "cat", "sat"]))
    >>> columns.values_at([2, 0])
    {'label': ['c', 'a']}
    """

    def __init__(self, columns: Mapping[str, Any] | Iterable[str] | None, texts: Texts) -> None:
        self._values: dict[str, tuple[Any, list[str] | None]] = {}
        if not isinstance(columns, Iterable | None):
            raise TypeError(
                "columns must be a mapping of names to values, {name: values}, or names of columns "
                f"of the dataset, not {type(columns).__name__}"
            )
        names = [columns] if isinstance(columns, str) else list(columns or ())
        check_column_names(names)
        for name in names:
            if not isinstance(columns, Mapping):
                self._values[name] = texts.values(name)
                continue
            values = columns[name]
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise TypeError(
                    f"columns[{name!r}] must be a sequence with a value for each text, not "
                    f"{type(values).__name__}"
                )
            if len(values) != len(texts):
                raise ValueError(
                    f"columns[{name!r}] has {len(values)} values, but there are {len(texts)} "
                    "texts. Pass one value for each text, or one sequence for each text with a "
                    "value for each of its tokens."
                )
            listed = list(values)
            for index, value in enumerate(listed):
                check_entry(name, index, value)
            self._values[name] = (listed, None)

    def values_at(self, indices: Iterable[int]) -> dict[str, list[Any]]:
        """Map each column name to the entries of the texts `indices`."""
        chosen = list(indices)
        return {
            name: [_class(values[index], classes) for index in chosen]
            for name, (values, classes) in self._values.items()
        }

    def check(self, index: int, record: AttentionRecord) -> None:
        """Raise if an entry of the text `index` does not fit the numbers of tokens in `record`."""
        counts = {
            len(side)
            for stack in record.stacks.values()
            if stack.has_vectors
            for side in (stack.query_tokens, stack.key_tokens)
        }
        for name, [value] in self.values_at([index]).items():
            check_entry(name, index, value, counts)


def _check_name(column: str, names: tuple[str, ...], kind: str) -> None:
    """Raise ValueError unless exactly one of `names` is `column`. `kind` is for the error."""
    if names.count(column) != 1:
        raise ValueError(
            f"column={column!r}: the {kind} has the columns {', '.join(map(repr, names))}. Pass "
            "the name of the column with the texts."
        )


def _class(value: Any, classes: list[str] | None) -> Any:
    """Convert a class index to its name, and an invalid index, such as -1, to None.

    If `classes` is None, return `value` unchanged.
    """
    if classes is None or value is None:
        return value
    return classes[value] if 0 <= value < len(classes) else None

"""What a caller may give as the texts of a corpus, and what is known of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Texts", "chosen_columns"]

_KINDS = (
    "a list of texts, of pairs of texts or of images, or a dataset (datasets.Dataset) with column="
)


class Texts:
    """Texts, pairs or images in a sequence, none of which is read before it is asked for.

    Parameters
    ----------
    texts : sequence or datasets.Dataset
        As a caller gave them.
    column : str
        Where in a row of a dataset, or in a dict, the text is.

    Raises
    ------
    TypeError
        If `texts` is no sequence.
    ValueError
        If there are none, or the dataset has no such column.

    Examples
    --------
    >>> texts = Texts(["the cat", {"text": "sat"}, None], "text")
    >>> len(texts), texts[1], texts[2] is None
    (3, 'sat', True)
    """

    def __init__(self, texts: Any, column: str = "text") -> None:
        if isinstance(texts, Mapping):
            splits = ", ".join(map(repr, list(texts)[:5]))
            raise TypeError(
                f"texts must be {_KINDS}; got a mapping of {splits}: give one of its entries"
            )
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be {_KINDS}; got one text: put it into a list, [text]")
        # A Series counts from labels; all of its values are in memory anyway.
        if hasattr(texts, "iloc"):
            texts = list(texts)
        if not hasattr(texts, "__len__") or not hasattr(texts, "__getitem__"):
            raise TypeError(
                f"texts must be {_KINDS}; got {type(texts).__name__}, of which no text can be "
                "chosen at random: give list(texts), or of a stream list(texts.take(1000))"
            )
        self._names: tuple[str, ...] | None = None
        if hasattr(texts, "column_names"):
            self._names = tuple(texts.column_names)
            if column not in self._names:
                raise ValueError(
                    f"column={column!r}: the dataset has the columns "
                    f"{', '.join(map(repr, self._names))}"
                )
        self._texts, self._column = texts, column
        if not len(self):
            raise ValueError(f"texts is empty; give {_KINDS}")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: int) -> Any:
        text = self._texts[place]
        if isinstance(text, Mapping) and self._column in text:
            return text[self._column]
        return text

    def values(self, name: str) -> tuple[Any, list[str] | None]:
        """A further column of the dataset.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        values : sequence
            One a text.
        classes : list of str, or None
            What the values are the numbers of, where the dataset says so.

        Raises
        ------
        ValueError
            If `texts` is no dataset, or has no such column.
        """
        if self._names is None or name not in self._names:
            known = "no dataset" if self._names is None else ", ".join(map(repr, self._names))
            raise ValueError(
                f"columns: {name!r} must be a column of the dataset given as texts, which is "
                f"{known}; for others give a mapping, columns={{{name!r}: values}}"
                if self._names is None
                else f"columns: {name!r} is none of the dataset's columns {known}"
            )
        feature = getattr(self._texts, "features", {}).get(name)
        return self._texts[name], getattr(feature, "names", None)


def chosen_columns(
    columns: Mapping[str, Any] | Iterable[str] | None, texts: Texts, places: Iterable[int]
) -> dict[str, list[Any]]:
    """What is known of some of the texts.

    Parameters
    ----------
    columns : mapping of str to sequence, iterable of str, or None
        Values for all texts, or names of columns of the dataset.
    texts : Texts
        All texts.
    places : iterable of int
        Those wanted.

    Returns
    -------
    dict of str to list
        For each name a value, or a sequence of one a token, for each of these.

    Raises
    ------
    TypeError
        If a column has no values that can be counted.
    ValueError
        If one has another number of values than there are texts, or a name is none of the
        dataset's.
    """
    if columns is None:
        return {}
    if isinstance(columns, str):
        columns = [columns]
    wanted = list(places)
    if not isinstance(columns, Mapping):
        found = {}
        for name in columns:
            values, classes = texts.values(name)
            found[name] = [_class(values[place], classes) for place in wanted]
        return found
    for name, values in columns.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise TypeError(
                f"columns[{name!r}] must be a sequence with a value for each text; got "
                f"{type(values).__name__}"
            )
        if len(values) != len(texts):
            raise ValueError(
                f"columns[{name!r}] has {len(values)} values, but there are {len(texts)} texts; "
                "give one value for each text, or one sequence for each with a value for each of "
                "its tokens"
            )
    listed = {name: list(values) for name, values in columns.items()}
    return {name: [values[place] for place in wanted] for name, values in listed.items()}


def _class(value: Any, classes: list[str] | None) -> Any:
    """The name of a class; datasets say -1 where it is not known."""
    if classes is None or value is None:
        return value
    return classes[value] if 0 <= value < len(classes) else None

"""Write the sections of docs/coverage.md about classes with a head and about unusual settings.

A class with a head is a class for a task, such as `BertForMaskedLM`. An auto class of transformers,
such as `AutoModelForMaskedLM`, loads these classes. An unusual setting is a setting of the
configuration that changes attention, with a value other than the default.

A `Row` is the result of the check of one model. If `Row.result` is "ok", the row, its class and its
model are called right. A model has known weights if its output or its attention modules return
attention weights. Only then can attnviz be compared with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from model_types.cases import AUTO_CLASSES
from model_types.markdown import lines, short
from model_types.reasons import in_words
from model_types.rows import REFERENCED, Row

_NOT_BUILT = ("not built", "no inputs")


def _heads(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.auto]


def _flagged(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of models with an unusual setting and known weights (see `REFERENCED`)."""
    return [row for row in rows if row.flag and row.result in REFERENCED]


def _right(rows: Iterable[Row]) -> int:
    return sum(row.result == "ok" for row in rows)


def _compared(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.result in REFERENCED]


def share_of_classes(rows: Iterable[Row]) -> float:
    """Return the share of right classes among all classes with a head and known weights."""
    compared = _compared(_heads(rows))
    return _right(compared) / max(1, len(compared))


def summary_of_classes(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the summary about classes with a head, unusual settings and caches."""
    compared, flagged = _compared(_heads(rows)), _flagged(rows)
    cached = sum(row.cached for row in rows if row.result == "ok")
    names = {_field(row) for row in flagged}
    return [
        f"- **{_right(compared)} of {len(compared)}** classes with a head are right "
        f"(**{share_of_classes(rows):.1%}**).",
        f"- {_right(flagged)} of {len(flagged)} models with a changed setting are right. "
        f"{len(names)} settings were changed.",
        f"- {cached} of the models that are right can have a cache, and are right with one too.",
    ]


def classes(rows: Sequence[Row]) -> str:
    """Return the section about classes with a head.

    The section has a table with counts for each auto class, a list of the classes that are not
    right, and a list of the classes that are not tested. Classes without known weights are only
    counted.
    """
    heads = _heads(rows)
    counts = (
        _count(f"`{auto}`", [row for row in heads if auto in row.auto]) for auto in AUTO_CLASSES
    )
    intro = (
        "## Classes with a head\n\nThe table counts the classes that each auto class loads. "
        "*Not right* are classes that differ, are refused, or lack a part. *No weights* are those "
        "that return no weights. A class of two auto classes counts in both lines.\n\n"
    )
    head = ("Auto class", "Classes", "Right", "Not right", "No weights", "Not tested")
    parts = [intro, lines(head, counts)]
    wrong = [row for row in heads if row.result not in ("ok", "no own weights", *_NOT_BUILT)]
    parts.append(_list("\nNot right:", wrong, _result))
    untested = [row for row in heads if row.result in _NOT_BUILT]
    parts.append(_list("\nNot tested:", untested, in_words))
    return "".join(parts)


def _count(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    right, none = _right(rows), sum(row.result == "no own weights" for row in rows)
    untested = sum(row.result in _NOT_BUILT for row in rows)
    numbers = (len(rows), right, len(rows) - right - none - untested, none, untested)
    return (name, *map(str, numbers))


def _list(title: str, rows: Sequence[Row], reason: Callable[[Row], str]) -> str:
    """Return `title` and a list of reasons, each with its classes and their unusual settings.

    `reason` is a function that returns the reason of a row. Return "" without rows.
    """
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(reason(row), []).append(_name(row))
    entries = [f"- {', '.join(names)}: {text}\n" for text, names in by_reason.items()]
    return f"{title}\n\n{''.join(entries)}" if entries else ""


def _result(row: Row) -> str:
    return f"{row.result}: {in_words(row)}"


def _name(row: Row) -> str:
    name = f"`{row.kind}`" if row.kind else row.model_type
    return f"{name} with {row.flag}" if row.flag else name


def flags(rows: Sequence[Row]) -> str:
    """Return the section about unusual settings.

    The section has a table and a list. The table has the tested values of each setting, the number
    of tested models, and the number of right models. The list has the models that are not right.
    """
    flagged = _flagged(rows)
    fields: dict[str, list[Row]] = {}
    for row in flagged:
        fields.setdefault(_field(row), []).append(row)
    counts = (
        (
            f"`{name}`",
            short(", ".join(dict.fromkeys(row.flag.split("=", 1)[1] for row in subset)), 60),
            str(len(subset)),
            str(_right(subset)),
        )
        for name, subset in sorted(fields.items())
    )
    intro = (
        "\n## Settings\n\nThe table has the settings that change attention, the values that were "
        "tested beside the default, and the number of models. Models are of the first class that "
        "an auto class loads, or the base model.\n\n"
    )
    parts = [intro, lines(("Setting", "Values", "Models", "Right"), counts)]
    wrong = [row for row in flagged if row.result != "ok"]
    parts.append(_list("\nNot right:", wrong, _result))
    return "".join(parts)


def _field(row: Row) -> str:
    return row.flag.split("=", 1)[0]

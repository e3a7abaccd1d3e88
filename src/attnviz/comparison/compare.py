"""The function `compare`, which aligns records and returns a `Comparison`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from attnviz.comparison.common import align_records
from attnviz.comparison.comparison import Comparison
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import short_repr

_FORMS = (
    "pass two records, a model and two inputs, or several models and one input: compare(record_a, "
    "record_b), compare(model, text_a, text_b), compare([model_a, model_b], text)"
)


def compare(
    a: Any,
    b: Any = None,
    c: Any = None,
    *,
    names: Sequence[str] | None = None,
    words: bool = False,
    **options: Any,
) -> Comparison:
    """Compare the attention of two texts, of several models, or of several records.

    Parameters
    ----------
    a, b, c : object
        - ``compare(record_a, record_b)`` compares two records.
        - ``compare(model, text_a, text_b)`` compares two inputs of one model.
        - ``compare((model_a, model_b), text)`` compares two models on one input.
        - ``compare([model_0, ..., model_k], text)`` compares several models, such as checkpoints,
          with the first one. The list may also contain records of the same input.

        A model can be a hub id, a folder, or a function that returns a model. A generator can be
        passed in place of the list. Then only one model at a time is in memory.
    names : sequence of str, optional
        Names of the compared records, for example ``("base", "tuned")``. The default is ``("a",
        "b")`` for two records. For more records, the default is the last part of each model's
        folder or hub id. If one of these is unknown or not unique, the numbers from 0 are used.
    words : bool, default False
        Whether tokens are merged into words before they are aligned. Pass True if the texts differ
        and the tokenizers differ, too.
    **options
        Further arguments of `attnviz.extract` (`tokenizer`, `layers`, `target`, ...). `tokenizer`
        and `processor` can be lists with one entry per model. With `spool`, each record is written
        to a subfolder ``0``, ``1``, ... of the folder `spool`.

    Returns
    -------
    Comparison
        The aligned records, with methods for their differences.

    Raises
    ------
    TypeError
        If `a`, `b` and `c` do not have one of these forms, if there are fewer than two models or
        records, or if options are passed without a model.
    ValueError
        If `names` does not have one unique name per record. Also if the records have no stack or
        layer in common, have different measures or signed values, or cannot be aligned.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> comparison = av.compare(model, "the cat sat", "the dog sat", tokenizer=tokenizer)
    ...                                                                        # doctest: +SKIP
    >>> comparison.distance()                                                  # doctest: +SKIP
    """
    checked = None if names is None else _checked_names(names)
    with _folder_of(options.get("spool")):
        records, default_names, models = _records(a, b, c, options, checked)
    all_names = checked or default_names
    if len(all_names) != len(records):
        raise ValueError(
            f"names={short_repr(names)} has {len(all_names)} names for {len(records)} members. "
            "Pass one name per member."
        )
    if words:
        records = [record.merge_words() for record in records]
    notes = [] if c is not None else _shared_parameters(models, all_names)
    return Comparison(align_records(records, all_names, notes), originals=records, names=all_names)


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    listed = not isinstance(names, str) and isinstance(names, Iterable)
    values: list[Any] = list(names) if listed else [names]
    if len(values) < 2 or not all(isinstance(name, str) and name.strip() for name in values):
        raise ValueError(
            f'names={short_repr(names)} must be at least two strings, such as ("base", "tuned")'
        )
    if len(set(values)) < len(values):
        raise ValueError(f"names={short_repr(names)} must be different")
    return tuple(values)


class _Members(NamedTuple):
    """Records to compare, with their default names and their models.

    `models` has None in place of a model that was released, or for a record that the user
    passed in a list. `models` is empty if the user passed two records as `a` and `b`.
    """

    records: list[AttentionRecord]
    names: tuple[str, ...]
    models: list[Any]


def _records(
    a: Any, b: Any, c: Any, options: dict[str, Any], names: Sequence[str] | None
) -> _Members:
    if c is not None and hasattr(b, "parameters"):
        # The user passed two models and an input: compare(model_a, model_b, text).
        a, b, c = [a, b], c, None
    several = isinstance(a, (tuple, list, Iterator))
    if not several and (isinstance(a, AttentionRecord) or isinstance(b, AttentionRecord)):
        for name, value in (("a", a), ("b", b)):
            if not isinstance(value, AttentionRecord):
                got = "is missing" if value is None else f"is a {type(value).__name__}"
                raise TypeError(f"{name} {got}; pass two records, compare(record_a, record_b)")
        _check_left_out(c, options)
        return _Members([a, b], ("a", "b"), [])
    if not several:
        if b is None or c is None:
            raise TypeError(_FORMS)
        made = [
            _extracted(a, text, _spooled(options, index), None) for index, text in enumerate((b, c))
        ]
        return _Members(made, ("a", "b"), [a, a])
    if c is not None:
        count = f"{len(a)} models" if isinstance(a, (tuple, list)) else "an iterable"
        raise TypeError(
            f"a is {count}, but there are two inputs. Pass models and one input, compare([model_a, "
            "model_b], text)."
        )
    if isinstance(a, (tuple, list)):
        _check_count(len(a), names)
        for name in ("tokenizer", "processor"):
            value = options.get(name)
            if isinstance(value, (tuple, list)) and len(value) != len(a):
                raise ValueError(
                    f"{name} has {len(value)} entries for {len(a)} models. Pass one per model, or "
                    "one for all."
                )
    members = _one_by_one(a, b, options)
    _check_count(len(members.records), names)
    return members


def _one_by_one(members: Iterable[Any], inputs: Any, options: dict[str, Any]) -> _Members:
    """Return the records of several models on one input.

    If `members` is an iterator, each model is released before the next one is created. Records
    among the members are returned as they are.
    """
    records: list[AttentionRecord] = []
    names: list[str | None] = []
    models: list[Any] = []
    any_ran = False
    remaining = iter(members)
    while True:
        try:
            member = next(remaining)
        except StopIteration:
            break
        number = len(records)
        names.append(_name_of(member))
        if isinstance(member, AttentionRecord):
            records.append(member)
            models.append(None)
            continue
        if inputs is None:
            raise TypeError(_FORMS)
        model = member() if _is_factory(member) else member
        records.append(_extracted(model, inputs, _spooled(options, number), number))
        any_ran = True
        # Keep no reference to a model of an iterator. Its memory is then free for the next model.
        models.append(None if isinstance(members, Iterator) else member)
        del member, model
    if not any_ran:
        _check_left_out(inputs, options, argument="b")
    if len(records) == 2:
        return _Members(records, ("a", "b"), models)
    folders = [name for name in names if name]
    if len(set(folders)) < len(records):
        folders = [str(number) for number in range(len(records))]
    return _Members(records, tuple(folders), models)


def _is_factory(member: Any) -> bool:
    """Return whether `member` is a function that returns a model."""
    return inspect.isroutine(member) or isinstance(member, functools.partial)


def _name_of(member: Any) -> str | None:
    """Return the last part of a hub id or of a path, or None for a model or record."""
    return PurePath(member).name if isinstance(member, (str, os.PathLike)) else None


def _check_count(count: int, names: Sequence[str] | None) -> None:
    if count < 2:
        raise TypeError(
            f"a is {count} models or records. Pass at least two, compare([model_a, model_b], text)."
        )
    if names is not None and len(names) != count:
        raise ValueError(
            f"names={short_repr(names)} has {len(names)} names for {count} members. Pass one name "
            "per member."
        )


def _shared_parameters(models: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return a note for each model that shares its parameters in memory with the first model.

    PEFT, for example, adds an adapter to the base model itself. The base model and the model with
    the adapter are then the same.
    """
    if not models or not hasattr(models[0], "parameters"):
        return []
    first = {id(parameter) for parameter in models[0].parameters()}
    notes = []
    for model, name in zip(models[1:], names[1:], strict=True):
        own = {id(value) for value in model.parameters()} if hasattr(model, "parameters") else set()
        if first and own and (first <= own or own <= first):
            notes.append(
                f"{names[0]} and {name} have the same parameters in memory, so they cannot differ. "
                "An adapter changes the model into which it is loaded. Extract one record with "
                "the adapter and one inside `with model.disable_adapter()`, and compare the "
                "records."
            )
    return notes


def _check_left_out(c: Any, options: dict[str, Any], argument: str = "c") -> None:
    if c is not None or options:
        arguments = ", ".join([*([argument] if c is not None else []), *options])
        raise TypeError(f"records contain their tokens. Do not pass {arguments}.")


def _extracted(
    model: Any, inputs: Any, options: dict[str, Any], number: int | None
) -> AttentionRecord:
    from attnviz.extraction import extract

    own_options = {
        name: _of_one(name, value, number) if name in ("tokenizer", "processor") else value
        for name, value in options.items()
    }
    record: AttentionRecord | list[AttentionRecord] = extract(model, inputs, **own_options)
    if isinstance(record, AttentionRecord):
        return record
    if len(record) == 1:
        return record[0]
    raise ValueError(
        f"the input has {len(record)} examples, but one example is compared with one. Use "
        "compare(records_a[i], records_b[i])."
    )


@contextmanager
def _folder_of(spool: Any) -> Iterator[None]:
    """Create the folder `spool` if it does not exist.

    If the code in the ``with`` block raises an error, the folder is removed again, unless it
    existed before or contains files.
    """
    folder = Path(spool) if isinstance(spool, (str, os.PathLike)) else None
    created = folder is not None and folder.parent.is_dir() and not folder.exists()
    if folder is not None and created:
        folder.mkdir()
    try:
        yield
    except BaseException:
        if folder is not None and created:
            # If the folder contains records, `rmdir` fails and the folder is kept.
            with suppress(OSError):
                folder.rmdir()
        raise


def _spooled(options: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the options with `spool` replaced by its subfolder for record `number`."""
    folder = options.get("spool")
    if not isinstance(folder, (str, os.PathLike)):
        return options
    return {**options, "spool": Path(folder) / str(number)}


def _of_one(name: str, values: Any, number: int | None) -> Any:
    """Return the value of an option for model `number`.

    `values` is a list with one value per model, or one value for all models. `number` is None if
    one model reads two inputs. A list then raises ValueError.
    """
    if not isinstance(values, (tuple, list)):
        return values
    if number is None:
        raise ValueError(f"{name} is a list, but one model reads both inputs. Pass one {name}.")
    if number >= len(values):
        raise ValueError(
            f"{name} has {len(values)} entries, but there are more models. Pass one per model."
        )
    return values[number]

"""The function `compare`, which aligns records and returns a `Comparison`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path, PurePath
from typing import Any

from attnviz.comparison.common import align_records
from attnviz.comparison.comparison import Comparison
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import short_repr
from attnviz.utils.progress import with_progress

_FORMS = (
    "pass two records, a model and two inputs, or several models and one input: compare(record_a, "
    "record_b), compare(model, text_a, text_b), compare([model_a, model_b], text)"
)


@with_progress
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
        folder or hub id. If one of these parts is unknown or not unique, the default for all
        records is their numbers from 0.
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
        If `a`, `b` and `c` do not have one of the forms above, if there are fewer than two models
        or records, or if options are passed without a model.
    ValueError
        If `names` does not have one unique name per record, if a list of tokenizers or processors
        does not have one entry per model, or if an input has several examples. Also if the records
        have no stack or layer in common, have signed values, or differ in `measure` or `normalized`
        of a stack, or if two texts have no token in common and different numbers of tokens.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> comparison = av.compare(model, "the cat sat", "the dog sat", tokenizer=tokenizer)
    ...                                                                        # doctest: +SKIP
    >>> comparison.distance()                                                  # doctest: +SKIP
    """
    several = isinstance(a, (tuple, list, Iterator))
    members: Any
    inputs: Iterable[Any]
    if several and c is None:
        members, inputs = a, repeat(b)
    elif isinstance(a, AttentionRecord):
        members, inputs = [a, b], repeat(c)
    elif not several and b is not None and c is not None:
        members, inputs = [a, a], [b, c]
    else:
        raise TypeError(_FORMS)
    if not isinstance(members, Iterator):
        for name, value in {"names": names, **options}.items():
            if _is_per_member(name, value) and len(value) != len(members):
                raise ValueError(
                    f"{name} has {len(value)} entries for {len(members)} members. Pass one per "
                    "member."
                )
    records, default_names, models = _records(members, inputs, options)
    all_names = default_names if names is None else tuple(names)
    if len(records) < 2:
        raise TypeError(f"a has {len(records)} models or records. Pass at least two.")
    if isinstance(names, str) or not (len(set(all_names)) == len(all_names) == len(records)):
        raise ValueError(
            f"names={short_repr(names)} must be {len(records)} different strings, one per member"
        )
    if words:
        records = [record.merge_words() for record in records]
    notes = _shared_parameters(models, all_names) if several else []
    common = align_records(records, all_names, notes)
    return Comparison(common, originals=records, names=all_names, is_named=names is not None)


def _is_per_member(name: str, value: Any) -> bool:
    """Whether the value of an argument of `compare` has one entry per member."""
    # A tuple of tokenizers is that of an encoder and that of a decoder.
    kinds = {"names": (tuple, list), "processor": (tuple, list), "tokenizer": (list,)}
    return isinstance(value, kinds.get(name, ()))


def _records(
    members: Iterable[Any], inputs: Iterable[Any], options: Mapping[str, Any]
) -> tuple[list[AttentionRecord], tuple[str, ...], list[Any]]:
    """Return the records of the members, their default names, and their models.

    A member is a model, which runs on its entry of `inputs`, or a record, which is returned
    unchanged. If `members` is an iterator, no reference to a model is kept, so that the memory of
    the model is free before the next model is created. The returned models have None in place of
    such a model, and in place of a record.
    """
    records: list[AttentionRecord] = []
    labels: list[str | None] = []
    models: list[Any] = []
    text, any_ran = None, False
    all_inputs = iter(inputs)
    for member in members:
        text = next(all_inputs)
        is_record = isinstance(member, AttentionRecord)
        labels.append(PurePath(member).name if isinstance(member, (str, os.PathLike)) else None)
        # Keep no reference to a model of an iterator. Its memory must be free for the next model.
        models.append(None if is_record or isinstance(members, Iterator) else member)
        if is_record:
            records.append(member)
        elif text is None:
            raise TypeError(_FORMS)
        else:
            is_factory = inspect.isroutine(member) or isinstance(member, functools.partial)
            model = member() if is_factory else member
            records.append(_extracted(model, text, options, len(records)))
            any_ran = True
            del model
        del member
    if not any_ran and (text is not None or options):
        arguments = ", ".join([*(["the input"] if text is not None else []), *options])
        raise TypeError(f"records contain their tokens. Do not pass {arguments}.")
    names = [label for label in labels if label]
    if len(records) == 2:
        names = ["a", "b"]
    elif len(set(names)) < len(records):
        names = [str(number) for number in range(len(records))]
    return records, tuple(names), models


def _shared_parameters(models: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return a note for each model that has the same parameters in memory as the first model.

    The comparison of such models finds no difference. For example, PEFT adds an adapter to the base
    model itself, so the base model is then the model with the adapter.
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


def _extracted(model: Any, inputs: Any, options: Mapping[str, Any], number: int) -> AttentionRecord:
    """Extract the record of model `number`, with its tokenizer and processor.

    With the option `spool`, the record is written to the subfolder `number` of `spool`. Raise
    ValueError if `inputs` has several examples.
    """
    from attnviz.extraction import extract

    own_options = dict(options)
    for name, value in options.items():
        if _is_per_member(name, value):
            own_options[name] = value[number]
    if options.get("spool") is not None:
        folder = Path(options["spool"])
        folder.mkdir(exist_ok=True)
        own_options["spool"] = folder / str(number)
    record: AttentionRecord | list[AttentionRecord] = extract(model, inputs, **own_options)
    if isinstance(record, AttentionRecord):
        return record
    if len(record) == 1:
        return record[0]
    raise ValueError(
        f"the input has {len(record)} examples, but one example is compared with one. Use "
        "compare(records_a[i], records_b[i])."
    )

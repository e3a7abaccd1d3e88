"""Checks that the records of a corpus belong to one model and contain queries and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import format_numbers

__all__ = [
    "check_alike",
    "checked_records",
    "stacks_with_vectors",
]


def checked_records(records: Any) -> tuple[AttentionRecord, ...]:
    """Return `records` as a tuple.

    Raise TypeError unless `records` is an iterable of records. Raise ValueError if `records` is
    empty or if the records have different model names.
    """
    if isinstance(records, AttentionRecord):
        raise TypeError(
            "records must be a list with one record for each text. Pass [record] for one record."
        )
    if isinstance(records, str | Mapping) or not isinstance(records, Iterable):
        raise TypeError(
            "records must be a list with one AttentionRecord for each text, not "
            f"{type(records).__name__}. For a model and texts, use attnviz.extract_corpus(model, "
            "texts)."
        )
    checked = tuple(records)
    if not checked:
        raise ValueError("records is empty. Pass at least one record.")
    for number, record in enumerate(checked):
        if not isinstance(record, AttentionRecord):
            raise TypeError(
                f"records[{number}] must be an AttentionRecord, not {type(record).__name__}"
            )
        if record.model != checked[0].model:
            raise ValueError(
                f"records[{number}] belongs to {record.model or 'a model without a name'!r} and "
                f"records[0] to {checked[0].model or 'a model without a name'!r}. Make one corpus "
                "for each model."
            )
    return checked


def stacks_with_vectors(
    records: Sequence[AttentionRecord],
) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the stacks that have queries and keys in all records.

    The second result has a note for each other stack, with the reason why the stack is left out.
    Raise ValueError if no stack has queries and keys in all records.
    """
    names = list(dict.fromkeys(name for record in records for name in record.stacks))
    common, notes = [], []
    for name in names:
        without = sum(name not in record.stacks for record in records)
        if without:
            notes.append(
                f"Stack {quote(name)} is left out: {without} of {len(records)} texts do not "
                "have it."
            )
        elif all(record.stacks[name].has_vectors for record in records):
            common.append(name)
        else:
            notes.append(
                f"Stack {quote(name)} is left out: it has weights but no queries and keys."
            )
    if common:
        return tuple(common), notes
    if any(stack.merged for record in records for stack in record.stacks.values()):
        raise ValueError(
            "records are merged into words, which have no queries and keys. Pass the records of "
            "tokens, before merge_words()."
        )
    if all(set(record.stacks) == set(names) for record in records):
        raise ValueError(
            "records contain only weights, but points are queries and keys. Extract them from the "
            "model with attnviz.extract_corpus, or use AttentionRecord.from_qk."
        )
    raise ValueError(
        "records have no stack with queries and keys in common. Their stacks are "
        f"{', '.join(map(repr, names))}. Make one corpus for each kind of text."
    )


def check_alike(stacks: Sequence[AttentionStack], name: str) -> None:
    """Raise ValueError unless all `stacks` have the same layers, numbers of heads and head_dim.

    `stacks` has the stack `name` of each record.
    """
    first = _shape(stacks[0])
    for number, stack in enumerate(stacks):
        shape = _shape(stack)
        if shape == first:
            continue
        layer = next(
            (
                number_of_layer
                for number_of_layer in first
                if shape.get(number_of_layer) != first[number_of_layer]
            ),
            None,
        )
        if layer is None or layer not in shape:
            difference = f"layers {format_numbers(tuple(shape))} and {format_numbers(tuple(first))}"
        else:
            (heads, size), (first_heads, first_size) = shape[layer], first[layer]
            difference = (
                f"layer {layer} has {heads} heads with head_dim {size}, and {first_heads} heads "
                f"with head_dim {first_size}"
            )
        raise ValueError(
            f"records[{number}] and records[0] differ in stack {name!r}: {difference}. Extract all "
            "records from one model with the same layers=."
        )


def _shape(stack: AttentionStack) -> dict[int, tuple[int, int]]:
    """Map each layer to its number of heads and its head_dim, or 0 if it has only weights."""
    shape = {}
    for layer in stack.layers:
        attention = stack.attention(layer)
        size = 0 if attention.vectors is None else attention.vectors.queries.shape[2]
        shape[layer] = attention.num_heads, size
    return shape

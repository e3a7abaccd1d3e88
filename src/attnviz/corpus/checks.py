"""Checks that the records of a corpus belong to one model and contain queries and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import format_named


def listed_records(records: Any) -> tuple[AttentionRecord, ...]:
    """Return `records` as a tuple. Raise an error unless there are records and nothing else."""
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
    listed = tuple(records)
    if not listed:
        raise ValueError("records is empty. Pass at least one record.")
    for number, record in enumerate(listed):
        if not isinstance(record, AttentionRecord):
            raise TypeError(
                f"records[{number}] must be an AttentionRecord, not {type(record).__name__}"
            )
    return listed


def check_alike(records: Sequence[AttentionRecord], stacks: Sequence[str]) -> None:
    """Raise ValueError unless all records have the same model, and equal layers in `stacks`.

    Equal layers have the same number of heads and the same head_dim.
    """
    names = [record.model or "a model without a name" for record in records]
    for number, record in enumerate(records):
        if record.model != records[0].model:
            raise ValueError(
                f"records[{number}] belongs to {names[number]!r} and records[0] to {names[0]!r}. "
                "Make one corpus for each model."
            )
    for stack in stacks:
        shapes = [_shape(record.stacks[stack]) for record in records]
        for number, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"records[{number}] and records[0] differ in stack {stack!r}: {shape}, and "
                    f"{shapes[0]}. Extract all records from one model with the same layers=."
                )


def _shape(stack: AttentionStack) -> str:
    """Describe the layers of a stack: numbers of layers, numbers of heads, and head_dim."""
    shapes: dict[str, list[int]] = {}
    for layer in stack.layers:
        attention = stack.attention(layer)
        size = 0 if attention.vectors is None else attention.vectors.queries.shape[2]
        shapes.setdefault(f"{attention.num_heads} heads with head_dim {size}", []).append(layer)
    return ", ".join(
        f"{format_named('layer', layers)} with {words}" for words, layers in shapes.items()
    )


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

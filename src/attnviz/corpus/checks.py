"""Checks that the records of a corpus belong to one model and contain queries and keys.

A record has the attention of a model in one text. A stack is the attention of one kind, such as
"self" or "cross", in all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import short_repr


def listed_records(records: Any) -> tuple[AttentionRecord, ...]:
    """Return the argument `records`, which is one record or several, as a tuple.

    Raise ValueError if `records` is empty, and TypeError if an item is not a record.
    """
    listed = (records,) if isinstance(records, AttentionRecord) else tuple(records)
    if not listed:
        raise ValueError("records is empty. Pass at least one record.")
    for number, record in enumerate(listed):
        if not isinstance(record, AttentionRecord):
            raise TypeError(
                f"records[{number}] must be an AttentionRecord, not {short_repr(record)}. Make "
                "records from texts with attnviz.extract(model, texts)."
            )
    return listed


def check_alike(records: Sequence[AttentionRecord], stacks: Sequence[str]) -> None:
    """Raise ValueError unless all records have the same model, and the same layers in `stacks`.

    `stacks` has the names of the compared stacks. In each of them, all records must have the same
    layer numbers, and the same number of heads and size of query vectors (head_dim) in each layer.
    Models are compared by name.
    """
    first = records[0]
    for number, record in enumerate(records):
        if record.model != first.model:
            raise ValueError(
                f"records[{number}] belongs to {record.model!r} and records[0] to {first.model!r}. "
                "Make one corpus for each model."
            )
        for stack in stacks:
            if _shapes(record.stacks[stack]) != _shapes(first.stacks[stack]):
                raise ValueError(
                    f"records[{number}] and records[0] differ in the layers, heads or head_dim of "
                    f"stack {stack!r}. Extract all records from one model with the same layers=."
                )


def _shapes(stack: AttentionStack) -> list[tuple[int, int, int]]:
    """Return for each layer its number in the model, its number of heads, and its head_dim.

    The head_dim is 0 for a layer without query vectors.
    """
    layers = [(layer, stack.attention(layer)) for layer in stack.layers]
    return [
        (layer, attention.num_heads, attention.vectors.queries.shape[2] if attention.vectors else 0)
        for layer, attention in layers
    ]


def stacks_with_vectors(
    records: Sequence[AttentionRecord],
) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the stacks that have queries and keys in all records, and notes.

    For each other stack, a note says why it is left out. Raise ValueError if no stack has queries
    and keys in all records.
    """
    common, notes = [], []
    for name in dict.fromkeys(name for record in records for name in record.stacks):
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
    if not common:
        raise ValueError(
            "records have no stack with queries and keys in common, which are the points of a "
            f"corpus. {' '.join(notes)} Extract the records from the model with "
            "attnviz.extract_corpus, or use AttentionRecord.from_qk. Words that merge_words() "
            "merged have no queries and keys."
        )
    return tuple(common), notes

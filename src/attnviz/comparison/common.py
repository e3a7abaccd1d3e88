"""Alignment of several records, which gives their attention matrices the same rows and columns.

A record has the attention of a model for one text. After the alignment, all records also have the
same layers. Rows are queries, and columns are keys. Each row and column is a unit: a group of
neighbouring tokens of the first record and the corresponding tokens of the other records. A unit
can be empty in some records. A stack is the attention of one kind in all layers. Notes are
sentences for the user about differences between the records, such as tokens, stacks, layers or
heads that not all records have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.alignment import Alignment, align_tokens, common_tokens, on_common_units
from attnviz.record.record import AttentionRecord, derive_record
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.record.units import in_units
from attnviz.utils.arguments import format_named, format_numbers
from attnviz.utils.progress import report


@dataclass(frozen=True)
class Sides:
    """Alignments of the queries and of the keys of a stack in two records.

    If queries and keys are the same tokens, both attributes are the same object.
    """

    queries: Alignment
    keys: Alignment


@dataclass(frozen=True)
class Common:
    """Aligned records.

    Attributes
    ----------
    records : tuple of AttentionRecord
        Records with the same stacks and layers, and with units as rows and columns.
    sides : mapping of str to tuple of Sides
        For each stack name, the alignments of the second, third, ... record with the first record.
    notes : tuple of str
        Sentences about differences between the records, see the module docstring.
    """

    records: tuple[AttentionRecord, ...]
    sides: Mapping[str, tuple[Sides, ...]]
    notes: tuple[str, ...]


def align_records(
    records: Sequence[AttentionRecord], names: Sequence[str], first_notes: Sequence[str] = ()
) -> Common:
    """Align all records with the first one.

    `names` has the names of the records in notes and errors. `first_notes` are put before the other
    notes. Raise ValueError if the records have no stack in common. Also raise it if one of the
    common stacks has no common layer, has signed numbers (unless its layers are linear), or differs
    in `measure` or `normalized`.
    Also raise it if, in one of these stacks, a record and the first record have no token in common
    and different numbers of tokens. Special tokens do not count for this.
    """
    common = _common_stacks(records, names)
    notes = dict.fromkeys(first_notes)
    # Names of the stacks that each note is about.
    stack_notes: dict[str, dict[str, None]] = {}
    sides: dict[str, tuple[Sides, ...]] = {}
    stacks_of_records: list[dict[str, AttentionStack]] = [{} for _ in records]
    # With the cache, tokens that are both queries and keys are aligned only once.
    aligned = cache(align_tokens)
    for name in common:
        stacks = [record.stacks[name] for record in records]
        labels = (
            names
            if len(common) == 1
            else [f"{record_name}, stack {name!r}" for record_name in names]
        )
        layers = _common_layers(name, stacks, names)
        queries = _on_common_units(
            [aligned(stacks[0].query_tokens, stack.query_tokens) for stack in stacks[1:]], labels
        )
        keys = _on_common_units(
            [aligned(stacks[0].key_tokens, stack.key_tokens) for stack in stacks[1:]], labels
        )
        one_text = all(stack.key_tokens is stack.query_tokens for stack in stacks)
        sides[name] = tuple(
            Sides(query_alignment, query_alignment if one_text else key_alignment)
            for query_alignment, key_alignment in zip(queries, keys, strict=True)
        )
        for number, (alignments, stack) in enumerate(zip(sides[name], stacks[1:], strict=True), 1):
            pair = (names[0], names[number])
            for note in (
                *_alignment_notes(alignments, pair),
                *_stack_notes(stacks[0], stack, layers, pair),
            ):
                stack_notes.setdefault(note, {})[name] = None
        query_tokens = common_tokens(queries)
        key_tokens = None if one_text else common_tokens(keys)
        sides_of_stack = (query_tokens, key_tokens or query_tokens)
        if any(
            tokens.pictured for tokens in (stacks[0].query_tokens, stacks[0].key_tokens)
        ) and not any(tokens.pictured for tokens in sides_of_stack):
            note = f"{_joined(names)} have different patches of images, so no image is drawn."
            stack_notes.setdefault(note, {})[name] = None
        for number, (stack, aligned_stacks) in enumerate(
            zip(stacks, stacks_of_records, strict=True)
        ):
            aligned_stacks[name] = stack.derive(
                {
                    layer: in_units(
                        stack.attention(layer), _starts(queries, number), _starts(keys, number)
                    )
                    for layer in layers
                },
                query_tokens,
                key_tokens,
            )
    for note, stack_names in stack_notes.items():
        if len(stack_names) == len(common):
            notes[note] = None
        else:
            word = "Stack" if len(stack_names) == 1 else "Stacks"
            notes[f"{word} {_joined([*map(quote, stack_names)])}: {note}"] = None
    for record, record_name in zip(records, names, strict=True):
        lacking = [name for name in record.stacks if name not in common]
        if lacking:
            others = [other for other in names if other != record_name]
            lacks = "lacks" if len(others) == 1 else "lack"
            note = f"{record_name} also has {_listed(lacking)}, which {_joined(others)} {lacks}."
            notes[note] = None
    members = []
    for record, aligned_stacks, name in zip(records, stacks_of_records, names, strict=True):
        model = f"{record.model} ({name})" if record.model else name
        all_notes = list(dict.fromkeys([*record.notes, *notes]))
        members.append(derive_record(record, aligned_stacks, model=model, notes=all_notes))
    return Common(tuple(members), sides, tuple(notes))


def _common_stacks(records: Sequence[AttentionRecord], names: Sequence[str]) -> list[str]:
    """Return the names of the stacks that all records have.

    Raise ValueError if no stack is in all records, or if one of these stacks has signed numbers
    (unless its layers are linear) or differs between the records in `measure` or `normalized`.
    """
    common = [
        name for name in records[0].stacks if all(name in record.stacks for record in records)
    ]
    if not common:
        having = (
            f"{name} has {_listed(record.stacks)}"
            for name, record in zip(names, records, strict=True)
        )
        raise ValueError(f"{_joined(names)} have no stack in common: {', '.join(having)}")
    for name in common:
        stacks = [record.stacks[name] for record in records]
        for stack, record_name in zip(stacks, names, strict=True):
            if stack.signed and not stack.linear:
                raise ValueError(
                    f"stack {name!r} of {record_name} has signed numbers ({stack.measure}), not "
                    "weights. Pass the records from which it was computed."
                )
        if len({stack.measure for stack in stacks}) > 1:
            measures = _listed(dict.fromkeys(stack.measure for stack in stacks))
            raise ValueError(
                f"stack {name!r}: the records have different measures, {measures}. Compare records "
                "with the same measure."
            )
        if len({stack.normalized for stack in stacks}) > 1:
            raise ValueError(
                f"stack {name!r}: the rows sum to 1 in only one of the records. Pass both with the "
                "same normalized=."
            )
    return common


def common_heads(a: AttentionStack, b: AttentionStack, layer: int) -> range:
    """Return the numbers of the heads that a layer has in both stacks `a` and `b`."""
    return range(min(a.num_heads(layer), b.num_heads(layer)))


def compared_heads(a: AttentionStack, b: AttentionStack) -> Iterator[tuple[int, int]]:
    """Yield layer and number of each head that both stacks have, and report the progress."""
    heads = [(layer, head) for layer in a.layers for head in common_heads(a, b, layer)]
    for done, (layer, head) in enumerate(heads, 1):
        yield layer, head
        report("differences", done, len(heads), "head")


def _common_layers(name: str, stacks: Sequence[AttentionStack], names: Sequence[str]) -> list[int]:
    layers = [
        number for number in stacks[0].layers if all(number in stack.layers for stack in stacks)
    ]
    if not layers:
        having = (
            f"{record_name} has {format_numbers(stack.layers)}"
            for record_name, stack in zip(names, stacks, strict=True)
        )
        raise ValueError(f"stack {name!r}: no layer in common: {', '.join(having)}")
    return layers


def _on_common_units(alignments: Sequence[Alignment], names: Sequence[str]) -> list[Alignment]:
    for name, alignment in zip(names[1:], alignments, strict=True):
        ordinary = [
            [position for position, special in enumerate(side.special) if not special]
            for side in (alignment.a, alignment.b)
        ]
        if _have_same(alignment) or not (ordinary[0] and ordinary[1]):
            continue
        if len(ordinary[0]) != len(ordinary[1]):
            raise ValueError(
                f"{names[0]} and {name} have no token in common: {len(ordinary[0]):,} tokens such "
                f"as {alignment.a.text[ordinary[0][0]]!r} and {len(ordinary[1]):,} tokens such as "
                f"{alignment.b.text[ordinary[1][0]]!r}. Compare inputs of one kind that share some "
                "text. With words=True, words are compared in place of tokens."
            )
    return on_common_units(alignments)


def _have_same(alignment: Alignment) -> bool:
    """Return whether the two lists have a token in common, or a unit with the same text in both.

    Special tokens are ignored.
    """
    one, other = (
        {text for text, special in zip(side.text, side.special, strict=True) if not special}
        for side in (alignment.a, alignment.b)
    )
    if not one.isdisjoint(other):
        return True
    starts = alignment.a_ends - alignment.a_lengths
    same = np.flatnonzero(alignment.same & (alignment.a_lengths > 0) & (alignment.b_lengths > 0))
    return any(not alignment.a.special[start] for start in starts[same].tolist())


def _starts(alignments: Sequence[Alignment], number: int) -> NDArray[np.int64]:
    """Return the number of tokens that one text has before each unit, int64, (units,).

    `number` selects the text. 0 is the first text, which is the list `a` of all alignments. Another
    number i is the list `b` of ``alignments[i - 1]``.
    """
    lengths = alignments[0].a_lengths if number == 0 else alignments[number - 1].b_lengths
    return np.cumsum(lengths) - lengths


def _alignment_notes(sides: Sides, names: tuple[str, str]) -> list[str]:
    texts = [sides.queries.describe(names)]
    if sides.keys is not sides.queries:
        texts = [
            f"{side}: {text}" if text else ""
            for side, text in zip(
                ("Queries", "Keys"), (*texts, sides.keys.describe(names)), strict=True
            )
        ]
    if not _have_same(sides.queries):
        texts.append(
            f"No token of {names[0]} is in {names[1]}: tokens are compared by their positions."
        )
    return [text for text in texts if text]


def _stack_notes(
    a: AttentionStack, b: AttentionStack, layers: Sequence[int], names: tuple[str, str]
) -> list[str]:
    notes = []
    for one, other, name in ((a, b, names[0]), (b, a, names[1])):
        rest = [number for number in one.layers if number not in other.layers]
        if rest:
            notes.append(f"Only {name} has {format_named('layer', rest)}.")
    for number in layers:
        num_a, num_b = (stack.attention(number).num_heads for stack in (a, b))
        if num_a != num_b:
            notes.append(
                f"Layer {number} has {num_a} heads in {names[0]} and {num_b} in {names[1]}: heads "
                "are compared by their numbers."
            )
            break
    if a.has_vectors != b.has_vectors and a.merged == b.merged:
        without = names[1] if a.has_vectors else names[0]
        notes.append(
            f"{without} has weights without queries and keys, so that the effect of rounding "
            "cannot be estimated."
        )
    if a.merged != b.merged:
        has, lacks = names if a.merged else names[::-1]
        notes.append(
            f"{has} has words and {lacks} has tokens, which are merged into the same words."
        )
    return notes


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]

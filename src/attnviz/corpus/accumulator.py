"""Accumulator of head statistics: texts are added one by one, and their measurements are summed.

`HeadStatistics.add`, `head_statistics` in this process and the actors of Ray add texts with an
`Accumulator`. It has sums over texts (`Totals`) and keeps no records (a record has the attention in
one text). Sums that another accumulator has computed are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import one_text
from attnviz.analysis.measures import TokenFacts
from attnviz.corpus.columns import category_codes, checked_entry, is_missing
from attnviz.corpus.measuring import StackText, can_measure_together, measure_stacks
from attnviz.corpus.parses import pairs_of_relations
from attnviz.corpus.texts import named_error, note_on_some_texts
from attnviz.corpus.totals import KIND, Settings, Totals, join_ranges, totals_of_texts
from attnviz.record.notes import NoteKind, of_kind
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import as_shares, require_weights
from attnviz.record.token_kinds import KINDS
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.arguments import short_repr, whole_number


@dataclass(frozen=True)
class _CheckedText:
    """Record of a text whose columns and parse were checked.

    Attributes
    ----------
    record : AttentionRecord
        The record.
    number : int
        Index of the text.
    num_tokens : int
        Number of tokens of the text. If `stacks` have several token sequences, such as those of an
        encoder and a decoder, it is the sum of their lengths.
    stacks : dict of str to StackText
        The stacks that are measured, by name. Stacks of linear layers have shares (`as_shares`).
    """

    record: AttentionRecord
    number: int
    num_tokens: int
    stacks: dict[str, StackText]


class Accumulator:
    """Sums over texts, to which texts and other sums are added.

    Successive texts are measured as one group if possible, which is faster for short texts.
    Therefore the last texts that were added are in `totals` only after a call of `result`.

    Parameters
    ----------
    totals : Totals
        Sums to which the texts are added, for example a `Totals` without texts. Its settings say
        how the texts are measured.
    argument : str
        Name of the argument that has the texts, such as "texts". An error about a text then begins
        with ``texts[3]: ``. If it is "", errors do not name the text.
    """

    def __init__(self, totals: Totals, argument: str = "") -> None:
        self.totals, self._argument = totals, argument
        self._group: list[_CheckedText] = []

    def add(
        self, record: Any, text: Any, columns: Mapping[str, Any] | None = None, parse: Any = None
    ) -> None:
        """Add the record of a text. The arguments are those of `HeadStatistics.add`."""
        with self._named_errors(text):
            added = _checked_text(self.totals.settings, record, text, columns, parse)
        if self._group and not _can_measure_together([*self._group, added]):
            self.result()
        self._group.append(added)

    def skip(self, text: Any, reason: str) -> None:
        """Count a text that was left out. The arguments are those of `HeadStatistics.skip`."""
        if reason not in ("empty", "too long"):
            raise ValueError(f'why={short_repr(reason)} must be "empty" or "too long"')
        number = whole_number("text", text, 0, 2**62)
        empty = int(reason == "empty")
        ranges = ((number, number + 1),)
        settings = self.totals.settings
        self.merge(Totals(settings, texts=ranges, empty=empty, too_long=1 - empty))

    def merge(self, totals: Totals) -> None:
        """Add sums over other texts (`Totals.plus`)."""
        self.totals = self.totals.plus(totals)

    def result(self) -> Totals:
        """Return the sums over all texts that were added.

        If a text causes an error, all other texts of its group that precede it are added.
        """
        texts, self._group = self._group, []
        if not texts:
            return self.totals
        try:
            self.merge(_measured(self.totals, texts))
        except (TypeError, ValueError):
            # The error does not say which text caused it, and no text was added. Add each text
            # alone: the text that causes the error raises it again, now with its index.
            for text in texts:
                with self._named_errors(text.number):
                    self.merge(_measured(self.totals, [text]))
        return self.totals

    @contextmanager
    def _named_errors(self, text: Any) -> Iterator[None]:
        """Context manager that puts the name of a text before a TypeError or ValueError."""
        try:
            yield
        except (TypeError, ValueError) as error:
            if not self._argument:
                raise
            raise named_error(error, f"{self._argument}[{text}]") from error


def _can_measure_together(texts: Sequence[_CheckedText]) -> bool:
    """Whether the texts have the same model and stacks, which can be measured together."""
    first = texts[0]
    return all(
        text.record.model == first.record.model and text.stacks.keys() == first.stacks.keys()
        for text in texts
    ) and all(can_measure_together([text.stacks[name] for text in texts]) for name in first.stacks)


def _measured(before: Totals, texts: Sequence[_CheckedText]) -> Totals:
    """Return the totals of one text, or of several that `_can_measure_together`.

    `before` are the totals to which the result is added. Edges that they would not keep are left
    out.
    """
    stacks = {}
    for name, first in texts[0].stacks.items():
        of_stack = [text.stacks[name] for text in texts]
        min_orders = before.min_orders(name, sum(first.stack.heads_per_layer))
        numbers = measure_stacks(of_stack, seed=before.settings.seed, min_orders=min_orders)
        stacks[name] = totals_of_texts(numbers, of_stack)
    # The notes without a kind say how to read a record.
    kinds: tuple[NoteKind, ...] = ("part of a text", "not shown", "no outputs")
    remarks = [
        note_on_some_texts(note) for text in texts for note in of_kind(text.record.notes, *kinds)
    ]
    remarks += [
        f"The numbers of stack {quote(name)} are shares of the absolute weights of a query, "
        "because its layers are linear. Do not compare them with those of softmax layers."
        for name, stack in stacks.items()
        if stack.linear
    ]
    return Totals(
        before.settings,
        texts[0].record.model or before.model,
        texts=join_ranges([(text.number, text.number + 1) for text in texts], []),
        tokens=sum(text.num_tokens for text in texts),
        remarks=tuple(dict.fromkeys(remarks)),
        stacks=stacks,
    )


def _checked_text(
    settings: Settings, record: Any, text: Any, columns: Mapping[str, Any] | None, parse: Any
) -> _CheckedText:
    if not isinstance(record, AttentionRecord):
        raise TypeError(f"record must be an AttentionRecord, not {type(record).__name__}")
    number = whole_number("text", text, 0, 2**62)
    given = dict(columns or {})
    unknown = sorted(set(given) - set(settings.columns))
    if unknown:
        raise ValueError(
            f"columns: {unknown[0]!r} is not one of the columns of these statistics, "
            f"{short_repr(list(settings.columns))}. Pass all names to HeadStatistics(columns=...)."
        )
    stacks = {name: as_shares(stack) for name, stack in record.stacks.items() if not stack.ranks}
    sides = {
        id(tokens): tokens
        for stack in stacks.values()
        for tokens in (stack.query_tokens, stack.key_tokens)
    }
    counts = {len(tokens) for tokens in sides.values()}
    values = {name: checked_entry(name, entry, counts) for name, entry in given.items()}
    facts = {side: _token_facts(settings, tokens, values) for side, tokens in sides.items()}
    texts = {}
    for name, stack in stacks.items():
        require_weights(stack, "statistics of heads")
        has_relations = parse is not None and one_text(stack)
        relations = pairs_of_relations(parse, stack.query_tokens) if has_relations else {}
        queries, keys = facts[id(stack.query_tokens)], facts[id(stack.key_tokens)]
        texts[name] = StackText(stack, queries, keys, number, relations)
    return _CheckedText(record, number, sum(map(len, sides.values())), texts)


def _token_facts(
    settings: Settings, tokens: Tokens, values_by_column: Mapping[str, Any]
) -> TokenFacts:
    classes: dict[str, NDArray[np.int64]] = {}
    names: dict[str, tuple[str, ...]] = {KIND: KINDS}
    facts = TokenFacts(tokens, classes, names, settings.frequencies)
    classes[KIND] = facts.kinds.astype(np.int64)
    for column in settings.columns:
        entry = values_by_column.get(column)
        values = entry if isinstance(entry, list) else [entry] * len(tokens)
        if len(values) != len(tokens):
            values = [None] * len(tokens)
        known = [None if value == "" else _checked_class(column, value) for value in values]
        codes, names[column] = category_codes(known)
        classes[column] = codes.astype(np.int64)
    return facts


def _checked_class(column: str, value: Any) -> Any:
    if is_missing(value) or isinstance(value, str | bool | int | np.integer | np.bool_):
        return value
    raise TypeError(
        f"columns[{column!r}]: a class must be a string or a whole number, not "
        f"{short_repr(value)}. Convert numbers to classes first, such as 'short' and 'long'."
    )

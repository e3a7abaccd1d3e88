"""Alignment of two texts: their common units.

A unit consists of neighbouring tokens of the first text (a) and of the second (b). There are four
kinds:

* the same token in both;
* one token in place of another (``he`` and ``she``), if the texts differ;
* several tokens that spell the same piece of text, if the tokenizers differ;
* a token that only one text has: the unit is empty on the other side.

Every token of both texts is in exactly one unit, in order.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from attnviz.record.tokens import Tokens

__all__ = ["Alignment", "align_tokens", "common_tokens", "on_common_units"]

Positions = NDArray[np.int64]

# First limit of the edit distance. It doubles until the distance is found.
_FEW_CHANGES = 32

# Signs for white space in display texts, written by `visible`.
_SPACES = str.maketrans("", "", "·⏎⇥∅")


@dataclass(frozen=True)
class Alignment:
    """Alignment of two token lists, by units of neighbouring tokens that correspond.

    Attributes
    ----------
    a, b : Tokens
        The two lists.
    a_ends, b_ends : ndarray
        int64, (units,): the end of each unit's tokens in each list. A unit starts at the end of the
        previous unit. A unit is empty in a list if the two ends are equal.

    Raises
    ------
    ValueError
        If the units do not contain all tokens.

    Examples
    --------
    >>> import attnviz as av
    >>> a = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["he", " sat"])
    >>> b = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.2, 0.8]]]], ["she", " sat"])
    >>> queries, keys = av.compare(a, b).alignment()
    >>> queries.text, queries.replaced.tolist()
    (('he→she', '·sat'), [True, False])
    """

    a: Tokens
    b: Tokens
    a_ends: Positions
    b_ends: Positions

    def __post_init__(self) -> None:
        """Raise ValueError if units do not contain all tokens."""
        for name, ends, tokens in (("a", self.a_ends, self.a), ("b", self.b_ends, self.b)):
            ascending = len(ends) and not (np.diff(ends, prepend=0) < 0).any()
            if not ascending or ends[-1] != len(tokens):
                raise ValueError(f"{name}_ends must ascend to {len(tokens)}, the number of tokens")
        if len(self.a_ends) != len(self.b_ends):
            raise ValueError("a_ends and b_ends must have an entry for each unit")

    def __len__(self) -> int:
        return len(self.a_ends)

    @cached_property
    def a_lengths(self) -> Positions:
        """Number of tokens of a in each unit, int64, (units,)."""
        return np.diff(self.a_ends, prepend=0)

    @cached_property
    def b_lengths(self) -> Positions:
        """Number of tokens of b in each unit, int64, (units,)."""
        return np.diff(self.b_ends, prepend=0)

    @property
    def only_a(self) -> NDArray[np.bool_]:
        """Whether each unit has no token of list `b`, bool, (units,)."""
        return np.equal(self.b_lengths, 0)

    @property
    def only_b(self) -> NDArray[np.bool_]:
        """Whether each unit has no token of list `a`, bool, (units,)."""
        return np.equal(self.a_lengths, 0)

    @cached_property
    def same(self) -> NDArray[np.bool_]:
        """Whether each unit has the same text in both lists, bool, (units,)."""
        return np.array([_spelled(a) == _spelled(b) for a, b in self._pairs()], np.bool_)

    @property
    def replaced(self) -> NDArray[np.bool_]:
        """Whether each unit is in both lists with different texts, bool, (units,)."""
        return ~(self.only_a | self.only_b | self.same)

    @cached_property
    def identical(self) -> bool:
        """Whether the two lists have the same tokens, one to one."""
        return bool(self.same.all() and (self.a_lengths == 1).all() and (self.b_lengths == 1).all())

    @cached_property
    def text(self) -> tuple[str, ...]:
        """Label of each unit: ``it``, ``he→she``, ``−very`` (only in a), ``+very`` (only in b)."""
        labels = []
        for (a, b), same in zip(self._pairs(), self.same, strict=True):
            before, after = _label(a), _label(b)
            if not a and not b:
                # The unit is empty in both lists, because only a third list has it.
                labels.append("")
            elif not b:
                labels.append(f"−{before}")
            elif not a:
                labels.append(f"+{after}")
            else:
                labels.append(max(before, after, key=len) if same else f"{before}→{after}")
        return tuple(labels)

    def own_text(self, of: int) -> tuple[str, ...]:
        """Return the text of each unit in one of the two lists.

        Parameters
        ----------
        of : int
            0 for `a`, 1 for `b`.

        Returns
        -------
        tuple of str
            One text per unit, or an empty string if the list has no token in the unit.
        """
        return tuple(_label(pair[of]) for pair in self._pairs())

    def _pairs(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        a_start = b_start = 0
        for a_end, b_end in zip(self.a_ends.tolist(), self.b_ends.tolist(), strict=True):
            yield self.a.text[a_start:a_end], self.b.text[b_start:b_end]
            a_start, b_start = a_end, b_end

    def describe(self, names: tuple[str, str] = ("a", "b")) -> str:
        """Describe the differences of the two lists in one sentence.

        Parameters
        ----------
        names : pair of str
            Names of the two lists.

        Returns
        -------
        str
            Empty if the texts do not differ.

        Examples
        --------
        >>> a = Tokens.of(["he", " was", " tired"])
        >>> align_tokens(a, Tokens.of(["she", " was", " very", " tired"])).describe()
        '1 token is replaced by another; 1 token of b is not in a.'
        """
        parts = []
        replaced = int(self.replaced.sum())
        if replaced:
            parts.append(f"{_tokens(replaced)} replaced by another")
        grouped = int((self.same & ((self.a_lengths > 1) | (self.b_lengths > 1))).sum())
        if grouped:
            parts.append(
                f"{grouped} {'units are' if grouped > 1 else 'unit is'} several tokens in one of "
                "them: their keys are summed, and their queries averaged"
            )
        for lengths, missing, has, lacks in (
            (self.a_lengths, self.only_a, *names),
            (self.b_lengths, self.only_b, *names[::-1]),
        ):
            count = int(lengths[missing].sum())
            if count:
                parts.append(f"{_tokens(count, f'of {has} ')} not in {lacks}")
        return "; ".join(parts) + "." if parts else ""


def _label(parts: Sequence[str]) -> str:
    """Return the text of several tokens."""
    return "".join([*parts[:1], *map(_inside, parts[1:])])


def _inside(part: str) -> str:
    return part[2:] if part.startswith("##") and len(part) > 2 else part


def _tokens(count: int, of: str = "") -> str:
    return f"{count:,} token {of}is" if count == 1 else f"{count:,} tokens {of}are"


def align_tokens(a: Tokens, b: Tokens) -> Alignment:
    """Align two token lists.

    The same text under two tokenizers is aligned by its characters: a unit ends where a token of
    both lists ends. Different texts are aligned by their edit distance, the minimum number of
    inserted, deleted and replaced tokens (Levenshtein 1966).

    Parameters
    ----------
    a, b : Tokens
        The two lists. Tokens are compared by their display texts. Special tokens only match special
        tokens.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> align_tokens(Tokens.of(["he", " sat"]), Tokens.of(["she", " sat"])).text
    ('he→she', '·sat')
    >>> align_tokens(Tokens.of(["un", "do", " it"]), Tokens.of(["undo", " it"])).text
    ('undo', '·it')
    """
    if not len(a) or not len(b):
        raise ValueError("a and b must each have at least one token")
    if (a.text, a.special) == (b.text, b.special):
        ends = np.arange(1, len(a) + 1)
        return Alignment(a, b, ends, ends)
    pairs = _by_characters(a, b)
    if pairs is None:
        pairs = _by_changes(_codes(a), _codes(b))
    ends = np.array(pairs, np.int64)
    return Alignment(a, b, ends[:, 0].copy(), ends[:, 1].copy())


def _codes(tokens: Tokens, part: slice = slice(None)) -> list[tuple[str, bool]]:
    return list(zip(tokens.text[part], tokens.special[part], strict=True))


def _by_changes(
    a: Sequence[object], b: Sequence[object], at: tuple[int, int] = (0, 0)
) -> list[tuple[int, int]]:
    """Return the ends of units with the minimum edit distance. Both lists start at `at`."""
    ends = []
    # With the hint, the time depends on the number of differences instead of the squared length.
    for change in Levenshtein.opcodes(a, b, score_hint=_FEW_CHANGES):
        count = max(change.src_end - change.src_start, change.dest_end - change.dest_start)
        ends += [
            (
                at[0] + min(change.src_start + step, change.src_end),
                at[1] + min(change.dest_start + step, change.dest_end),
            )
            for step in range(1, count + 1)
        ]
    return ends


def _by_characters(a: Tokens, b: Tokens) -> list[tuple[int, int]] | None:
    """Return the ends of units if both lists spell the same text, or None."""
    a_runs, b_runs = _runs(a), _runs(b)
    texts = [[run for run in runs if not run[0]] for runs in (a_runs, b_runs)]
    if len(texts[0]) != len(texts[1]) or not texts[0]:
        return None
    spelled = [
        [[_spelled([text]) for text in tokens.text[part]] for _, part in runs]
        for tokens, runs in zip((a, b), texts, strict=True)
    ]
    if any("".join(one) != "".join(two) for one, two in zip(*spelled, strict=True)):
        return None
    ends: list[tuple[int, int]] = []
    at = (0, 0)
    for number, ((_, part_a), (_, part_b)) in enumerate(zip(*texts, strict=True)):
        # Special tokens before this text.
        ends += _by_changes(
            _codes(a, slice(at[0], part_a.start)), _codes(b, slice(at[1], part_b.start)), at
        )
        a_ends, b_ends = (np.cumsum([len(text) for text in side[number]]) for side in spelled)
        for end in np.intersect1d(a_ends, b_ends):
            # Tokens that spell nothing belong to the unit before them.
            ends.append(
                (
                    part_a.start + int(np.searchsorted(a_ends, end, side="right")),
                    part_b.start + int(np.searchsorted(b_ends, end, side="right")),
                )
            )
        at = (part_a.stop, part_b.stop)
    ends += _by_changes(_codes(a, slice(at[0], len(a))), _codes(b, slice(at[1], len(b))), at)
    return ends


def _runs(tokens: Tokens) -> list[tuple[bool, slice]]:
    """Return runs of special tokens and of other tokens, with whether they are special."""
    runs: list[tuple[bool, slice]] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or tokens.special[end] != tokens.special[start]:
            runs.append((tokens.special[start], slice(start, end)))
            start = end
    return runs


def _spelled(parts: Sequence[str]) -> str:
    """Return the letters of tokens, without white space, subword signs, accents and case."""
    text = "".join(map(_inside, parts)).translate(_SPACES)
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def on_common_units(alignments: Sequence[Alignment]) -> list[Alignment]:
    """Return alignments of several texts with the same text (a) on common units.

    A unit ends where the units of all alignments end. Tokens that several texts insert between the
    same two tokens of a share units. An alignment can have units that are empty on both sides,
    which only a third text has.

    >>> a = Tokens.of(["he", " sat"])
    >>> others = [["he", " sat", " down"], ["she", " sat"]]
    >>> aligned = on_common_units([align_tokens(a, Tokens.of(text)) for text in others])
    >>> [alignment.text for alignment in aligned]
    [('he', '·sat', '+·down'), ('he→she', '·sat', '')]
    """
    if len(alignments) == 1 or all(alignment.identical for alignment in alignments):
        return list(alignments)
    ends = [np.unique(alignment.a_ends[alignment.a_lengths > 0]) for alignment in alignments]
    common = ends[0]
    for other in ends[1:]:
        common = np.intersect1d(common, other)
    # For each text, the end of the tokens that belong to those of a, and the ends of later tokens.
    units: list[tuple[int, ...]] = []
    before = 0
    for position in (0, *common.tolist()):
        inserted = []
        for alignment in alignments:
            # Units at this end of a: the unit that ends here, then units of b alone.
            start, stop = np.searchsorted(alignment.a_ends, [position, position + 1])
            own = start + int(position > 0 and start < stop and alignment.a_lengths[start] > 0)
            inserted.append((alignment.b_ends[own - 1] if own else 0, alignment.b_ends[own:stop]))
        if position:
            units.append((position, *(int(end) for end, _ in inserted)))
        before = position
        longest = max(len(more) for _, more in inserted)
        units.extend(
            (
                before,
                *(
                    int(more[min(step, len(more) - 1)]) if len(more) else int(end)
                    for end, more in inserted
                ),
            )
            for step in range(longest)
        )
    ends_by_text = np.array(units, np.int64)
    return [
        Alignment(
            alignment.a, alignment.b, ends_by_text[:, 0].copy(), ends_by_text[:, 1 + number].copy()
        )
        for number, alignment in enumerate(alignments)
    ]


def common_tokens(alignments: Sequence[Alignment]) -> Tokens:
    """Return one token for each unit of `alignments`, whose lists `a` are the same.

    If every list `b` is identical to `a`, return the tokens of `a` without predictions.
    """
    first = alignments[0]
    if all(alignment.identical for alignment in alignments):
        return replace(first.a, predictions=())
    special, sequence, labels = [], [], []
    texts = [alignment.text for alignment in alignments]
    for unit in range(len(first)):
        # The first text with this unit.
        has = next((alignment for alignment in alignments if not alignment.only_b[unit]), None)
        side = "a" if has is not None else "b"
        if has is None:
            has = next(alignment for alignment in alignments if not alignment.only_a[unit])
        tokens, ends, lengths = (
            (has.a, has.a_ends, has.a_lengths)
            if side == "a"
            else (has.b, has.b_ends, has.b_lengths)
        )
        start = int(ends[unit] - lengths[unit])
        special.append(tokens.special[start])
        sequence.append(tokens.sequence[start])
        labels.append(_shared_label([text[unit] for text in texts], alignments, unit))
    return Tokens(text=tuple(labels), special=tuple(special), sequence=tuple(sequence))


def _shared_label(labels: Sequence[str], alignments: Sequence[Alignment], unit: int) -> str:
    """Join the labels of a unit in all alignments, such as ``he→she/it`` for three texts."""
    changed = [
        label
        for label, alignment in zip(labels, alignments, strict=True)
        if label and not alignment.same[unit]
    ]
    if not changed:
        return max(labels, key=len)
    first, *rest = dict.fromkeys(changed)
    others = [label.split("→", 1)[-1] for label in rest]
    if first.startswith("+"):
        others = [label.removeprefix("+") for label in others]
    return "/".join([first, *others])

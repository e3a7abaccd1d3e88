"""Alignment of two texts, as a list of units.

A unit has neighbouring tokens of the first text (a) and the corresponding tokens of the second text
(b). `align_tokens` creates the following units:

* one token that is the same in both texts;
* one token of a and the token of b that replaces it, such as ``he`` and ``she``;
* tokens of a and tokens of b that spell the same characters, if the tokenizers differ;
* one token of only one of the texts. The unit is then empty in the other text.

Every token of both texts is in exactly one unit. The units are in the order of the texts. If
several texts are aligned with one text a, `on_common_units` gives all of their alignments the same
units. A unit can then be empty in a and in one of the other texts, because only a third text has
tokens in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens
from attnviz.record.words import spell

Positions = NDArray[np.int64]

# Upper limit of the edit distance in the first search by rapidfuzz. If the distance is larger,
# rapidfuzz searches again with twice the limit.
_FEW_CHANGES = 32


@dataclass(frozen=True)
class Alignment:
    """Alignment of two token lists, as a list of units.

    A unit has neighbouring tokens of the first list and the corresponding tokens of the second.

    Attributes
    ----------
    a, b : Tokens
        The two lists.
    a_ends, b_ends : ndarray
        For each unit, the position after its last token in list `a` or `b`, int64, (units,). A unit
        starts at the end of the previous unit. A unit that ends where it starts is empty in the
        list.

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

    def __len__(self) -> int:
        return len(self.a_ends)

    @cached_property
    def a_lengths(self) -> Positions:
        """Number of tokens of list `a` in each unit, int64, (units,)."""
        return np.diff(self.a_ends, prepend=0)

    @cached_property
    def b_lengths(self) -> Positions:
        """Number of tokens of list `b` in each unit, int64, (units,)."""
        return np.diff(self.b_ends, prepend=0)

    @property
    def only_a(self) -> NDArray[np.bool_]:
        """Whether each unit has no token of list `b`, bool, (units,).

        This includes units that are empty in both lists.
        """
        return np.equal(self.b_lengths, 0)

    @property
    def only_b(self) -> NDArray[np.bool_]:
        """Whether each unit has no token of list `a`, bool, (units,).

        This includes units that are empty in both lists.
        """
        return np.equal(self.a_lengths, 0)

    @cached_property
    def same(self) -> NDArray[np.bool_]:
        """Whether each unit has the same text in both lists, bool, (units,).

        Case, accents, white space and the continuation mark ``##`` of tokens are ignored. A unit
        that is empty in both lists counts as the same text.
        """
        return np.array([_spelled(a) == _spelled(b) for a, b in self._pairs()], np.bool_)

    @property
    def replaced(self) -> NDArray[np.bool_]:
        """Whether each unit has tokens of both lists, with different texts, bool, (units,)."""
        return ~(self.only_a | self.only_b | self.same)

    @cached_property
    def identical(self) -> bool:
        """Whether all units have exactly one token of each list and are `same`."""
        return bool(self.same.all() and (self.a_lengths == 1).all() and (self.b_lengths == 1).all())

    @cached_property
    def text(self) -> tuple[str, ...]:
        """Label of each unit.

        Examples are ``it`` (in both lists), ``he→she`` (replaced), ``−very`` (only in `a`) and
        ``+very`` (only in `b`). The label is empty if the unit is empty in both lists.
        """
        labels = []
        for (a, b), same in zip(self._pairs(), self.same, strict=True):
            before, after = _label(a), _label(b)
            if not a and not b:
                # `on_common_units` makes such units for tokens that only a third text has.
                labels.append("")
            elif not b:
                labels.append(f"−{before}")
            elif not a:
                labels.append(f"+{after}")
            else:
                labels.append(max(before, after, key=len) if same else f"{before}→{after}")
        return tuple(labels)

    def own_text(self, of: int) -> tuple[str, ...]:
        """Return the text that each unit has in one of the two lists.

        Parameters
        ----------
        of : int
            0 for the list `a`, 1 for the list `b`.

        Returns
        -------
        tuple of str
            One text per unit. The text is empty if the unit has no token of this list.
        """
        return tuple(_label(pair[of]) for pair in self._pairs())

    def _pairs(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        a_start = b_start = 0
        for a_end, b_end in zip(self.a_ends.tolist(), self.b_ends.tolist(), strict=True):
            yield self.a.text[a_start:a_end], self.b.text[b_start:b_end]
            a_start, b_start = a_end, b_end

    def describe(self, names: tuple[str, str] = ("a", "b")) -> str:
        """Return a sentence that describes the differences between the two lists.

        Parameters
        ----------
        names : pair of str
            Names of the two lists in the sentence.

        Returns
        -------
        str
            The sentence. It is empty if each unit has exactly one token of each list, with the same
            text. Units that are empty in both lists (see the module docstring) do not count.

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
    """Join the texts of tokens, without ``##`` at the start of the second and later tokens."""
    return "".join([*parts[:1], *map(_inside, parts[1:])])


def _inside(part: str) -> str:
    return part[2:] if part.startswith("##") and len(part) > 2 else part


def _tokens(count: int, of: str = "") -> str:
    return f"{count:,} token {of}is" if count == 1 else f"{count:,} tokens {of}are"


def align_tokens(a: Tokens, b: Tokens) -> Alignment:
    """Align two token lists.

    Special tokens split each list into texts. If both lists have the same texts (ignoring case,
    accents and white space), these are aligned by characters: a unit ends at each character at
    which a token ends in both lists. All other tokens are aligned by edit distance: the alignment
    has the minimum number of inserted, deleted and replaced tokens (Levenshtein 1966).

    Parameters
    ----------
    a, b : Tokens
        The two lists, each with at least one token. For the edit distance, two tokens are equal if
        they have the same text and are either both special or both not special.

    Returns
    -------
    Alignment

    Raises
    ------
    ValueError
        If a list has no token.

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
    """Return the ends of the units for the minimum edit distance, as pairs (end in a, end in b).

    `a` and `b` are parts of the two lists. `at` has the positions at which these parts start in the
    lists. The returned ends are positions in the complete lists.
    """
    ends = []
    # With the hint, the time is proportional to the length of the lists times the number of
    # differences. Without it, the time grows with the squared length.
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
    """Return the ends of the units, as pairs (end in a, end in b), if both lists spell the same.

    Special tokens split each list into texts. Both lists must have the same number of texts, at
    least one, and each text must have the same characters (`_spelled`) in both lists. Otherwise
    return None. The special tokens themselves are aligned by edit distance.
    """
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
        # Align the special tokens before this text.
        ends += _by_changes(
            _codes(a, slice(at[0], part_a.start)), _codes(b, slice(at[1], part_b.start)), at
        )
        a_ends, b_ends = (np.cumsum([len(text) for text in side[number]]) for side in spelled)
        for end in np.intersect1d(a_ends, b_ends):
            # With side="right", tokens without characters are added to the unit before them.
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
    """Split tokens into the longest possible runs of only special or only other tokens.

    Return for each run whether its tokens are special, and the slice of their positions.
    """
    runs, start = [], 0
    for special, run in groupby(tokens.special):
        stop = start + len(list(run))
        runs.append((special, slice(start, stop)))
        start = stop
    return runs


def _spelled(parts: Sequence[str]) -> str:
    """Join the characters of tokens in lower case, without white space, ``##`` and accents."""
    return spell("".join(map(_inside, parts)))


def on_common_units(alignments: Sequence[Alignment]) -> list[Alignment]:
    """Return `alignments`, changed so that all of them have the same units.

    All alignments have the same list `a`, the first text. Each list `b` is another text. In the
    result, a unit ends at a token of `a` only if a unit ends there in all `alignments`. If several
    texts insert tokens between the same two tokens of `a`, the first inserted tokens of all texts
    are in one unit, the second inserted tokens in the next unit, and so on. Such a unit is empty in
    `a`, and in the texts that insert fewer tokens.

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
    # Each entry has the ends of one unit: in `a`, then in each other text.
    units: list[tuple[int, ...]] = []
    for position in (0, *common.tolist()):
        # The list of a text `b` begins with the end in `b` of the unit that ends at `position` in
        # `a` (0 for position 0, where no unit ends). Then it has the ends of the units after it
        # that have tokens of only `b`.
        ends_in_texts = []
        for alignment in alignments:
            start, stop = np.searchsorted(alignment.a_ends, [position, position + 1])
            own = start + int(position > 0 and start < stop and alignment.a_lengths[start] > 0)
            end = alignment.b_ends[own - 1] if own else 0
            ends_in_texts.append([end, *alignment.b_ends[own:stop]])
        units += [
            (position, *(ends[min(step, len(ends) - 1)] for ends in ends_in_texts))
            for step in range(0 if position else 1, max(map(len, ends_in_texts)))
        ]
    ends_by_text = np.array(units, np.int64)
    return [
        Alignment(
            alignment.a, alignment.b, ends_by_text[:, 0].copy(), ends_by_text[:, 1 + number].copy()
        )
        for number, alignment in enumerate(alignments)
    ]


def common_tokens(alignments: Sequence[Alignment]) -> Tokens:
    """Return one token for each unit of alignments that have the same units and the same list `a`.

    The text of the token is a label that combines the labels of the unit in all alignments. If all
    alignments are `identical`, the tokens of `a` are returned, without `Tokens.predictions`.
    """
    first = alignments[0]
    if all(alignment.identical for alignment in alignments):
        return replace(first.a, predictions=(), grids=_common_grids(alignments))
    special, sequence, labels = [], [], []
    texts = [alignment.text for alignment in alignments]
    lists = [(first.a, first.a_ends, first.a_lengths)]
    lists += [(alignment.b, alignment.b_ends, alignment.b_lengths) for alignment in alignments]
    for unit in range(len(first)):
        # Use the first list that has tokens in this unit.
        tokens, ends, lengths = next(entry for entry in lists if entry[2][unit] > 0)
        start = int(ends[unit] - lengths[unit])
        special.append(tokens.special[start])
        sequence.append(tokens.sequence[start])
        labels.append(_shared_label([text[unit] for text in texts], alignments, unit))
    return Tokens(
        text=tuple(labels),
        special=tuple(special),
        sequence=tuple(sequence),
        grids=_common_grids(alignments),
    )


def _common_grids(alignments: Sequence[Alignment]) -> tuple[PatchGrid, ...]:
    """Return the grids whose tokens have the same places in all lists, one token in each unit."""
    first = alignments[0]
    grids = []
    for grid in first.a.grids:
        unit = int(np.searchsorted(first.a_ends, grid.start, side="right"))
        units = slice(unit, unit + grid.stop - grid.start)
        lengths = [first.a_lengths, *(alignment.b_lengths for alignment in alignments)]
        is_single = all((length[units] == 1).all() for length in lengths)
        if is_single and all(
            replace(grid, start=int(alignment.b_ends[unit]) - 1) in alignment.b.grids
            for alignment in alignments
        ):
            grids.append(replace(grid, start=unit))
    return tuple(grids)


def _shared_label(labels: Sequence[str], alignments: Sequence[Alignment], unit: int) -> str:
    """Return one label for a unit from its labels in all alignments.

    Labels of replaced, inserted or missing tokens are joined. For example, ``he→she`` and ``he→it``
    become ``he→she/it``. If the unit has the same text in all lists, the longest label is returned.
    """
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

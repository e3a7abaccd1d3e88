"""Registry of measures: numbers that describe attention heads. Each measure is one entry.

The rows of a matrix of weights are queries, and its columns are keys. The kind of a measure says
what its formula returns:

``"pairs"``
    A set of query-key pairs, such as each query with the previous token. For weights A and a set D
    of pairs,

        score = sum of A[i, j] over (i, j) in D / number of queries with an allowed pair in D

    A pair is allowed if the mask lets the query attend to the key. The score is 1 if each of these
    queries has all of its weight on its pairs in D. It is the mean attention of Clark et al. 2019
    (arXiv 1906.04341, section 3), except that the mean is over the queries with an allowed pair in
    D. The paper does not state over which queries it averages. With a mean over all queries, the
    score of the previous token could never reach 1, because the first query has no previous token.
``"rows"``
    A number for each query, computed from its weights. The score is the mean over the queries whose
    number is not NaN.
``"heads"``
    A number for each head, computed from what the head adds to the residual stream at each query
    (`attnviz.record.stack.AttentionStack.outputs`), from its gate at each query
    (`attnviz.record.stack.AttentionStack.gates`), or from the weight that it loses at each query
    (`attnviz.record.stack.AttentionStack.lost_weight`). This number is the score.
``"maps"``
    A number for each token, computed from the map of its weights over the patches of an image
    (`attnviz.record.stack.AttentionStack.image_weights`), and from a region of the image. The score
    is the mean over the tokens whose number is not NaN. If the patches are keys, the tokens are the
    queries that may attend to at least one of them. If the patches are queries, the tokens are
    keys, and their maps are divided by their sums.

The scores of `attnviz.analysis.head_scores`, the orders of heads in views, the scores and roles of
`attnviz.head_statistics` (without maps), the table in ``docs/analysis.md`` and a test are made from
the entries.

A new measure is one entry of `_BUILT_IN`, one line in ``tests/unit/analysis/test_measures.py`` (its
definition in plain Python; its texts must have such a pair), and its row in the table of
``docs/analysis.md``. Facts about tokens, such as which are punctuation, are properties of
`TokenFacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr

Kind = Literal["pairs", "rows", "heads", "maps"]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
_Formula = TypeVar("_Formula", bound=Callable[..., Any])

#: A patch whose mean weight exceeds this number is a sink: the threshold of Gu et al. 2024 (arXiv
#: 2410.10781) for tokens.
SINK_WEIGHT = 0.3
# Share of the weight that the strongest patches of a map have, in Caron et al. 2021.
_KEPT_SHARE = 0.6
# Differences of weights that are at most this share of the weight are rounding errors.
_ROUNDING = 1e-6

# The parameter `order` of a view can be the name of a measure, or one of these words. Therefore a
# measure must not have one of these names.
_RESERVED = ("number", "pinned", "role")


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Tokens of a text, with the properties on which the pairs of a measure can depend.

    A system of classes, such as the parts of speech, assigns at most one class to each token.

    Attributes
    ----------
    tokens : Tokens, or sequence of int or str
        The tokens. `kinds`, `is_kind`, `words` and `rarest` need an object of the class `Tokens`.
    classes : mapping of str to ndarray of int
        For each system of classes, the index of the class of each token, or -1 for no class.
    names : mapping of str to tuple of str
        For each system of classes, the names of its classes.
    frequencies : mapping of int or str to int
        Number of occurrences of each token in a sample of the corpus from which
        `attnviz.head_statistics` computes scores. Empty for a text without a corpus. The keys are
        token ids, or the texts of tokens if the ids are not known.

    Examples
    --------
    >>> facts = TokenFacts(["a", "b", "a"])
    >>> facts.codes.tolist(), facts.positions.tolist()
    ([0, 1, 0], [0, 1, 2])
    """

    tokens: Any
    classes: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    frequencies: Mapping[int | str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def positions(self) -> Indices:
        """Positions of the tokens, from 0, (tokens,)."""
        return np.arange(len(self))

    @cached_property
    def codes(self) -> Indices:
        """Integers that identify the tokens, (tokens,): tokens with the same id have the same code.

        If ids are unknown, tokens with the same text have the same code. Each patch of an image has
        a separate code, because models give all patches the same id.
        """
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in self._ids], np.int64)
        for grid in getattr(self.tokens, "grids", ()):
            codes[grid.start : grid.stop] = len(codes) + np.arange(grid.start, grid.stop)
        return codes

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """Kind of each token, such as punctuation, as an index into `token_kinds.KINDS`."""
        # Import the module here, because it imports torch, and functions of arrays need no torch.
        from attnviz.record.token_kinds import kinds_of

        return kinds_of(self.tokens)

    @cached_property
    def words(self) -> Indices:
        """Index of the word to which each token belongs, or -1 if it belongs to no word."""
        from attnviz.record.token_kinds import words_of

        return words_of(self.tokens)

    def is_kind(self, kind: str) -> Flags:
        """Return whether each token has a kind, bool, (tokens,).

        Parameters
        ----------
        kind : str
            One of `attnviz.record.token_kinds.KINDS`.

        Returns
        -------
        ndarray of bool, (tokens,)
        """
        from attnviz.record.token_kinds import KINDS

        return np.asarray(self.kinds == KINDS.index(kind))

    @cached_property
    def passages(self) -> Indices:
        """Index of the passage to which each token belongs, or -1 if it belongs to none."""
        indices = np.full(len(self), -1)
        for index, passage in enumerate(getattr(self.tokens, "passages", ())):
            indices[passage.start : passage.stop] = index
        return indices

    def in_passage(self, name: str) -> Flags:
        """Return whether each token is in a passage, bool, (tokens,).

        Parameters
        ----------
        name : str
            Name of the passage. A number may follow it, as in ``"needle 2"``.

        Returns
        -------
        ndarray of bool, (tokens,)
        """
        passages = getattr(self.tokens, "passages", ())
        named = [passage.name.rstrip(" 0123456789") == name for passage in passages]
        # The last entry is for tokens without a passage, whose index is -1.
        return np.array([*named, False])[self.passages]

    @cached_property
    def predicted(self) -> Indices:
        """Code of the token that the model predicted after each token, or -1, (tokens,).

        These are the tokens that a model generated, and those of a target text.
        """
        codes = np.full(len(self), -1)
        for prediction in getattr(self.tokens, "predictions", ()):
            if prediction.row is not None:
                codes[prediction.query] = self.codes[prediction.row]
        return codes

    @property
    def _ids(self) -> Sequence[Any]:
        ids = getattr(self.tokens, "ids", None)
        names: Sequence[Any] = ids or getattr(self.tokens, "text", self.tokens)
        return names

    @cached_property
    def rarest(self) -> Flags:
        """Whether each token is one of the rarest tokens of the text, (tokens,).

        Special tokens and image patches are ignored. So is the first token, because many heads
        attend to it as an attention sink, however rare it is. The rarest tokens are those with the
        smallest count in `frequencies` and, among these, the smallest count in the text. If they
        are more than half of the tokens that are not ignored, no token is rare, and all flags are
        False.
        """
        counted = ~self.is_kind("special") & ~self.is_kind("patch")
        if not counted.any():
            return counted
        names = [self._ids[position] for position in np.flatnonzero(counted).tolist()]
        in_corpus = np.array([self.frequencies.get(name, 0) for name in names])
        codes = self.codes[counted]
        in_text = np.bincount(codes)[codes]
        if counted[0]:
            counted[0], in_corpus, in_text = False, in_corpus[1:], in_text[1:]
            if not counted.any():
                return counted
        is_rarest = in_corpus == in_corpus.min()
        is_rarest &= in_text == in_text[is_rarest].min()
        if 2 * np.count_nonzero(is_rarest) > len(is_rarest):
            is_rarest[:] = False
        flags = np.zeros(len(self), np.bool_)
        flags[counted] = is_rarest
        return flags


@dataclass(frozen=True)
class Measure:
    """A number that describes attention heads, as an entry of `MEASURES`.

    Attributes
    ----------
    name : str
        Name of the measure, and of its scores.
    kind : {"pairs", "rows", "heads", "maps"}
        What `formula` returns: a set of query-key pairs, a number for each query, a number for each
        head, or a number for the map of each token over an image.
    formula : callable
        ``formula(queries, keys, rows)`` for pairs, ``formula(weights)`` for rows,
        ``formula(outputs)``, ``formula(gates)`` or ``formula(lost)`` for heads,
        ``formula(maps, region)`` for maps. See `measure`.
    description : str
        Description of the keys for pairs ("the token before"), of the number of a query for rows
        ("the entropy of a query's weights"), of a head for heads, or of a map for maps.
    definition : str
        Definition of the pairs or of the number in mathematical notation, for query i and key j.
    source : str
        Papers that introduced the measure.
    unit : str
        Unit of the scores, such as ``"nats"``. For pairs, it is ``"share"`` (of the weight).
    one_text : bool
        Whether queries and keys must be the same tokens, as in self-attention.
    positional : bool
        Whether the pairs depend only on the positions of query and key. If they do not,
        `attnviz.head_statistics` also compares the score with a baseline that depends only on
        positions.
    role : str or None
        Name of the role, such as ``"rare token"``, that `attnviz.head_statistics` assigns to a head
        whose score over a corpus significantly exceeds its baselines. None if the measure indicates
        no role.
    sink : bool
        Whether the keys are attention sinks: tokens that get the attention that a head does not
        need (Clark et al. 2019, section 3.2, and Xiao et al. 2024, arXiv 2309.17453).
    opens_views : bool
        Whether views may open at the head that shows these pairs most clearly
        (`attnviz.analysis.distinct_head`).
    reads : {"outputs", "gates", "lost weight"}
        What the formula gets for heads. Lost weights are (heads, queries).
    needs_tokens : bool
        Whether the formula of rows also gets `queries`, `keys` and `rows`, as that of pairs does.
        `attnviz.head_statistics` then compares the score with that of shuffled weights, which
        uniform attention must have.
    needs_region : bool
        Whether the formula of maps needs a region of the image.
    shuffles : bool
        Whether the baseline of maps has the same weights at shuffled patches, because the measure
        has no number for uniform attention. Scores below it mean connected weights.
    possible : callable or None
        ``possible(keys, causal)`` returns whether a text with these keys can have such pairs.
        `causal` is whether the mask is causal. None if this is computed from `formula`.

    Examples
    --------
    >>> MEASURES["previous token"].kind, MEASURES["entropy"].unit
    ('pairs', 'nats')
    """

    name: str
    kind: Kind
    formula: Callable[..., Any]
    description: str = ""
    definition: str = ""
    source: str = ""
    unit: str = "share"
    one_text: bool = False
    positional: bool = False
    role: str | None = None
    sink: bool = False
    opens_views: bool = False
    reads: Literal["outputs", "gates", "lost weight"] = "outputs"
    needs_tokens: bool = False
    needs_region: bool = False
    shuffles: bool = False
    possible: Callable[[TokenFacts, bool], bool] | None = None

    @property
    def sentence(self) -> str:
        """Sentence that states what the score measures.

        >>> MEASURES["previous token"].sentence
        'Weight on the token before.'
        """
        starts = {"pairs": "Weight on", "rows": "Mean over queries of", "heads": "For each head,"}
        starts["maps"] = "Mean over tokens of"
        return f"{starts[self.kind]} {self.description or self.name}."


_measures: dict[str, Measure] = {}

#: All measures by name, in the order in which views list them. The decorator `measure` adds an
#: entry.
MEASURES: Mapping[str, Measure] = MappingProxyType(_measures)


def measure(name: str, *, kind: Kind, **properties: Any) -> Callable[[_Formula], _Formula]:
    """Register a formula as a measure of attention heads.

    After the registration, `name` can be passed to `attnviz.analysis.head_scores` and as ``order=``
    of a view. `attnviz.head_statistics` computes its scores over a corpus.

    Parameters
    ----------
    name : str
        Name of the measure. A measure that was registered with the same name is replaced. The names
        of the measures of attnviz, of other orders of heads (``"number"``, ``"pinned"``,
        ``"role"``) and names that start with ``"syntactic: "`` are not valid.
    kind : {"pairs", "rows", "heads", "maps"}
        ``"pairs"``: the decorated function has the arguments ``(queries, keys, rows)`` and returns
        which pairs of a query and a key count, bool, (rows, keys). `queries` and `keys` are
        `attnviz.analysis.TokenFacts`, and `rows` are the positions of the queries, int64, (rows,
        1). If the same keys count for all queries, the function may return (keys,).
        ``"rows"``: the function has the argument ``weights``, (..., rows, keys), and returns one
        number per row, (..., rows), or NaN for rows that do not count. With ``needs_tokens=True``,
        it has the arguments ``(weights, queries, keys, rows)``.
        ``"heads"``: the function has the argument ``outputs``, (heads, queries, axes), which has
        the vector that each head of a layer adds to the residual stream at each query
        (`attnviz.record.stack.AttentionStack.outputs`), and returns one number per head, (heads,).
        With ``reads="gates"`` or ``reads="lost weight"``, the argument is instead an array (heads,
        queries): the mean gate of each head at each query
        (`attnviz.record.stack.AttentionStack.gates`), or the weight that it loses there
        (`attnviz.record.stack.AttentionStack.lost_weight`).
        ``"maps"``: the function has the arguments ``(maps, region)`` and returns one number per
        map, (tokens,), or NaN for maps that do not count. `maps` are the weights of some tokens on
        the patches of an image, (tokens, rows, columns). `region` is the share of each patch that
        lies in a region of the image, (rows, columns), or None.
    **properties
        Other attributes of `attnviz.analysis.Measure`, such as ``description=``, ``one_text=True``
        or ``role=``.

    Returns
    -------
    callable
        Decorator that returns the function itself.

    Raises
    ------
    TypeError, ValueError
        If a property does not exist, or `name` or `kind` is invalid.

    Examples
    --------
    >>> import attnviz as av
    >>> @av.measure("two tokens back", kind="pairs", one_text=True)
    ... def two_tokens_back(queries, keys, rows):
    ...     return keys.positions == rows - 2
    >>> record = av.AttentionRecord.from_weights([[np.eye(3)[[0, 0, 0]]]], ["a", "b", "c"])
    >>> av.analysis.head_scores(record, "two tokens back")
    [array([1.])]
    """
    if not name or name in _RESERVED or name.startswith("syntactic: "):
        raise ValueError(f"measure({short_repr(name)}): this cannot be the name of a measure")
    if kind not in get_args(Kind):
        raise ValueError(f"kind={short_repr(kind)} must be one of {get_args(Kind)}")
    if any(name == entry.name for entry in _BUILT_IN):
        raise ValueError(f"measure({name!r}): attnviz has a measure of this name")

    def register(formula: _Formula) -> _Formula:
        register_all([Measure(name, kind, formula, **properties)])
        return formula

    return register


def own_measures() -> tuple[Measure, ...]:
    """Return the measures that were registered with `measure`, without those of attnviz."""
    return tuple(entry for entry in MEASURES.values() if entry not in _BUILT_IN)


def register_all(entries: Iterable[Measure]) -> None:
    """Register measures, such as the result of `own_measures` of another process."""
    _measures.update({entry.name: entry for entry in entries})


def named(name: str) -> Measure:
    """Return a measure. Raise ValueError if `name` is unknown."""
    if name not in MEASURES:
        raise ValueError(
            f"measure={short_repr(name)} does not exist. Pass one of "
            f"{', '.join(map(repr, MEASURES))}, or register a measure with attnviz.measure."
        )
    return MEASURES[name]


def pairs_of(measure: Measure, queries: TokenFacts, keys: TokenFacts, rows: Indices) -> Flags:
    """Return whether each pair belongs to a measure, (rows, keys).

    `rows` are the positions of the queries, (rows,). Raise TypeError or ValueError if the formula
    returns another dtype than bool, or a wrong shape.

    >>> tokens = TokenFacts(["a", "b", "c"])
    >>> pairs_of(MEASURES["previous token"], tokens, tokens, np.array([1, 2]))
    array([[ True, False, False],
           [False,  True, False]])
    """
    flags, shape = _flags(measure, queries, keys, rows), (len(rows), len(keys))
    try:
        return np.broadcast_to(flags, shape)
    except ValueError:
        raise ValueError(
            f"measure {measure.name!r} must return pairs of the shape (rows, keys), {shape}, or "
            f"keys, ({len(keys)},); got {flags.shape}"
        ) from None


def values_of(
    measure: Measure,
    array: NDArray[Any],
    tokens: tuple[TokenFacts, TokenFacts, Indices] | None = None,
) -> NDArray[Any]:
    """Return the number of each row or head for a measure of the kind "rows" or "heads".

    For rows, `array` has weights, (..., rows, keys), and the result is (..., rows). `tokens` has
    the queries, the keys and the positions of the rows, (rows,). For heads,
    `array` has outputs, (heads, queries, axes), or gates or lost weights, (heads, queries), and the
    result is (heads,). A number is NaN if the measure is not defined for this row or head. Raise
    ValueError if the formula returns a wrong shape.

    >>> values_of(MEASURES["entropy"], np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    if measure.needs_tokens and tokens is not None:
        queries, keys, rows = tokens
        numbers = np.asarray(measure.formula(array, queries, keys, rows[:, None]))
    else:
        numbers = np.asarray(measure.formula(array))
    shape = array.shape[:-1] if measure.kind == "rows" else array.shape[:1]
    if numbers.shape != shape:
        raise ValueError(
            f"measure {measure.name!r} must return one number for each of its {measure.kind}, "
            f"{shape}; got {numbers.shape}"
        )
    return numbers


def numbers_of(
    measure: Measure, maps: NDArray[np.float64], region: NDArray[np.float64] | None
) -> NDArray[Any]:
    """Return the number of each map, (tokens,), for a measure of the kind "maps".

    `maps` and `region` are those of `measure`. Raise ValueError if the formula returns a wrong
    shape.

    >>> maps, left = np.array([[[0.2, 0.1]]]), np.array([[1.0, 0.0]])
    >>> numbers_of(MEASURES["region"], maps, left)
    array([0.2])
    """
    numbers = np.asarray(measure.formula(maps, region))
    if numbers.shape != maps.shape[:1]:
        raise ValueError(
            f"measure {measure.name!r} must return one number for each of the maps, "
            f"{maps.shape[:1]}; got {numbers.shape}"
        )
    return numbers


def can_show(measure: Measure, queries: TokenFacts, keys: TokenFacts, *, causal: bool) -> bool:
    """Return whether a measure can have a score for a text with these queries and keys.

    `causal` is whether the mask forbids later keys. The result can be True although no head has a
    score, because not all pairs are computed.
    """
    if measure.one_text and queries is not keys:
        return False
    if measure.possible is not None:
        return measure.possible(keys, causal)
    if measure.kind != "pairs":
        return True
    flags = _flags(measure, queries, keys, np.zeros(1, np.int64))
    # If the formula returns two axes, the pairs depend on the query. A score is then assumed to be
    # possible, because evaluating the formula for all queries would take too long. If it returns
    # one axis, (keys,), the same keys count for every query.
    return flags.ndim > 1 or bool(flags.any())


def _flags(measure: Measure, queries: TokenFacts, keys: TokenFacts, rows: Indices) -> Flags:
    flags = np.asarray(measure.formula(queries, keys, rows[:, None]))
    if flags.dtype != bool:
        raise TypeError(f"measure {measure.name!r} must return bool, not {flags.dtype}")
    return flags


def _repeats(keys: TokenFacts, causal: bool) -> bool:  # noqa: FBT001 - as in `possible`
    del causal
    return bool((np.bincount(keys.codes) > 1).any())


def _induction(queries: TokenFacts, keys: TokenFacts, rows: Indices) -> Any:
    # The first token has no previous token. Use -1, which is not the code of any token.
    before = np.concatenate([[-1], keys.codes[:-1]])
    return (before == queries.codes[rows]) & (keys.positions <= rows)


def _same_word(queries: TokenFacts, keys: TokenFacts, rows: Indices) -> Any:
    words = queries.words[rows]
    return (words == keys.words) & (words >= 0) & (keys.positions != rows)


def _other_passage(queries: TokenFacts, keys: TokenFacts, rows: Indices) -> Any:
    passages = queries.passages[rows]
    return (passages >= 0) & (keys.passages >= 0) & (passages != keys.passages)


def _lookback(
    weights: NDArray[Any], queries: TokenFacts, _keys: TokenFacts, rows: Indices
) -> NDArray[Any]:
    start = np.argmax(queries.predicted >= 0) + 1
    new = np.maximum(rows[:, 0] + 1 - start, 0)
    context = weights[..., :start].mean(axis=-1)
    generated = weights[..., start:].sum(axis=-1) / np.maximum(new, 1)
    sums = context + generated
    counts = (queries.predicted[rows[:, 0]] >= 0) & (new > 0) & (sums > 0)
    return np.where(counts, context / np.where(sums > 0, sums, 1), np.nan)


def _copied(
    weights: NDArray[Any], queries: TokenFacts, keys: TokenFacts, rows: Indices
) -> NDArray[Any]:
    needle = keys.in_passage("needle")
    strongest = (weights == weights.max(axis=-1, keepdims=True)) & (weights > 0)
    copies = strongest & needle & (keys.codes == queries.predicted[rows])
    # Several equal weights are each of them the strongest with the same probability.
    shares = copies.sum(axis=-1) / np.maximum(strongest.sum(axis=-1), 1)
    num_predicted = np.count_nonzero(queries.predicted >= 0)
    values = shares * num_predicted / max(1, np.count_nonzero(needle))
    return np.where(queries.predicted[rows[:, 0]] >= 0, values, np.nan)


def _has_prediction(keys: TokenFacts, causal: bool) -> bool:  # noqa: FBT001 - as in `possible`
    del causal
    return bool((keys.predicted >= 0).any())


def _entropy(weights: NDArray[Any]) -> NDArray[Any]:
    sums = weights.sum(axis=-1)
    logarithms = np.maximum(weights, weights.dtype.type(1e-30))
    np.log(logarithms, out=logarithms)
    inner = np.einsum("...k,...k->...", weights, logarithms)
    # Rows with an attention sink do not sum to 1, so each row w is divided by its sum s. The
    # entropy of w / s is log(s) - (sum of w log w) / s. It is NaN for a row of zeros.
    sums = np.where(sums > 0, sums, np.nan)
    # If one key has all of the weight, rounding can make the entropy negative. Return 0 instead.
    entropy: NDArray[Any] = np.maximum(np.log(sums) - inner / sums, 0)
    return entropy


def _relative_norm(outputs: NDArray[Any]) -> NDArray[Any]:
    norms = np.sqrt(np.einsum("hqa,hqa->hq", outputs, outputs)).mean(axis=1, dtype=np.float64)
    # If all outputs of a layer are 0, return NaN. Dividing by 0 would give NaN with a warning.
    relative: NDArray[Any] = norms / (norms.mean() or np.nan)
    return relative


def _mean_gate(gates: NDArray[Any]) -> NDArray[Any]:
    known = ~np.isnan(gates)
    counts = known.sum(axis=1)
    sums = np.where(known, gates, 0).sum(axis=1, dtype=np.float64)
    means: NDArray[Any] = sums / np.where(counts > 0, counts, np.nan)
    return means


def _region_overlap(maps: NDArray[Any], region: NDArray[Any]) -> NDArray[Any]:
    strongest = strongest_patches(maps)
    union = np.maximum(strongest, region).sum(axis=(1, 2))
    overlap: NDArray[Any] = (strongest * region).sum(axis=(1, 2)) / union
    return np.where(strongest.any(axis=(1, 2)), overlap, np.nan)


def strongest_patches(maps: NDArray[Any]) -> Flags:
    """Return the patches with the largest weights, which have 60% of the weight of a map.

    Patches whose weight equals the smallest of theirs belong to them, too. `maps` and the result
    are (tokens, rows, columns). A map without weight has no such patches.

    >>> strongest_patches(np.array([[[0.5, 0.25, 0.25, 0.0]]])).tolist()
    [[[True, True, True, False]]]
    """
    flat = maps.reshape(len(maps), -1)
    ordered = -np.sort(-flat, axis=1)
    enough = np.cumsum(ordered, axis=1) >= _KEPT_SHARE * flat.sum(axis=1, keepdims=True)
    smallest = np.take_along_axis(ordered, enough.argmax(axis=1)[:, None], axis=1)
    strongest = (flat >= smallest * (1 - _ROUNDING)) & (flat > 0)
    return np.asarray(strongest.reshape(maps.shape))


def _spatial_entropy(maps: NDArray[Any], _region: Any) -> NDArray[Any]:
    means = maps.mean(axis=(1, 2), keepdims=True)
    excess = np.where(maps > means * (1 + _ROUNDING), maps - means, 0)
    # Patches above the mean get different numbers, and then the largest number among themselves and
    # their eight neighbours, until the numbers of a connected part are equal.
    numbers = np.where(excess > 0, np.arange(1, maps.size + 1).reshape(maps.shape), 0)
    before = np.zeros_like(numbers)
    while (numbers != before).any():
        before = numbers
        around = np.pad(numbers, ((0, 0), (1, 1), (1, 1)))
        around = np.maximum(np.maximum(around[:, :-2], around[:, 1:-1]), around[:, 2:])
        around = np.maximum(np.maximum(around[..., :-2], around[..., 1:-1]), around[..., 2:])
        # A number is the index of a patch of the same part, whose own number may be larger.
        numbers = np.where(excess > 0, around, 0)
        numbers = np.append(0, numbers)[numbers]
    sums = np.bincount(numbers.ravel(), excess.ravel(), maps.size + 1)[1:].reshape(len(maps), -1)
    return _entropy(sums)


_BUILT_IN = (
    Measure(
        "previous token",
        "pairs",
        lambda queries, keys, rows: keys.positions == rows - 1,
        description="the token before",
        definition="j = i - 1",
        source="Clark et al. 2019 (arXiv 1906.04341), section 3.1; Voita et al. 2019 (arXiv "
        '1905.09418), "positional heads"',
        one_text=True,
        positional=True,
        role="previous token",
        opens_views=True,
        possible=lambda keys, causal: len(keys) > 1,
    ),
    Measure(
        "next token",
        "pairs",
        lambda queries, keys, rows: keys.positions == rows + 1,
        description="the token after",
        definition="j = i + 1",
        source="Clark et al. 2019, section 3.1; Voita et al. 2019",
        one_text=True,
        positional=True,
        role="next token",
        opens_views=True,
        possible=lambda keys, causal: len(keys) > 1 and not causal,
    ),
    Measure(
        "first token",
        "pairs",
        lambda queries, keys, rows: keys.positions == 0,
        description="the first token",
        definition="j = 0",
        source='Xiao et al. 2024 (arXiv 2309.17453), "attention sinks"',
        positional=True,
        role="first token",
        sink=True,
    ),
    Measure(
        "self",
        "pairs",
        lambda queries, keys, rows: keys.positions == rows,
        description="the token itself",
        definition="j = i",
        source="Clark et al. 2019, section 3.1",
        one_text=True,
        positional=True,
        role="self",
        opens_views=True,
    ),
    Measure(
        "same token",
        "pairs",
        lambda queries, keys, rows: (keys.codes == queries.codes[rows]) & (keys.positions < rows),
        description="earlier occurrences of the same token",
        definition="token j = token i, j < i",
        source='Wang et al. 2023 (arXiv 2211.00593), "duplicate token heads"',
        one_text=True,
        role="same token",
        opens_views=True,
        possible=_repeats,
    ),
    Measure(
        "induction",
        "pairs",
        _induction,
        description="what followed an earlier occurrence of the same token",
        definition="token j - 1 = token i, 1 <= j <= i",
        source='Olsson et al. 2022 (arXiv 2209.11895), "prefix matching", on any text',
        one_text=True,
        role="induction",
        opens_views=True,
        possible=_repeats,
    ),
    Measure(
        "same word",
        "pairs",
        _same_word,
        description="the other tokens of the same word",
        definition="another token of the same word",
        source="the tokenizer's words",
        one_text=True,
        role="subword joiner",
        possible=lambda keys, causal: bool((np.bincount(keys.words + 1)[1:] > 1).any()),
    ),
    Measure(
        "delimiter",
        "pairs",
        lambda queries, keys, rows: (
            keys.is_kind("punctuation") | (keys.is_kind("special") & (keys.positions > 0))
        ),
        description="punctuation, and special tokens after the first token",
        definition="j is punctuation, or a special token and j > 0",
        source="Clark et al. 2019, section 3.2",
        role="delimiter",
        sink=True,
    ),
    Measure(
        "punctuation",
        "pairs",
        lambda queries, keys, rows: keys.is_kind("punctuation"),
        description="punctuation",
        definition="j is punctuation",
        source="Clark et al. 2019, section 3.2",
    ),
    Measure(
        "special tokens",
        "pairs",
        lambda queries, keys, rows: keys.is_kind("special"),
        description="special tokens",
        definition="j is a special token",
        source="Clark et al. 2019, section 3.2",
    ),
    Measure(
        "image",
        "pairs",
        lambda queries, keys, rows: keys.is_kind("patch"),
        description="patches of images",
        definition="j is a patch of an image",
        source='Kang et al. 2025 (arXiv 2503.06287), "attention sum"',
    ),
    Measure(
        "other passage",
        "pairs",
        _other_passage,
        description="other passages of the text",
        definition="i and j are in different passages",
        source="the borders of packed texts, turns and documents",
        one_text=True,
        possible=lambda keys, causal: len(np.unique(keys.passages[keys.passages >= 0])) > 1,
    ),
    Measure(
        "needle attention",
        "pairs",
        lambda queries, keys, rows: (
            keys.in_passage("needle") & queries.in_passage("question")[rows]
        ),
        description="the passage “needle”, from the passage “question”",
        definition="i is in the passage “question”, j in the passage “needle”",
        source='Zhang et al. 2025 (arXiv 2506.09944), "query-focused retrieval heads"',
        one_text=True,
        role="query-focused retrieval",
        possible=lambda keys, causal: bool(
            keys.in_passage("needle").any() and keys.in_passage("question").any()
        ),
    ),
    Measure(
        "rarest token",
        "pairs",
        lambda queries, keys, rows: keys.rarest,
        description="the rarest token after the first",
        definition="j > 0 is the rarest token after the first",
        source='Voita et al. 2019, "rare tokens"',
        role="rare token",
    ),
    Measure(
        "entropy",
        "rows",
        _entropy,
        description="the entropy of a query's weights",
        definition="-sum over j of w[j] log w[j], where w is the row divided by its sum",
        source="Clark et al. 2019, section 3.3",
        unit="nats",
    ),
    Measure(
        "lookback ratio",
        "rows",
        _lookback,
        description="the mean weight on the prompt, divided by the sum of it and the mean weight "
        "on the answer so far",
        definition="c / (c + g), where c and g are the means over j of A[i, j] in the prompt and "
        "in the answer up to i, for i that predicts a token of the answer after the first",
        source="Chuang et al. 2024 (arXiv 2407.07071)",
        one_text=True,
        needs_tokens=True,
        possible=_has_prediction,
    ),
    Measure(
        "copied needle",
        "rows",
        _copied,
        description="the share of the passage “needle” that is copied while its tokens have the "
        "largest weight",
        definition="number of i whose largest A[i, j] is at j in the passage “needle” with token j "
        "= predicted token / number of tokens of the needle",
        source='Wu et al. 2024 (arXiv 2404.15574), "retrieval score"',
        one_text=True,
        role="retrieval",
        needs_tokens=True,
        possible=lambda keys, causal: (
            _has_prediction(keys, causal) and bool(keys.in_passage("needle").any())
        ),
    ),
    Measure(
        "output norm",
        "heads",
        _relative_norm,
        description="the mean norm of its outputs, divided by the mean over the heads of the layer",
        definition="mean over i of the norm of o[i], divided by its mean over the heads of the "
        "layer, where o[i] = sum over j of A[i, j] v[j] W_O",
        source="Sandoval-Segura et al. 2025 (arXiv 2504.03889), appendix A.1",
        unit="× layer mean",
    ),
    Measure(
        "gate",
        "heads",
        _mean_gate,
        description="the mean gate that multiplies its outputs",
        definition="mean over i and d of g[i, d], where g[i] o[i] is the output of the head after "
        "its gate, and o[i] before it, for dimension d",
        source="Qiu et al. 2025 (arXiv 2505.06708)",
        unit="factor",
        reads="gates",
    ),
    Measure(
        "lost weight",
        "heads",
        lambda lost: lost.mean(axis=1, dtype=np.float64),
        description="the mean weight that the keys that were not chosen would have",
        definition="mean over i of the sum of B[i, j] over the keys j that were not chosen, where "
        "B is the softmax over all keys that i could attend to",
        source="the choice of keys of DeepSeek-AI 2025 (arXiv 2512.02556)",
        reads="lost weight",
    ),
    Measure(
        "region",
        "maps",
        lambda maps, region: (maps * region).sum(axis=(1, 2)),
        description="the weight in a region of the image",
        definition="sum over patches p of m[p] r[p], where r[p] is the share of p in the region",
        source='Wang et al. 2020 (arXiv 1910.01279), "energy-based pointing game"',
        needs_region=True,
    ),
    Measure(
        "region overlap",
        "maps",
        _region_overlap,
        description="the intersection over union of its strongest patches with a region",
        definition="area of S and R / area of S or R, where S are the largest m[p] with 60% of the "
        "weight of m and R is the region",
        source="Caron et al. 2021 (arXiv 2104.14294), section 4.2.2",
        needs_region=True,
    ),
    Measure(
        "spatial entropy",
        "maps",
        _spatial_entropy,
        description="the entropy of the connected parts of its map",
        definition="-sum over c of P[c] log P[c], where P[c] is the share of the connected part c "
        "(8 neighbours) in the sum of max(m - mean of m, 0)",
        source="Peruzzo et al. 2022 (arXiv 2206.04636); Kang et al. 2025",
        unit="nats",
        shuffles=True,
    ),
    Measure(
        "sink patches",
        "maps",
        lambda maps, region: maps[:, maps.mean(axis=0) > SINK_WEIGHT].sum(axis=1),
        description="the weight on patches whose mean weight exceeds 0.3",
        definition="sum of m[p] over the patches p whose mean over the tokens exceeds 0.3",
        source="Gu et al. 2024 (arXiv 2410.10781), for patches; Darcet et al. 2023 (arXiv "
        '2309.16588), "artifacts"',
    ),
)
register_all(_BUILT_IN)

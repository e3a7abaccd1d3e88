"""Roles of heads, such as "induction", from statistical tests of their scores over a corpus.

The score of a role is a head's share of attention on certain keys, for example on the previous
token. Its baseline is the score that the head would have without the property that the role
describes, for example if the weights of each query were shuffled among its keys. A score has up to
three baselines. A head has a role if the score exceeds each baseline by significantly more than a
margin. P values are corrected for the number of tests: each role of each head is one test.
``docs/heads.md`` has the formulas and their sources.

A stack is the attention of one kind, such as "self" or "cross", in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.measures import MEASURES, Measure
from attnviz.record.table import require_pandas
from attnviz.utils.arguments import existing_number, short_repr
from attnviz.utils.numbers import format_with_error

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]

#: Prefix of the names of syntactic roles. Each role belongs to a relation in dependency parses. For
#: example, heads with the role "syntactic: nsubj" attend from subjects to their verbs.
SYNTACTIC = "syntactic: "
#: Suffix of the names of syntactic roles with the opposite direction. For example, heads with the
#: role "syntactic: nsubj (reversed)" attend from verbs to their subjects.
REVERSED = " (reversed)"
# Minimum number of texts in which a score must be defined for a test. With fewer texts, the
# standard error is not reliable.
_MIN_TEXTS = 5
# Maximum number of degrees of freedom for which `student_above` uses the exact formula. With more
# degrees of freedom, it uses a normal approximation.
_MAX_EXACT_FREEDOM = 200


@dataclass(frozen=True)
class Role:
    """Result of the test of one role for one head.

    If the role has several baselines, `low`, `high`, `baseline`, `difference` and `p_value` belong
    to the baseline whose test has the largest p value.

    `low`, `high` and `p_value` are NaN if the score is defined in fewer than five texts, because
    its standard error is then not reliable. They are also NaN if the baseline is not defined in any
    text.

    Attributes
    ----------
    name : str
        Name of the role.
    score : float
        Mean of the score over texts. The score of a text is the share of a query's attention on the
        keys of the role, averaged over the queries that have such a key.
    standard_error : float
        Standard error of `score`.
    low, high : float
        Bounds of the confidence interval of `difference`, with confidence ``1 - level``. `level` is
        the argument of `StackStatistics.roles`.
    baseline : float
        Mean of the baseline over texts.
    difference : float
        Mean over texts of the score minus the baseline.
    p_value : float
        Probability that `difference` is at least as large as observed if the true difference is
        equal to the margin (the argument of `StackStatistics.roles`). It is corrected for the
        number of heads and roles (Benjamini-Hochberg).
    texts : int
        Number of texts in which the score is defined.

    Examples
    --------
    >>> role = Role("induction", 0.98, 0.01, 0.8, 0.9, 0.13, 0.85, 1e-9, 40)
    >>> f"{role.name} {role.score:.2f}"
    'induction 0.98'
    """

    name: str
    score: float
    standard_error: float
    low: float
    high: float
    baseline: float
    difference: float
    p_value: float
    texts: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """Statistics of one score of all heads of a stack, over the texts of a corpus.

    Attributes
    ----------
    texts : ndarray of int64, (heads,)
        Number of texts in which the score is defined.
    baseline_texts : ndarray of int64, (baselines, heads)
        Number of texts in which the score and each baseline are defined.
    score, standard_error : ndarray of float64, (heads,)
        Mean of the score over texts, and its standard error.
    baseline : ndarray of float64, (baselines, heads)
        Mean of each baseline over texts: the shuffled baseline, the baseline from position, and the
        baseline from the key (``docs/heads.md``). NaN if the score does not have the baseline, or
        if the baseline is not defined in any text.
    difference, difference_standard_error : ndarray of float64, (baselines, heads)
        Mean over texts of the score minus each baseline, and the standard error of this mean.
    """

    texts: NDArray[np.int64]
    baseline_texts: NDArray[np.int64]
    score: Numbers
    standard_error: Numbers
    baseline: Numbers
    difference: Numbers
    difference_standard_error: Numbers


class Roles:
    """Roles of all heads of a stack.

    Parameters
    ----------
    layers : sequence of int
        Numbers of the layers in the model.
    heads_per_layer : sequence of int
        Number of heads of each layer.
    evidence : mapping of str to Evidence
        Statistics of the score of each tested role. The keys are the names of the roles.
    margin : float
        A head has a role only if its score exceeds each baseline by significantly more than this
        number.
    level : float
        Maximum expected share of false roles among all assigned roles. The confidence intervals
        have confidence ``1 - level``.

    Attributes
    ----------
    layers, heads_per_layer, margin, level
        The arguments.
    names : list of list of (str or None)
        For each layer, the main role of each head, or None for a head without a role. The main role
        is the one with the largest `Role.difference`. "first token" and "delimiter" (attention
        sinks) are the main role only if the head has no other role.
    candidates : tuple of str
        Names of the roles that were tested.
    definitions : dict of str to str
        Description of each tested role, such as "attends to the token before".

    Examples
    --------
    >>> import attnviz as av
    >>> weights = [[[[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.9, 0.1]]]]
    >>> record = av.AttentionRecord.from_weights(weights, ["a", "b", "c"])
    >>> roles = av.head_statistics([record] * 8, progress=False).stack().roles()
    >>> roles.label(layer=0, head=0)
    'previous token 0.90 ± <0.01'
    """

    def __init__(
        self,
        layers: Sequence[int],
        heads_per_layer: Sequence[int],
        evidence: Mapping[str, Evidence],
        *,
        margin: float,
        level: float,
    ) -> None:
        self.layers = tuple(layers)
        self.heads_per_layer = tuple(heads_per_layer)
        self.margin, self.level = margin, level
        self.candidates = tuple(evidence)
        self.definitions = {name: definition_of(name) for name in evidence}
        tests = iter(_tests(evidence, margin, level, sum(self.heads_per_layer)))
        self._all = [list(islice(tests, count)) for count in self.heads_per_layer]
        self.names = [
            [next((role.name for role, holds in tests if holds), None) for tests in layer]
            for layer in self._all
        ]

    def of(self, layer: int, head: int) -> list[Role]:
        """Return the roles of a head, sorted by `Role.difference`.

        The role with the largest difference is first. "first token" and "delimiter" are last.

        Parameters
        ----------
        layer, head : int
            Numbers of the layer and the head in the model. Negative numbers count from the last
            layer or head.

        Returns
        -------
        list of Role
            Empty if the head has no role.

        Raises
        ------
        IndexError
            If the head does not exist.
        """
        return [role for role, holds in self._tests_of_head(layer, head) if holds]

    def tested(self, layer: int, head: int) -> list[Role]:
        """Return the results of all tests of a head, including roles that the head does not have.

        Parameters
        ----------
        layer, head : int
            Numbers of the layer and the head in the model. Negative numbers count from the last
            layer or head.

        Returns
        -------
        list of Role
            Sorted as the result of `of`. Roles whose score is not defined in any text are left out.

        Raises
        ------
        IndexError
            If the head does not exist.
        """
        return [role for role, _ in self._tests_of_head(layer, head)]

    def main_roles(self) -> list[tuple[int, int, Role]]:
        """Return the main role of each head that has a role.

        Returns
        -------
        list of tuple
            Layer, head and `Role`, sorted by layer and head. See `names` for the definition of
            a main role.
        """
        return [
            (layer, head, roles[0])
            for layer, num_heads in zip(self.layers, self.heads_per_layer, strict=True)
            for head in range(num_heads)
            if (roles := self.of(layer, head))
        ]

    def label(self, layer: int, head: int) -> str:
        """Return the main role of a head with its score, such as ``induction 0.98 ± 0.01``.

        Parameters
        ----------
        layer, head : int
            Numbers of the layer and the head in the model. Negative numbers count from the last
            layer or head.

        Returns
        -------
        str
            Empty if the head has no role. The number after ± is the standard error over texts.

        Raises
        ------
        IndexError
            If the head does not exist.
        """
        roles = self.of(layer, head)
        if not roles:
            return ""
        return f"{roles[0].name} {format_with_error(roles[0].score, roles[0].standard_error)}"

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row for each tested role of each head.

        Returns
        -------
        DataFrame
            Columns ``layer, head, role, holds``, followed by the attributes of `Role` except
            `name`. ``holds`` says whether the head has the role.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        require_pandas()
        import pandas as pd

        rows = [
            {"layer": layer, "head": head, "role": role.name, "holds": holds, **asdict(role)}
            for layer, tests in zip(self.layers, self._all, strict=True)
            for head, head_tests in enumerate(tests)
            for role, holds in head_tests
        ]
        values = [field.name for field in fields(Role) if field.name != "name"]
        return pd.DataFrame(rows, columns=["layer", "head", "role", "holds", *values])

    def _tests_of_head(self, layer: int, head: int) -> list[tuple[Role, bool]]:
        number = existing_number("layer", layer, self.layers, "these roles have layers")
        index = self.layers.index(number)
        heads = range(self.heads_per_layer[index])
        chosen = existing_number("head", head, heads, f"layer {number} has heads")
        return self._all[index][chosen]

    def __repr__(self) -> str:
        names = [name for layer in self.names for name in layer if name]
        counts = {name: names.count(name) for name in dict.fromkeys(names)}
        total = sum(self.heads_per_layer)
        listed = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
        return f"<Roles of {len(names)} of {total} heads: {listed}>"


def score_of_roles(scores: Sequence[str]) -> dict[str, str]:
    """Return the name of the score of each role, for the roles whose score is in `scores`.

    The keys of the result are the names of the roles, which can differ from those of the scores.

    >>> score_of_roles(["same word", "entropy", "syntactic: nsubj"])
    {'subword joiner': 'same word', 'syntactic: nsubj': 'syntactic: nsubj'}
    """
    registered = {
        role: measure.name
        for role, measure in _measures_by_role().items()
        if measure.name in scores
    }
    return registered | {name: name for name in scores if name.startswith(SYNTACTIC)}


def definition_of(role: str) -> str:
    """Return a description of what a head with this role attends to.

    >>> definition_of("syntactic: nsubj")
    'attends from a word to the word that it is the nsubj of'
    """
    if not role.startswith(SYNTACTIC):
        measure = _measures_by_role()[role]
        if measure.kind == "pairs":
            return f"attends to {measure.description}"
        return f"has a large {measure.description.removeprefix('the ')}"
    relation = role.removeprefix(SYNTACTIC)
    if relation.endswith(REVERSED):
        return f"attends from a word to its {relation.removesuffix(REVERSED)}"
    return f"attends from a word to the word that it is the {relation} of"


def is_sink(role: str) -> bool:
    """Whether heads with this role attend to attention sinks.

    An attention sink is a token, such as the first token, that gets much weight whatever its
    meaning. Most heads attend to sinks. Other roles of a head are more informative and are
    therefore listed first.
    """
    return not role.startswith(SYNTACTIC) and _measures_by_role()[role].sink


def _measures_by_role() -> dict[str, Measure]:
    return {measure.role: measure for measure in MEASURES.values() if measure.role is not None}


def _tests(
    evidence: Mapping[str, Evidence], margin: float, level: float, num_heads: int
) -> list[list[tuple[Role, bool]]]:
    """Test all roles of all heads. The keys of `evidence` are the names of the roles.

    The result has a list for each head, sorted with `_strongest_first`. Each item has the result of
    a test, and whether the head has the role. A role is left out for a head if its score is not
    defined in any text.
    """
    heads = range(num_heads)
    tested = [
        [_strictest_test(name, scores, head, margin, level) for head in heads]
        for name, scores in evidence.items()
    ]
    p_values = np.array([[role.p_value for role in roles] for roles in tested])
    by_head: list[list[tuple[Role, bool]]] = [[] for _ in heads]
    for roles, corrected in zip(tested, benjamini_hochberg(p_values).tolist(), strict=True):
        for tests, role, p_value in zip(by_head, roles, corrected, strict=True):
            if role.texts:
                holds = role.low > margin and p_value < level
                tests.append((replace(role, p_value=p_value), holds))
    for tests in by_head:
        tests.sort(key=_strongest_first)
    return by_head


def _strictest_test(name: str, evidence: Evidence, head: int, margin: float, level: float) -> Role:
    """Test the score of a head against each baseline. Return the result with the largest p value.

    `name` is the name of the role. If p values are equal, for example both 0, return the result
    with the smaller difference. A baseline that is not defined in any text is ignored. The p value
    and the confidence interval are NaN if no baseline is defined in at least `_MIN_TEXTS` texts.

    The caller corrects the p value for the number of heads and roles. The number of baselines needs
    no correction, because a head has a role only if its score exceeds every baseline
    (intersection-union test).
    """
    tests = []
    for texts, baseline, difference, error in zip(
        evidence.baseline_texts[:, head].tolist(),
        evidence.baseline[:, head].tolist(),
        evidence.difference[:, head].tolist(),
        evidence.difference_standard_error[:, head].tolist(),
        strict=True,
    ):
        over = difference - margin
        half_width = p_value = math.nan
        if texts >= _MIN_TEXTS and math.isfinite(over):
            without_error = 0.0 if over > 0 else 1.0
            p_value = student_above(over / error, texts - 1) if error > 0 else without_error
            half_width = error * student_quantile(level / 2, texts - 1)
        test = Role(
            name=name,
            score=float(evidence.score[head]),
            standard_error=float(evidence.standard_error[head]),
            low=difference - half_width,
            high=difference + half_width,
            baseline=baseline,
            difference=difference,
            p_value=p_value,
            texts=int(evidence.texts[head]),
        )
        tests.append(test)
    defined = [test for test in tests if math.isfinite(test.difference)]
    return max(
        defined or tests,
        key=lambda test: (-1.0 if math.isnan(test.p_value) else test.p_value, -test.difference),
    )


def _strongest_first(test: tuple[Role, bool]) -> tuple[bool, float]:
    role = test[0]
    return is_sink(role.name), -role.difference if math.isfinite(role.difference) else math.inf


def benjamini_hochberg(p_values: Numbers) -> Numbers:
    """Correct p values for the number of tests (Benjamini and Hochberg 1995).

    A corrected value is the smallest false discovery rate at which the test is significant. NaN
    values are not counted as tests and remain NaN.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(6).tolist()
    [0.03, 0.04, 0.04]
    """
    values = p_values.ravel()
    # Leave out the NaN values. `argsort` puts their indices last.
    order = np.argsort(values)[: np.count_nonzero(np.isfinite(values))]
    ranked = values[order] * len(order) / np.arange(1, len(order) + 1)
    corrected = np.full(len(values), np.nan)
    corrected[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1)
    return corrected.reshape(p_values.shape)


def student_above(t: float, freedom: int) -> float:
    """Return the probability that a random variable with Student's t distribution exceeds `t`.

    `freedom` is the number of degrees of freedom. The formulas are 26.7.3, 26.7.4 and, for many
    degrees of freedom, 26.7.8 in Abramowitz and Stegun 1964.

    >>> round(student_above(2.0, 10), 6)
    0.036694
    """
    if freedom > _MAX_EXACT_FREEDOM:
        normal = t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom))
        return 0.5 * math.erfc(normal / math.sqrt(2))
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for number in range(freedom // 2):
        total += term
        term *= cosine * cosine * (2 * number + 1 + odd) / (2 * number + 2 + odd)
    inside = (2 / math.pi) * (angle + sine * total) if odd else sine * total
    return max(0.0, 0.5 * (1 - inside))


@lru_cache(4096)
def student_quantile(above: float, freedom: int) -> float:
    """Return the value that Student's t distribution exceeds with the probability `above`.

    `above` must be below 0.5. `freedom` is the number of degrees of freedom.

    >>> round(student_quantile(0.025, 10), 4)
    2.2281
    """
    low, high = 0.0, 1.0
    while student_above(high, freedom) > above:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_above(middle, freedom) > above else (low, middle)
    return high


def checked_share(name: str, value: Any, *, below: float = 1.0) -> float:
    """Return `value` as a float. Raise TypeError or ValueError unless it is in [0, `below`)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name}={short_repr(value)} must be a number such as 0.05")
    if not 0 <= value < below:
        raise ValueError(f"{name}={short_repr(value)} must be at least 0 and below {below:g}")
    return float(value)

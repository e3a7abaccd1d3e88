"""Erasure curves, and sufficient tokens.

The answer is a number in the model's output, such as the logit of one token minus that of another.
An erasure curve has the answers of a model after 0, 1, 2, ... tokens are removed, or erased. Tokens
are sufficient if the answer is positive after all other tokens are removed. Some tokens cannot be
removed, such as the token after which the answer is read. They always remain in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.options import RecordOptions
from attnviz.interventions.removal import Removal, TokenRemover
from attnviz.interventions.token_effects import TokenEffects
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr, whole_number
from attnviz.utils.arrays import as_array
from attnviz.utils.numbers import format_small
from attnviz.utils.progress import with_progress

# `sufficient_tokens` tries all subsets if at most this many tokens can be removed.
_EXACT = 16


@dataclass(frozen=True, eq=False)
class ErasureCurve:
    """Answer of a model while tokens are erased in the order of a ranking.

    An answer flips when it is 0 or negative for the first time. If the answer is the logit of one
    token minus that of another, the other token is then at least as likely.

    Attributes
    ----------
    order : tuple of int
        Positions of the erased tokens, in the order in which they are erased.
    values : ndarray of float64
        Answers after 0, 1, 2, ... erased tokens, (erased tokens + 1,).
    random_mean, random_standard_error : ndarray of float64
        Mean of the answer over random orders, and the standard error of this mean, (erased tokens +
        1,).
    flips_after : int or None
        Number of erased tokens after which the answer flips. 0 if the answer with all tokens is 0
        or negative. None if the answer never flips.
    random_flips_after : float
        Number of erased tokens after which the answer flips, as a mean over the random orders. An
        order in which the answer never flips counts with the number of all erased tokens.
    measure : str
        Description of the answer.
    noise : float
        Bound of the rounding error of a difference of two answers, as in `TokenEffects`. The answer
        may be 0 or negative only by rounding if its size does not exceed the noise.

    Examples
    --------
    >>> values, zeros = np.array([2.0, -1.0, -1.0]), np.zeros(3)
    >>> ErasureCurve((1, 0), values, zeros, zeros, 1, 1.5, "logit of a minus logit of b", 0.01)
    <ErasureCurve of 2 tokens: logit of a minus logit of b flips after 1, at random after 1.5 \
(noise 0.01)>
    """

    order: tuple[int, ...]
    values: NDArray[np.float64]
    random_mean: NDArray[np.float64]
    random_standard_error: NDArray[np.float64]
    flips_after: int | None
    random_flips_after: float
    measure: str
    noise: float

    def __repr__(self) -> str:
        flips, noise = "never flips", f"noise {format_small(self.noise)}"
        if self.flips_after is not None:
            flips = f"flips after {self.flips_after}"
            if abs(self.values[self.flips_after]) <= self.noise:
                noise = f"by no more than the {noise}"
        return (
            f"<ErasureCurve of {len(self.order)} tokens: {self.measure} {flips}, at random after "
            f"{self.random_flips_after:.1f} ({noise})>"
        )


@with_progress
def erasure_curve(
    model: Any,
    inputs: Any,
    ranking: Any,
    *,
    removal: Removal = "mask",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    random_orders: int = 20,
    seed: int = 0,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> ErasureCurve:
    """Erase tokens one after the other, and measure the answer (Serrano and Smith 2019).

    The ranking determines the order. If the tokens that the model needs are ranked first, the
    answer decreases earlier than for random orders.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    ranking : sequence of float or TokenEffects
        One score per token. The token with the highest score is erased first. Tokens with the score
        NaN are not erased. With `TokenEffects`, the token whose removal lowers the answer most is
        erased first.
    removal : {"mask", "mean embedding", "mean color"}
        As for `attnviz.token_effects`.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. By default the logit of the most likely token minus that of the
        second.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default. This
        token is never erased.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    random_orders : int, default 20
        Number of random orders, at least 2.
    seed : int, default 0
        Seed of the random orders.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    ErasureCurve

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text.
    MemoryError, NotImplementedError
        As for `attnviz.token_effects`.

    Notes
    -----
    Texts with erased tokens differ from all texts that the model was trained on, and this alone
    changes the answer. So compare the curve with the random orders, not with 0 (arXiv 1906.03731).

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> effects = av.token_effects(model, "a b c a b", tokenizer=tokenizer)       # doctest: +SKIP
    >>> av.erasure_curve(model, "a b c a b", effects, tokenizer=tokenizer)        # doctest: +SKIP
    """
    hint = "of random orders, 20 or so"
    random_orders = whole_number("random_orders", random_orders, 2, hint=hint)
    text = TokenRemover(
        model, inputs, target, options, removal=removal, answer=answer, position=position
    )
    order = _order(ranking, text)
    generator = np.random.default_rng(seed)
    others = [generator.permutation(order).tolist() for _ in range(random_orders)]
    return _curve(text, [order, *others])


def _order(ranking: Any, text: TokenRemover) -> list[int]:
    """Return the positions of the tokens to erase, in the order of a ranking.

    Raise ValueError if `ranking` does not have one score per token, or if the score of every token
    that can be erased is NaN.
    """
    scores = -ranking.values if isinstance(ranking, TokenEffects) else ranking
    values = as_array(scores, np.float64)
    if values.shape != (len(text.tokens),):
        raise ValueError(
            f"ranking has shape {values.shape}. It must be ({len(text.tokens)},), one number per "
            "token."
        )
    choice = [token for token in text.choice if not np.isnan(values[token])]
    if not choice:
        raise ValueError("ranking: all tokens that can be erased have the score NaN")
    return sorted(choice, key=lambda token: (-values[token], token))


def _curve(text: TokenRemover, orders: Sequence[Sequence[int]]) -> ErasureCurve:
    sets = [tuple(order[:count]) for order in orders for count in range(1, len(order) + 1)]
    answers = text.answers(sets, "tokens")
    count = len(orders[0])
    values = np.full((len(orders), count + 1), text.runner.before)
    values[:, 1:] = np.array(answers).reshape(len(orders), count)
    others = values[1:]
    lost = values <= 0
    flips = np.where(lost.any(axis=1), lost.argmax(axis=1), count)
    return ErasureCurve(
        tuple(orders[0]),
        values[0],
        others.mean(axis=0),
        others.std(axis=0, ddof=1) / len(others) ** 0.5,
        int(flips[0]) if lost[0].any() else None,
        float(flips[1:].mean()),
        text.runner.answer.measure,
        text.runner.noise,
    )


@dataclass(frozen=True)
class SufficientTokens:
    """Set of tokens that suffices for an answer, as `sufficient_tokens` returns it.

    The set suffices if the answer is positive after all other tokens are removed.

    Attributes
    ----------
    positions : tuple of int
        Positions of the tokens in the set, ascending. Tokens that cannot be removed, such as the
        token after which the answer is read, are not in the set.
    tokens : Tokens
        All tokens of the text.
    value, before : float
        Answer after all other tokens that can be removed are removed, and answer with all tokens.
    exact : bool
        Whether all smaller sets were tried, and none suffices. If False, only some sets were tried.
        Then removing any single token of this set makes the answer 0 or negative.
    measure : str
        Description of the answer.
    noise : float
        Bound of the rounding error of a difference of two answers, as in `TokenEffects`. If `value`
        does not exceed it, the set may suffice only by rounding.

    Examples
    --------
    >>> sufficient = SufficientTokens((1,), Tokens.of(["a", " b", " c"]), 1.0, 2.0, True, "", 0.1)
    >>> sufficient.texts
    ('b',)
    """

    positions: tuple[int, ...]
    tokens: Tokens
    value: float
    before: float
    exact: bool
    measure: str
    noise: float

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the tokens in the set, in the order of `positions`."""
        return tuple(self.tokens.text[position].strip("·") for position in self.positions)


@with_progress
def sufficient_tokens(
    model: Any,
    inputs: Any,
    *,
    removal: Removal = "mask",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> SufficientTokens:
    """Find a small set of tokens that suffices for the answer.

    A set suffices if the answer is positive after all other tokens are removed. If at most 16
    tokens can be removed, sets are tried in ascending size until one suffices, so the result is a
    smallest set. Among the sets of this size, the one with the largest answer is returned. If more
    than 16 tokens can be removed, they are removed one after the other. Each time, the token is
    removed whose removal leaves the largest answer. This ends before the first removal after which
    the answer is 0 or negative. A smaller set may then also suffice.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    removal : {"mask", "mean embedding", "mean color"}
        As for `attnviz.token_effects`.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. By default the logit of the most likely token minus that of the
        second.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default. This
        token is never removed.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    SufficientTokens

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text, if the answer of the complete text is not
        positive, or if the model has no logits and `answer` is None.
    MemoryError, NotImplementedError
        As for `attnviz.token_effects`.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                                # doctest: +SKIP
    >>> av.sufficient_tokens(model, "a b c a b", tokenizer=tokenizer).texts        # doctest: +SKIP
    """
    text = TokenRemover(
        model, inputs, target, options, removal=removal, answer=answer, position=position
    )
    measured, before = text.runner.answer, text.runner.before
    if measured.of_hidden_states or before <= 0:
        raise ValueError(
            f"answer={short_repr(answer)}: {measured.measure} is {before:.4g}. Pass an answer that "
            "is more likely than the other token, or a function that is above 0."
        )
    exact = len(text.choice) <= _EXACT
    kept, value = _smallest(text) if exact else _spared(text)
    positions = tuple(sorted(kept))
    return SufficientTokens(
        positions, text.tokens, value, before, exact, measured.measure, text.runner.noise
    )


def _smallest(text: TokenRemover) -> tuple[Sequence[int], float]:
    """Return the smallest sufficient set of tokens, and the answer without the other tokens.

    Sets are tried in ascending size, until one suffices. If several sets of this size suffice, the
    set with the largest answer is returned.
    """
    for size in range(len(text.choice)):
        kept = list(combinations(text.choice, size))
        gone = [tuple(token for token in text.choice if token not in subset) for subset in kept]
        values = text.answers(gone, f"sets of {size}")
        best = int(np.argmax(values))
        if values[best] > 0:
            return kept[best], values[best]
    return text.choice, text.runner.before


def _spared(text: TokenRemover) -> tuple[Sequence[int], float]:
    """Remove tokens one after the other, as `sufficient_tokens` does for more than 16 tokens.

    Return the positions of the remaining tokens, and the answer without the removed tokens.
    """
    kept, value = list(text.choice), text.runner.before
    gone: list[int] = []
    while kept:
        values = text.answers([(*gone, token) for token in kept], "tokens")
        best = int(np.argmax(values))
        if values[best] <= 0:
            break
        value = values[best]
        gone.append(kept.pop(best))
    return kept, value

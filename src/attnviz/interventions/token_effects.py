"""What each token does to the model's answer: every token left out alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.options import RecordOptions
from attnviz.interventions.removal import LeftOut, Removal, read_removal
from attnviz.interventions.runs import Runs
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.progress import Steps, run_steps, run_with_bar

__all__ = ["TokenEffects", "token_effects"]


@dataclass(frozen=True, eq=False)
class TokenEffects:
    """What leaving each token out does to the model's answer.

    Attributes
    ----------
    values : ndarray of float64
        (tokens,): the answer without the token minus the answer with it. NaN where there is none:
        for the token after which the answer is read and, where colours are left out, for tokens
        that are not patches of an image.
    noise : float
        How far the answer moves in the same computation when nothing is left out. A smaller effect
        says nothing.
    measure : str
        The answer in words.
    removal : {"mask", "mean embedding", "delete", "mean color"}
        How tokens were left out.
    tokens : Tokens
        The tokens.

    Examples
    --------
    >>> tokens = Tokens.of(["a", " b"])
    >>> effects = TokenEffects(np.array([-2.0, np.nan]), 0.0, "logit", "mask", tokens)
    >>> effects.values
    array([-2., nan])
    """

    values: NDArray[np.float64]
    noise: float
    measure: str
    removal: Removal
    tokens: Tokens

    def __repr__(self) -> str:
        if np.isnan(self.values).all():
            return f"<TokenEffects of {len(self.tokens)} tokens: none>"
        most = int(np.nanargmax(np.abs(self.values)))
        token = quote(self.tokens.text[most].strip("·"))
        return (
            f"<TokenEffects of {len(self.tokens)} tokens ({self.removal}): "
            f"{token} ({most}) moves the {self.measure} most, by "
            f"{self.values[most]:+.4g} (noise {self.noise:.2g})>"
        )


def token_effects(
    model: Any,
    inputs: Any,
    *,
    removal: Removal = "mask",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> TokenEffects:
    """Leave out every token alone, and say how far the model's answer moves.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    removal : {"mask", "mean embedding", "delete", "mean color"}
        ``"mask"``: no other token reads it, by the model's attention mask. ``"mean embedding"``:
        its embedding is replaced by the mean of the text's. ``"delete"``: the text goes without it.
        ``"mean color"``: a patch gets the mean colour of its picture.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. When left out, the likeliest answer against the second. With
        ``"delete"`` a function reads the output for a shorter text.
    position : int or str, optional
        The token after which the answer is read; the last one when left out.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether a bar is shown where it takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    TokenEffects
        One number for each token of the input.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit the model or the text: a model without a mask, without token
        embeddings, or without patches.
    NotImplementedError
        If the model answers otherwise when the same input comes several times in a batch.

    Notes
    -----
    There is more than one leave-one-out (Jain and Wallace 2019, arXiv 1902.10186, use the first),
    and they agree among themselves in part only: compare two before an attribution is judged by
    one (`attnviz.analysis.kendall_tau`). An effect of zero does not prove that a token is not
    needed: another one may say the same.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> av.token_effects(model, "a b c a b", tokenizer=tokenizer).values          # doctest: +SKIP
    """
    removal = read_removal(removal, options)
    runs = Runs.one(model, inputs, target, None, options)
    steps = _effects(runs, removal, answer, position)
    return run_with_bar(steps, "token effects") if progress else run_steps(steps)


def _effects(
    runs: Runs, removal: Removal, wanted: Any, position: int | str | None
) -> Steps[TokenEffects]:
    text = LeftOut(runs, removal, wanted, position)
    values = np.full(len(text.tokens), np.nan)
    found = yield from text.answers([(token,) for token in text.choice], "tokens")
    values[text.choice] = np.array(found) - text.before
    return TokenEffects(values, text.noise, text.answer.measure, removal, text.tokens)

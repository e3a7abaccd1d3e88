"""Effect of every token on the model's answer: each token is removed separately.

The answer is a number in the model's output, such as the logit of one token minus that of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.options import RecordOptions
from attnviz.interventions.removal import Removal, TokenRemover
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.numbers import describe_noise
from attnviz.utils.progress import with_progress

# A token counts as a sink of the model if it is a sink in at least this share of the heads.
_MANY_HEADS = 0.3


@dataclass(frozen=True, eq=False)
class TokenEffects:
    """Effects of removing each token on the model's answer.

    Attributes
    ----------
    values : ndarray of float64
        One number per token, (tokens,): the answer without the token minus the answer with it. NaN
        for tokens that cannot be removed: the token after which the answer is read and, with
        ``"mean color"``, tokens that are not patches of an image.
    noise : float
        Bound of the rounding error of an effect, which at least 90 % of the errors do not exceed.
        An effect that is not larger shows nothing. The bound is estimated from runs of the
        unchanged model in which the output of each module is rounded differently.
    measure : str
        Description of the answer.
    removal : {"mask", "mean embedding", "mean color"}
        Kind of removal.
    tokens : Tokens
        Tokens of the input. For an encoder-decoder model, the tokens of the encoder.
    sink_shares : ndarray of float64 or None
        Share of the heads in which each token is an attention sink, (tokens,): its weight, averaged
        over the other queries that may attend to it, exceeds that of uniform attention by more than
        30 % of the largest possible excess. Removing a sink changes these heads, whatever the token
        says. None if the attention has no softmax or does not fit into memory.

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
    sink_shares: NDArray[np.float64] | None = None

    @property
    def sinks(self) -> tuple[int, ...]:
        """Positions of the tokens that are sinks in at least 30 % of the heads."""
        if self.sink_shares is None:
            return ()
        return tuple(np.flatnonzero(self.sink_shares >= _MANY_HEADS).tolist())

    @property
    def sinks_in_words(self) -> str:
        """Words that name the sinks that were removed, or "" if there are none."""
        shares = self.sink_shares
        if shares is None:
            return ""
        named = [
            f"{quote(self.tokens.text[token].strip('·'))} ({token}) in {shares[token]:.0%} of heads"
            for token in self.sinks
            if not np.isnan(self.values[token])
        ]
        if not named:
            return ""
        why = "so removing them changes more than removing a word"
        return f"attention sinks, {why}: {', '.join(named)}"

    def __repr__(self) -> str:
        if np.isnan(self.values).all():
            return f"<TokenEffects of {len(self.tokens)} tokens: none>"
        most = int(np.nanargmax(np.abs(self.values)))
        token = quote(self.tokens.text[most].strip("·"))
        return (
            f"<TokenEffects of {len(self.tokens)} tokens ({self.removal}): "
            f"{token} ({most}) moves the {self.measure} most, by "
            f"{self.values[most]:+.4g} ({describe_noise(self.values.tolist(), self.noise)})"
            f"{'; ' * bool(self.sinks_in_words)}{self.sinks_in_words}>"
        )


@with_progress
def token_effects(
    model: Any,
    inputs: Any,
    *,
    removal: Removal = "mask",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> TokenEffects:
    """Remove each token separately, and measure the change of the model's answer.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    removal : {"mask", "mean embedding", "mean color"}
        - ``"mask"`` hides the token with the model's attention mask.
        - ``"mean embedding"`` replaces the token's embedding by the mean of all token embeddings of
          the text.
        - ``"mean color"`` replaces a patch of an image by the mean colour of the image.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. By default the logit of the most likely token minus that of the
        second.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    TokenEffects
        One number per token of the input, NaN for tokens that cannot be removed (see
        `TokenEffects`).

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text, for example if the model has no mask, no
        token embeddings or no patches.
    MemoryError
        If the copies of the text in one batch need more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If the answer of the model differs when its input is embeddings in place of token ids, or if
        the model or its adapter puts virtual tokens before the text that are also queries, as in
        prompt tuning.

    Notes
    -----
    Jain and Wallace (2019, arXiv 1902.10186) use ``"mask"``. Different kinds of removal give
    different effects. Before you evaluate an attribution with one kind, compare the effects of two
    kinds, for example with `attnviz.analysis.kendall_tau`. An effect of 0 does not prove that the
    token is not needed, because another token can contain the same information.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> av.token_effects(model, "a b c a b", tokenizer=tokenizer).values          # doctest: +SKIP
    """
    text = TokenRemover(
        model,
        inputs,
        target,
        options,
        removal=removal,
        answer=answer,
        position=position,
        finds_sinks=True,
    )
    answers = text.answers([(token,) for token in text.choice], "tokens")
    runner, values = text.runner, np.full(len(text.tokens), np.nan)
    values[text.choice] = np.array(answers) - runner.before
    return TokenEffects(
        values, runner.noise, runner.answer.measure, removal, text.tokens, text.sink_shares
    )

"""The effect of a change of the attention on the model's answer.

The answer is a number in the model's output, such as the logit of one token minus that of another.
The unchanged run is a run of the model without the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from attnviz.interventions.answer import Answer, exact_row, texts_of
from attnviz.interventions.runner import Runner
from attnviz.record.tokens import Candidate, quote
from attnviz.utils.numbers import compare_to_noise, format_signed

_CANDIDATES = 5


@dataclass(frozen=True)
class Effect:
    """Effect of a change of the attention on the model's answer.

    Attributes
    ----------
    measure : str
        Description of the answer: a difference of logits, the value of a function, or the cosine
        similarity of the last hidden states with the unchanged ones.
    before, after : float
        Answer of the unchanged and of the changed run.
    noise : float
        Bound of the rounding error of `change`, which at least 90 % of the errors do not exceed. A
        change that is not larger shows nothing. The bound is estimated from runs of the unchanged
        model in which the output of each module is rounded differently.
    divergence : float or None
        Kullback-Leibler divergence of the changed distribution from the unchanged one, in nats:
        the sum of p log(p / q), where p is the unchanged distribution and q the changed one. None
        if the model has no logits, or only one logit.
    candidates_before, candidates_after : tuple of Candidate
        Up to five most likely tokens or classes of the unchanged and of the changed run. Empty if
        the model has no logits, or only one logit.
    text_before, text_after : str or None
        Texts that the unchanged and the changed model generate. None without ``generate=``.

    Examples
    --------
    >>> effect = Effect("logit of “a” minus logit of “b”", 2.0, 0.5, 0.0, 0.3, (), ())
    >>> effect.change
    -1.5
    """

    measure: str
    before: float
    after: float
    noise: float
    divergence: float | None
    candidates_before: tuple[Candidate, ...]
    candidates_after: tuple[Candidate, ...]
    text_before: str | None = None
    text_after: str | None = None

    @property
    def change(self) -> float:
        """Answer of the changed run minus answer of the unchanged run."""
        return self.after - self.before

    def __str__(self) -> str:
        before, after = (format_signed(value, ".4g") for value in (self.before, self.after))
        sentence = f"{self.measure}: {before} before, {after} after"
        return self._compared(sentence) + self._texts()

    def _texts(self) -> str:
        """Return the last part of the description, which quotes the generated texts.

        Return "" if no text was generated.
        """
        if self.text_after is None:
            return ""
        rest = "as before"
        if self.text_before != self.text_after:
            rest = f"instead of {quote(self.text_before or '', longest=400)}"
        return f"; the model produces {quote(self.text_after, longest=400)} {rest}"

    def _compared(self, sentence: str) -> str:
        verdict = compare_to_noise(self.change, self.noise)
        if abs(self.change) > self.noise and self.candidates_before and self.candidates_after:
            one, other = self.candidates_before[0], self.candidates_after[0]
            if one.id == other.id:
                sentence += f"; the prediction stays {quote(one.text)}"
            else:
                sentence += (
                    f"; the prediction becomes {quote(other.text)} instead of {quote(one.text)}"
                )
        return f"{sentence} ({verdict})"


def share_of(outputs: Any, position: int | None, token: int) -> float:
    """Return the probability of the token or class with the id `token`.

    `position` is the index of the row of the logits. None is the last row. Return NaN if the output
    has no logits, or if each row has only one logit.
    """
    row = exact_row(outputs, position)
    return math.nan if row is None else float(torch.softmax(row, dim=-1)[token])


def effect_of(runner: Runner, answer: Answer, after: Any, perturbed: Sequence[Any]) -> Effect:
    """Return the effect of a change, with None as `text_before` and `text_after`.

    `after` are the model's outputs in the changed run. `perturbed` are the outputs of
    `Runner.perturbed`, from which the noise is estimated. If it is empty, the noise is 0. Raise
    ValueError if the answer of the changed run is NaN or infinite.
    """
    value = answer.value(answer.unchanged)
    noise = max(answer.noise(perturbed), answer.noise_after(perturbed, after))
    effect = Effect(answer.measure, value, answer.value(after), noise, None, (), ())
    if not math.isfinite(effect.after):
        raise ValueError(
            f"changes: the {answer.measure} of the changed model is NaN or infinite. Change less."
        )
    one, other = (exact_row(output, answer.position) for output in (answer.unchanged, after))
    if one is None or other is None:
        return effect
    logs = [torch.log_softmax(row, dim=-1) for row in (one, other)]
    shares = logs[0].exp()
    # If p is 0, p log(p / q) is NaN in floating point, but its limit is 0.
    divergence = float(torch.where(shares > 0, shares * (logs[0] - logs[1]), 0.0).sum())
    best = [_candidates(row, runner) for row in (one, other)]
    return replace(
        effect,
        divergence=max(0.0, divergence),
        candidates_before=best[0],
        candidates_after=best[1],
    )


def _candidates(row: torch.Tensor, runner: Runner) -> tuple[Candidate, ...]:
    best, ids = torch.softmax(row, dim=-1).topk(min(_CANDIDATES, len(row)))
    tokenizer = runner.example.loaded.find_target_tokenizer()
    classes = runner.reading.row is None
    texts = texts_of(ids.tolist(), runner.model, tokenizer, classes=classes)
    return tuple(map(Candidate, texts, ids.tolist(), best.tolist()))

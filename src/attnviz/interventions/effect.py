"""The effect of a change of the attention on the model's answer.

The answer is a number in the model's output, such as the logit of one token minus that of another.
The unchanged run is a run of the model without the change.

An effect also has a rank among the effects of the same change of all heads, tokens or layers, such
as of ablating each head of the model separately. The rank says whether an effect is large for this
text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.interventions.answer import Answer, exact_row, texts_of
from attnviz.interventions.changes import Change, HideTokens
from attnviz.interventions.runner import Copy, Runner, copies_per_batch
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, quote
from attnviz.utils.numbers import compare_to_noise, format_signed
from attnviz.utils.progress import part_of

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


# A measurement is cheap up to this many products of a parameter of the model, a token and a run,
# on a CPU and on another device. It then takes about a second.
_CHEAP_CPU, _CHEAP = 1e10, 1e12


@dataclass(frozen=True)
class SameChanges:
    """One change, made separately in each head or layer, or with each token.

    Attributes
    ----------
    changes : tuple of Change
        The changes.
    names : tuple of str
        Name of the head, layer or token of each change.
    unit : str
        What differs between the changes: "head", "layer" or "token".
    """

    changes: tuple[Any, ...]
    names: tuple[str, ...]
    unit: str

    @classmethod
    def of(cls, change: Change, stack: AttentionStack) -> SameChanges | None:
        """Return the changes that differ from `change` only in their head, layer or token.

        `change` is a result of `change_for_view`. Return None if there is no other such change, or
        if `change` hides no token and selects all layers.
        """
        fields: dict[str, dict[str, int]] = {}
        if isinstance(change, HideTokens):
            unit, texts = "token", [text.strip("·") for text in stack.key_tokens.text]
            fields = {f"{quote(text)} ({i})": {"tokens": i} for i, text in enumerate(texts)}
        elif change.layers is None:
            return None
        elif change.heads is None:
            unit, fields = "layer", {f"layer {layer}": {"layers": layer} for layer in stack.layers}
        else:
            unit = "head"
            for layer in stack.layers:
                for head in range(stack.num_heads(layer)):
                    fields[f"head {layer}.{head}"] = {"layers": layer, "heads": head}
        changes: tuple[Any, ...] = tuple(replace(change, **one) for one in fields.values())  # type: ignore[type-var]  # every change is a dataclass
        return cls(changes, tuple(fields), unit) if len(changes) > 1 else None

    def __str__(self) -> str:
        return f"{len(self.changes):,} {self.unit}s"

    def is_cheap(self, runner: Runner) -> bool:
        """Return whether all effects can be measured in about a second."""
        model, count = runner.model, len(self.changes)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        most = _CHEAP_CPU if model.device.type == "cpu" else _CHEAP
        return bool(parameters * _num_tokens(runner) * count <= most)

    def effects(self, runner: Runner, answer: Answer) -> NDArray[np.float64]:
        """Measure the effect of each change on `answer`, (changes,).

        Raise MemoryError if the runs need too much memory.
        """
        runner.example.check_runs(f"changing all {self}", kept=lambda _: 1)
        runner.answer, runner.before = answer, answer.value(runner.outputs)
        doing, count = f"{self.unit}s", len(self.changes)
        # A hidden token changes each layer and query. Make the changes of one batch at a time,
        # because those of all tokens need memory that grows with the square of the text.
        most = count
        if self.unit == "token":
            most = copies_per_batch(runner.example.loaded, _num_tokens(runner)) - 1
        answers: list[float] = []
        while len(answers) < count:
            changes = self.changes[len(answers) : len(answers) + most]
            copies = [Copy(runner.change(change)) for change in changes]
            with part_of(doing, len(answers), count, "run", size=len(copies)):
                answers += runner.answers(copies, doing=doing, unit="run")
        return np.array(answers) - runner.before

    def rank_in_words(self, change: Change, effects: NDArray[np.float64], noise: float) -> str:
        """Describe the rank of the effect of `change` by its absolute value, in a sentence.

        `effects` are those of `changes`. If the effect does not exceed `noise`, it has no rank. The
        sentence then says how many effects do.
        """
        sizes, own = np.abs(effects), self.changes.index(change)
        if sizes[own] <= noise:
            larger = int((sizes > noise).sum())
            have = "has" if larger == 1 else "have"
            return f"{larger:,} of the {self} {have} an effect larger than the noise."
        rank = 1 + int((sizes > sizes[own]).sum())
        others = np.delete(np.arange(len(sizes)), own)
        best = int(others[sizes[others].argmax()])
        number = format_signed(effects[best], "+.2g")
        if rank == 1:
            return f"The largest effect of all {self}; next is {self.names[best]} ({number})."
        return f"Rank {rank:,} of all {self}; {self.names[best]} has the largest ({number})."


def _num_tokens(runner: Runner) -> int:
    """Return the number of tokens of the longest text that the model reads."""
    stacks = runner.outline.stacks.values()
    return max(max(len(stack.query_tokens), len(stack.key_tokens)) for stack in stacks)

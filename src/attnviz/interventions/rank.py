"""Rank of an effect among the effects of the same change of all heads, tokens or layers.

For example, the effect of ablating one head has a rank among the effects of ablating each head of
the model separately. A rank says whether an effect is large for this text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.interventions.answer import Answer
from attnviz.interventions.changes import Change, HideTokens
from attnviz.interventions.runner import Copy, Runner, copies_per_batch
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.numbers import format_signed
from attnviz.utils.progress import part_of

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

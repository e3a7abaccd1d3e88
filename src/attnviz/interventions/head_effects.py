"""Effect of every head on the model's answer: each head is ablated separately.

The answer is a number in the model's output, such as the logit of one token minus that of another.
Ablating a head replaces its output by 0 or by a mean output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args, overload

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.inputs.examples import examples_of
from attnviz.extraction.options import RecordOptions, check_options
from attnviz.interventions.answer import one_for_each
from attnviz.interventions.changes import Ablate, with_means
from attnviz.interventions.example import NOT_KEPT, Example
from attnviz.interventions.means import Means, means_by_layer, means_of, sums_of
from attnviz.interventions.runner import Copy, Runner
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.utils.numbers import describe_noise
from attnviz.utils.progress import part_of, with_progress

Ablation = Literal["zero", "mean"]
Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadEffects(Sequence[Values]):
    """Effects of ablating each head on the model's answer. A sequence with one array per layer.

    A view can show the effects as scores: ``ModelView(record, scores={"effect": effects})``.

    Attributes
    ----------
    values : tuple of ndarray of float64
        One array per layer, (heads,). Each number is the answer without the head minus the answer
        with it, averaged over the texts.
    standard_errors : tuple of ndarray of float64 or None
        Standard errors of the means in `values`, in the same shapes. None if there is only one
        text.
    noise : float
        Bound of the rounding error of an effect, which at least 90 % of the errors do not exceed.
        An effect that is not larger shows nothing. The bound is estimated from runs of the
        unchanged model in which the output of each module is rounded differently. For several
        texts, it is the largest one.
    measure : str
        Description of the answer.
    stack : str
        Name of the stack with the heads.
    layers : tuple of int
        Numbers of the layers, as the model counts them.
    num_texts : int
        Number of texts.

    Examples
    --------
    >>> values = (np.array([-2.0, 0.1]),)
    >>> measure = "logit of “a” minus logit of “b”"
    >>> effects = HeadEffects(values, None, 0.01, measure, "self", (0,), 1)
    >>> effects[0]
    array([-2. ,  0.1])
    """

    values: tuple[Values, ...]
    standard_errors: tuple[Values, ...] | None
    noise: float
    measure: str
    stack: str
    layers: tuple[int, ...]
    num_texts: int

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Values: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Values, ...]: ...
    def __getitem__(self, index: int | slice) -> Values | tuple[Values, ...]:
        return self.values[index]

    def __repr__(self) -> str:
        _, layer, head, value = max(
            (abs(value), layer, head, value)
            for layer, values in zip(self.layers, self.values, strict=True)
            for head, value in enumerate(values.tolist())
        )
        return (
            f"<HeadEffects of {self.num_texts} text{'s' if self.num_texts > 1 else ''}: head "
            f"{layer}.{head} moves the {self.measure} most, by {value:+.4g} "
            f"({describe_noise(np.concatenate(self.values).tolist(), self.noise)})>"
        )


@with_progress
def head_effects(
    model: Any,
    inputs: Any,
    *,
    answer: Any = None,
    position: int | str | None = None,
    ablate: Ablation = "zero",
    stack: str | None = None,
    target: str | None = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> HeadEffects:
    """Ablate every head separately, and measure the change of the model's answer.

    The effects are measured, not estimated from gradients. The model runs on batches of copies of
    the text. In each copy, a different head is ablated. In most models, layers before the ablated
    head do not run again. If the answer of a copy depends on the other copies in the batch, the
    copies run one at a time.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object or list
        One example, as for `attnviz.extract`, or a list of texts.
    answer : int, str, pair of these, callable, or list, optional
        As for `attnviz.intervene`, or a list with one answer per text. By default, for each text
        the logit of the most likely token minus that of the second.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default.
    ablate : {"zero", "mean"}
        ``"zero"`` replaces the head's output by 0. ``"mean"`` replaces it by its mean over all
        tokens of the other texts, after the gate if the head has one, and needs at least two texts.
    stack : str, optional
        Name of the stack, the first one by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    HeadEffects
        One array per layer. Every view accepts it as ``scores=``.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the texts.
    MemoryError
        If the copies of a text in one batch need more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If the output of a head cannot be replaced, because the attention module computes everything
        in one torch function, or attends in windows.

    Notes
    -----
    An effect of 0 does not prove that the model does not use a head, because other heads can
    compensate for its removal. Some heads have an effect only if several are ablated together.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                              # doctest: +SKIP
    >>> effects = av.head_effects(model, "a b c a b", tokenizer=tokenizer)       # doctest: +SKIP
    >>> av.ModelView(record, scores={"effect": effects}, order="effect")         # doctest: +SKIP
    """
    if ablate not in get_args(Ablation):
        raise ValueError(f'ablate={short_repr(ablate)} must be "zero" or "mean"')
    check_options(options, refused=NOT_KEPT)
    examples, many = examples_of(inputs)
    if ablate == "mean" and len(examples) < 2:
        raise ValueError('ablate="mean" takes the mean over other texts. Pass at least two texts.')
    answers = one_for_each(answer, len(examples), many=many)
    # Check the memory for all texts before the model runs.
    texts = [Example.one(model, example, target, options) for example in examples]
    for text in texts:
        # `kept` is 1, because the output of each layer is stored: one vector per token.
        text.check_runs("ablating every head", kept=lambda _: 1)
    return _effects(texts, answers, position, stack, ablate)


def _effects(
    examples: Sequence[Example],
    answers: Sequence[Any],
    position: int | str | None,
    stack: str | None,
    ablate: Ablation,
) -> HeadEffects:
    """Measure the effects of all heads, and average them over the texts."""
    sums = [sums_of(example) for example in examples] if ablate == "mean" else []
    effects_of_texts: list[list[Values]] = []
    measures: set[str] = set()
    noise, name = 0.0, ""
    layers: tuple[int, ...] = ()
    count = len(examples)
    for index, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        with part_of("heads", index, count, "text"):
            runner = Runner(example)
            runner.ask(answer, position)
            attention_stack = runner.outline.stack(stack)
            means = means_of([*sums[:index], *sums[index + 1 :]]) if sums else None
            effects_of_texts.append(_effects_of_text(runner, attention_stack, means))
        layers, name = attention_stack.layers, attention_stack.name
        measures.add(runner.answer.measure)
        noise = max(noise, runner.noise)
        # Free the stored outputs of this text before the next text runs.
        del runner
    by_layer = [np.stack(effects) for effects in zip(*effects_of_texts, strict=True)]
    standard_errors = None
    if count > 1:
        standard_errors = tuple(effects.std(axis=0, ddof=1) / count**0.5 for effects in by_layer)
    return HeadEffects(
        tuple(effects.mean(axis=0) for effects in by_layer),
        standard_errors,
        noise,
        measures.pop()
        if len(measures) == 1
        else "logit of the most likely token minus that of the second",
        name,
        layers,
        count,
    )


def _effects_of_text(runner: Runner, stack: AttentionStack, means: Means | None) -> list[Values]:
    """Return the effects of all heads, one array per layer.

    An effect is the answer without the head minus the answer with it. `means` has the mean outputs
    that replace the outputs of the heads. If it is None, the outputs are replaced by 0.
    """
    copies = []
    for layer in stack.layers:
        for head in range(stack.num_heads(layer)):
            ablation = Ablate(layer, head, stack=stack.name, mean_of=means)
            if means is not None:
                ablation = with_means(ablation, means_by_layer(means, runner.module_runs))
            copies.append(Copy(runner.change(ablation)))
    answers = np.array(runner.answers(copies, doing="heads", unit="head"))
    last = np.cumsum([stack.num_heads(layer) for layer in stack.layers])
    return np.split(answers - runner.before, last[:-1])

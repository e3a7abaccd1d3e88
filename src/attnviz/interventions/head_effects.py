"""Effect of every head on the model's answer: each head is ablated separately."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.change import output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.inputs.encode import examples_of
from attnviz.extraction.options import RecordOptions
from attnviz.interventions.answer import answer_of, one_for_each, reading_of
from attnviz.interventions.copies import Copies, ModuleRun, rounding_of
from attnviz.interventions.means import Sums, means_of, sums_of
from attnviz.interventions.runs import MINIMAL_CAPTURE, NOT_KEPT, ExampleRunner, check_options
from attnviz.utils.arguments import short_repr
from attnviz.utils.progress import report, show_progress

__all__ = ["HeadEffects", "head_effects"]

Ablation = Literal["zero", "mean"]
Values = NDArray[np.float64]

# Maximum number of tokens in one batch, over all copies of a text, if the batch has more than two
# copies. Larger batches are not faster on a CPU.
_TOKENS_AT_ONCE = 4096


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
        Standard errors of these means. None if there is only one text.
    noise : float
        Rounding error of the measurement: the largest change of the answer for an unchanged copy in
        a batch. Smaller effects are not significant.
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
        sizes = [(abs(value), layer, head, value) for layer, head, value in self._heads()]
        _, layer, head, value = max(sizes)
        return (
            f"<HeadEffects of {self.num_texts} text{'s' if self.num_texts > 1 else ''}: head "
            f"{layer}.{head} moves the {self.measure} most, by {value:+.4g} (noise "
            f"{self.noise:.2g})>"
        )

    def _heads(self) -> Iterator[tuple[int, int, float]]:
        for layer, values in zip(self.layers, self.values, strict=True):
            for head, value in enumerate(values.tolist()):
                yield layer, head, value


def head_effects(
    model: Any,
    inputs: Any,
    *,
    answer: Any = None,
    position: int | str | None = None,
    ablate: Ablation = "zero",
    stack: str | None = None,
    target: str | None = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> HeadEffects:
    """Ablate every head separately, and measure the change of the model's answer.

    The effects are measured, not estimated from gradients. The model runs on batches of copies of
    the text, and each copy has another ablated head. In most models, layers before the ablated head
    do not run again.

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
        tokens of the other texts, and needs at least two texts.
    stack : str, optional
        Name of the stack, the first one by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether a progress bar is shown if the computation takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    HeadEffects
        One array per layer. Every view accepts it as ``scores=``.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit the model or the texts.
    MemoryError
        If the copies of a text in one batch need more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If the output of a head cannot be replaced, because the attention module computes everything
        in one torch function. Also if copies of one input in a batch have different answers.

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
    # `_runner_of` checks the memory. Create all runners before the model runs.
    runners = [_runner_of(model, example, target, options) for example in examples]
    sums: list[Sums] = []
    if ablate == "mean":
        sums = [_Text(runner, None, None, stack).sums() for runner in runners]

    def texts() -> Iterator[tuple[_Text, Mapping[ModuleRun, torch.Tensor] | None]]:
        for number, (runner, text_answer) in enumerate(zip(runners, answers, strict=True)):
            others = [*sums[:number], *sums[number + 1 :]]
            yield _Text(runner, text_answer, position, stack), means_of(others) if sums else None

    with show_progress("head effects", shown=progress):
        return _effects(texts(), len(runners))


def _runner_of(model: Any, text: Any, target: str | None, options: RecordOptions) -> ExampleRunner:
    """Return the runner of a text. Raise MemoryError if its ablations need too much memory."""
    runner = ExampleRunner.one(model, text, target, None, options)
    # `Copies` stores one vector per token and layer: the output of the layer.
    runner.check_runs("ablating every head", copies=_most_copies, kept=lambda _: 1)
    return runner


def _effects(
    texts: Iterator[tuple[_Text, Mapping[ModuleRun, torch.Tensor] | None]], count: int
) -> HeadEffects:
    """Measure the effects of all heads, and average them over the texts.

    `texts` yields each text with the mean outputs of heads over the other texts, or None for
    ``"zero"``. `texts` is an iterator, so that the layer outputs of only one text are in memory.
    """
    effects_of_texts: list[list[Values]] = []
    measures: set[str] = set()
    noise, stack = 0.0, ""
    layers: tuple[int, ...] = ()
    for number, (text, mean) in enumerate(texts):
        values: list[Values] = []
        while len(values) < len(text.layers):
            reused = text.reuses
            values.append(text.effects_of(text.layers[len(values)], mean))
            if text.reuses < reused:
                # The check failed with stored outputs of layers. All effects so far were measured
                # with stored outputs, so they are measured again.
                values = []
            done = number * text.num_heads + sum(map(len, values))
            report("heads", done, count * text.num_heads, "head")
        effects_of_texts.append(values)
        if effects_of_texts[1:] and text.layers != layers:
            raise ValueError(
                "inputs: the texts run through different layers, so that their effects cannot be "
                "averaged"
            )
        layers, stack = text.layers, text.stack
        measures.add(text.answer.measure)
        noise = max(noise, text.noise)
        # Free the memory of this text before the iterator creates the next text.
        del text
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
        stack,
        layers,
        count,
    )


def _most_copies(num_tokens: int) -> int:
    """Return the maximum number of copies of a text in one batch."""
    return max(2, _TOKENS_AT_ONCE // num_tokens)


class _Text:
    """Runs of one text in which each copy has one ablated head."""

    def __init__(
        self, runner: ExampleRunner, answer: Any, position: int | str | None, stack: str | None
    ) -> None:
        self._model = runner.loaded.model
        plain = runner.forward(MINIMAL_CAPTURE, None)
        record = runner.record(plain, MINIMAL_CAPTURE)
        reading = reading_of(record, position, plain.outputs, runner.batch, answer)
        row, logits = reading.row, reading.logits(answer)
        self.stack = record.stack(stack).name
        layer_runs = plain.stacks[self.stack]
        self.layers = tuple(layer_runs.examples[0])
        self._module_runs: dict[int, ModuleRun] = {}
        self._heads: dict[int, int] = {}
        for layer, run in zip(self.layers, layer_runs.runs, strict=True):
            self._module_runs[layer], self._heads[layer] = (run.name, run.turn), run.num_heads
        self.num_heads = sum(self._heads.values())
        self._num_tokens = max(len(record.stack(stack).query_tokens), 1)
        self._trace_all = plain.collector.trace_all
        self._batch = runner.batch
        own = getattr(plain.outputs, "logits", None)
        if reading.lacks(plain.outputs, None):
            # If the text is padded at its end, the last row of logits does not belong to its last
            # token. So the model runs again and returns more rows.
            own = runner.forward(MINIMAL_CAPTURE, None, reading.logits(None)).outputs.logits
        own = None if row is None or own is None else own[0, row].float()
        del record, plain
        # To save time and memory, the language head computes only the needed rows, unless this
        # changes the logits, as in some models for pretraining.
        for shorten in (False,) if own is None else (True, False):
            self._copies = Copies(
                self._model, runner.batch, logits, trace_all=self._trace_all, shorten=shorten
            )
            if own is None or self._is_same(self._copies.outputs.logits[0, row].float(), own):
                break
        self.answer = answer_of(runner, self._copies.outputs, answer, reading)
        self._before = self.answer.value(self._copies.outputs)
        self.noise = 0.0
        self._most = _most_copies(self._num_tokens)

    @property
    def reuses(self) -> bool:
        """Whether layers before the ablated head return stored outputs, and do not run again."""
        return self._copies.reuses

    def _is_same(self, row: torch.Tensor, own: torch.Tensor) -> bool:
        """Return whether a row of logits is equal to the model's own row, up to rounding errors."""
        most = rounding_of(self._model, float(own.abs().max()))
        return bool((row - own).abs().max() <= most)

    def sums(self) -> Sums:
        """Return the sum of each head's outputs over all tokens, and the number of tokens."""
        return sums_of(self._model, self._batch, trace_all=self._trace_all)

    def effects_of(self, layer: int, mean: Mapping[ModuleRun, torch.Tensor] | None) -> Values:
        """Return the effects of all heads of a layer, (heads,).

        An effect is the answer without the head minus the answer with it. `mean` has the mean
        outputs that replace the outputs of heads, or is None for 0.
        """
        module_run, heads = self._module_runs[layer], self._heads[layer]
        values = np.empty(heads)
        start = 0
        while start < heads:
            # In the first and the last layer, and without stored outputs, the batch has an
            # additional unchanged copy. If the answer of this copy differs from that of the text
            # alone, the model does not compute each copy separately.
            check = layer in (self.layers[0], self.layers[-1]) or not self.reuses
            chunk = list(range(start, min(heads, start + self._most - check)))
            outputs = self._ablated(module_run, chunk, mean, check=check)
            if outputs is None:
                continue
            for copy, head in enumerate(chunk, int(check)):
                values[head] = self.answer.value(outputs, copy) - self._before
            start += len(chunk)
        return values

    def _ablated(
        self,
        module_run: ModuleRun,
        heads: Sequence[int],
        mean: Mapping[ModuleRun, torch.Tensor] | None,
        *,
        check: bool,
    ) -> Any:
        """Return the model's outputs for a batch in which each copy lacks one of `heads`.

        With `check`, the batch starts with an unchanged copy. If its answer differs from that of
        the text alone, return None, and do not use stored outputs of layers in later calls. Raise
        NotImplementedError instead if this call did not use stored outputs.
        """
        copies = [*([None] if check else []), *heads]
        reached: list[ModuleRun] = []

        def ablate(call: AttentionCall, current: ModuleRun) -> None:
            if current != module_run:
                return
            output = output_by_head(call, module_run[0], len(copies))
            for copy, head in enumerate(copies):
                if head is None:
                    continue
                own = output[copy, :, head]
                if mean is None:
                    own.zero_()
                else:
                    own.copy_(mean[module_run][head].to(own).expand_as(own))
            reached.append(module_run)

        outputs = self._copies.run(len(copies), ablate, before=module_run)
        if not reached:
            raise NotImplementedError(
                f"model: {module_run[0]} computes its attention in one function, or in an "
                "unsupported way, so that it cannot be changed. Pass another stack."
            )
        if not check:
            return outputs
        off = abs(self.answer.value(outputs) - self._before)
        if off <= rounding_of(self._model, self._before):
            self.noise = max(self.noise, off)
            return outputs
        if not self.reuses:
            raise NotImplementedError(
                f"model: the answer of {type(self._model).__name__} differs between copies of one "
                f"input in a batch (by {off:.2g}). Change one head at a time with intervene(model, "
                "inputs, Ablate(layers=, heads=))."
            )
        self._copies.reuses = False
        return None

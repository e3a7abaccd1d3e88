"""What each head does to the model's answer: every head ablated alone, exactly."""

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
from attnviz.interventions.copies import Copies, Place, rounding_of
from attnviz.interventions.means import Sums, means_of, sums_of
from attnviz.interventions.runs import LEAST, NOT_KEPT, Runs, check_options
from attnviz.utils.arguments import short_repr
from attnviz.utils.progress import Progress, Steps, run_steps, run_with_bar

__all__ = ["HeadEffects", "head_effects"]

Ablation = Literal["zero", "mean"]
Values = NDArray[np.float64]

# Tokens of all copies together: more make a forward no faster on a processor.
_TOKENS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class HeadEffects(Sequence[Values]):
    """What ablating each head does to the model's answer; a sequence of one array a layer.

    It can be given to a view: ``ModelView(record, scores={"effect": effects})``.

    Attributes
    ----------
    values : tuple of ndarray of float64
        One a layer, (heads,): the answer without the head minus the answer with it, a mean over
        the texts.
    standard_errors : tuple of ndarray of float64 or None
        Standard errors of these means; None for one text.
    noise : float
        How far the answer moves in the same computation when no head is ablated. A smaller effect
        says nothing.
    measure : str
        The answer in words.
    stack : str
        The stack that the heads belong to.
    layers : tuple of int
        The model's numbers of the layers.
    num_texts : int
        How many texts there are.

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
        sizes = [(abs(value), layer, head, value) for layer, head, value in self._each()]
        _, layer, head, value = max(sizes)
        return (
            f"<HeadEffects of {self.num_texts} text{'s' if self.num_texts > 1 else ''}: head "
            f"{layer}.{head} moves the {self.measure} most, by {value:+.4g} (noise "
            f"{self.noise:.2g})>"
        )

    def _each(self) -> Iterator[tuple[int, int, float]]:
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
    """Ablate every head alone, and say how far the model's answer moves.

    Exact: one forward for each head, many of them in one batch. Layers before the head are not run
    again.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object or list
        One example, as for `attnviz.extract`, or a list of texts.
    answer : int, str, pair of these, callable, or list, optional
        As for `attnviz.intervene`; a list with one for each text. When left out, in each text the
        likeliest answer against the second.
    position : int or str, optional
        The token after which the answer is read; the last one when left out.
    ablate : {"zero", "mean"}
        What a head's output is replaced by: 0, or its mean over the tokens of the other texts, of
        which there must be one at least.
    stack : str, optional
        The first when left out.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether a bar is shown where it takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    HeadEffects
        One array a layer, for ``scores=`` of any view.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit the model or the texts.
    MemoryError
        If the copies of a text that run at once would exceed what is free; says so before the model
        runs. Texts run one after the other.
    NotImplementedError
        If a module of the stack computes its attention inside of one torch function.

    Notes
    -----
    An ablated head is one way of leaving it out. Other heads may make up for it, so that an effect
    of zero does not prove that a head does nothing. Heads may matter together that do not matter
    alone.

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
        raise ValueError('ablate="mean" takes the mean over other texts; pass at least two texts')
    answers = one_for_each(answer, len(examples), many=many)
    # Check the memory for all texts before the model runs. Then run one text after the other.
    runs = [_runs(model, example, target, options) for example in examples]
    sums: list[Sums] = []
    if ablate == "mean":
        sums = [_Text(each, None, None, stack).sums() for each in runs]

    def texts() -> Iterator[tuple[_Text, Mapping[Place, torch.Tensor] | None]]:
        for number, (each, wanted) in enumerate(zip(runs, answers, strict=True)):
            others = [*sums[:number], *sums[number + 1 :]]
            yield _Text(each, wanted, position, stack), means_of(others) if sums else None

    steps = _effects(texts(), len(runs))
    return run_with_bar(steps, "head effects") if progress else run_steps(steps)


def _runs(model: Any, text: Any, target: str | None, options: RecordOptions) -> Runs:
    """Encode a text; raise MemoryError if ablating its heads would take more than is free."""
    runs = Runs.one(model, text, target, None, options)
    # Each layer's output is kept, and handed back to copies of the text.
    runs.check_runs("ablating every head", copies=_most_copies, kept=lambda _: 1)
    return runs


def _effects(
    texts: Iterator[tuple[_Text, Mapping[Place, torch.Tensor] | None]], count: int
) -> Steps[HeadEffects]:
    """Run texts one after the other, so that the outputs of one text are kept at a time."""
    found: list[list[Values]] = []
    measures: set[str] = set()
    noise, stack = 0.0, ""
    layers: tuple[int, ...] = ()
    for number, (text, mean) in enumerate(texts):
        values: list[Values] = []
        while len(values) < len(text.layers):
            reused = text.reuses
            values.append(text.effects_of(text.layers[len(values)], mean))
            if text.reuses < reused:
                # What was found by the faster way is not to be trusted.
                values = []
            done = number * text.num_heads + sum(map(len, values))
            yield Progress("heads", done, count * text.num_heads, "head")
        found.append(values)
        if found[1:] and text.layers != layers:
            raise ValueError("inputs: the texts ran through different layers")
        layers, stack = text.layers, text.stack
        measures.add(text.answer.measure)
        noise = max(noise, text.noise)
        # The next text is made before the loop assigns it.
        del text
    by_layer = [np.stack(each) for each in zip(*found, strict=True)]
    standard_errors = None
    if count > 1:
        standard_errors = tuple(each.std(axis=0, ddof=1) / count**0.5 for each in by_layer)
    return HeadEffects(
        tuple(each.mean(axis=0) for each in by_layer),
        standard_errors,
        noise,
        measures.pop() if len(measures) == 1 else "logit of the likeliest minus the second",
        stack,
        layers,
        count,
    )


def _most_copies(num_tokens: int) -> int:
    """How many copies of a text run at once."""
    return max(2, _TOKENS_AT_ONCE // num_tokens)


class _Text:
    """One example, and the forwards with one head ablated each."""

    def __init__(
        self, runs: Runs, wanted: Any, position: int | str | None, stack: str | None
    ) -> None:
        self._model = runs.loaded.model
        plain = runs.forward(LEAST, None)
        record = runs.record(plain, LEAST)
        reading = reading_of(record, position, plain.outputs, runs.batch, wanted)
        row, logits = reading.row, reading.logits(wanted)
        self.stack = record.stack(stack).name
        found = plain.stacks[self.stack]
        self.layers = tuple(found.examples[0])
        self._places: dict[int, Place] = {}
        self._heads: dict[int, int] = {}
        for layer, run in zip(self.layers, found.runs, strict=True):
            self._places[layer], self._heads[layer] = (run.name, run.turn), run.num_heads
        self.num_heads = sum(self._heads.values())
        self._num_tokens = max(len(record.stack(stack).query_tokens), 1)
        self._trace_all = plain.collector.trace_all
        self._batch = runs.batch
        own = getattr(plain.outputs, "logits", None)
        if reading.lacks(plain.outputs, None):
            # Padding stands behind the text, and the language head was given the last token alone.
            own = runs.forward(LEAST, None, reading.logits(None)).outputs.logits
        own = None if row is None or own is None else own[0, row].float()
        del record, plain
        # A language head without logits of its own name (pretraining) keeps all its rows.
        for shorten in (False,) if own is None else (True, False):
            self._copies = Copies(
                self._model, runs.batch, logits, trace_all=self._trace_all, shorten=shorten
            )
            if own is None or self._is_same(self._copies.outputs.logits[0, row].float(), own):
                break
        self.answer = answer_of(runs, self._copies.outputs, wanted, reading)
        self._before = self.answer.value(self._copies.outputs)
        self.noise = 0.0
        self._most = _most_copies(self._num_tokens)

    @property
    def reuses(self) -> bool:
        """Whether layers before the ablated head are not run again."""
        return self._copies.reuses

    def _is_same(self, row: torch.Tensor, own: torch.Tensor) -> bool:
        """Whether logits are the model's own, but for rounding."""
        most = rounding_of(self._model, float(own.abs().max()))
        return bool((row - own).abs().max() <= most)

    def sums(self) -> Sums:
        """The sum of each head's outputs over all tokens, and their number."""
        return sums_of(self._model, self._batch, trace_all=self._trace_all)

    def effects_of(self, layer: int, mean: Mapping[Place, torch.Tensor] | None) -> Values:
        """The answer without each head of a layer, minus the answer with all."""
        place, heads = self._places[layer], self._heads[layer]
        values = np.empty(heads)
        start = 0
        while start < heads:
            # An unchanged copy beside the others tells whether copies are run as they should be.
            check = layer in (self.layers[0], self.layers[-1]) or not self.reuses
            some = list(range(start, min(heads, start + self._most - check)))
            outputs = self._ablated(place, some, mean, check=check)
            if outputs is None:
                continue
            for copy, head in enumerate(some, int(check)):
                values[head] = self.answer.value(outputs, copy) - self._before
            start += len(some)
        return values

    def _ablated(
        self,
        place: Place,
        heads: Sequence[int],
        mean: Mapping[Place, torch.Tensor] | None,
        *,
        check: bool,
    ) -> Any:
        """Outputs of one copy for each head, behind an unchanged one where they are checked.

        None where that is not what the model gives for the input alone.
        """
        copies = [*([None] if check else []), *heads]
        reached: list[Place] = []

        def ablate(call: AttentionCall, here: Place) -> None:
            if here != place:
                return
            output = output_by_head(call, place[0], len(copies))
            for copy, head in enumerate(copies):
                if head is None:
                    continue
                own = output[copy, :, head]
                if mean is None:
                    own.zero_()
                else:
                    own.copy_(mean[place][head].to(own).expand_as(own))
            reached.append(place)

        outputs = self._copies.run(len(copies), ablate, before=place)
        if not reached:
            raise NotImplementedError(
                f"model: {place[0]} computes its attention in one function, or in a way that "
                "cannot be followed, where nothing can be changed yet; pass another stack="
            )
        if not check:
            return outputs
        off = abs(self.answer.value(outputs) - self._before)
        if off <= rounding_of(self._model, self._before):
            self.noise = max(self.noise, off)
            return outputs
        if not self.reuses:
            raise NotImplementedError(
                f"model: {type(self._model).__name__} answers otherwise when the same input comes "
                f"several times in a batch (by {off:.2g}); change one head at a time with "
                "intervene(model, inputs, Ablate(layers=, heads=))"
            )
        self._copies.reuses = False
        return None

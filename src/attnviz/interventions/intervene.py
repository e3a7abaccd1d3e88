"""The function `intervene`: runs a model with changed attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Unpack, overload

import torch
from tqdm.auto import tqdm

from attnviz.extraction.capture.change import ForwardChange, LayerChange
from attnviz.extraction.capture.forward import Forward
from attnviz.extraction.capture.steps import MORE_KEYS, MORE_QUERIES, ChangedSteps, StepChange
from attnviz.extraction.inputs.generate import (
    Generated,
    GenerationSettings,
    read_generation_settings,
)
from attnviz.extraction.models import load
from attnviz.extraction.options import CaptureOptions, RecordOptions, read_capture_options
from attnviz.extraction.tokens.text import token_texts
from attnviz.interventions.answer import answer_of, one_for_each, reading_of
from attnviz.interventions.changes import (
    Ablate,
    Change,
    check_change,
    description_of,
    for_generation,
    keeps_row_sums,
    layer_change,
    with_means,
)
from attnviz.interventions.copies import ModuleRun
from attnviz.interventions.effect import Effect, effect_of
from attnviz.interventions.means import means_of, sums_of
from attnviz.interventions.runs import MINIMAL_CAPTURE, ExampleRunner, answering_stack
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

__all__ = [
    "ChangedRecord",
    "ModuleRuns",
    "Plan",
    "by_module",
    "changed_record",
    "identity_of",
    "intervene",
    "module_runs_of",
    "outline_of",
    "plan_of",
    "read_changes",
    "unchanged",
]


class ChangedRecord(AttentionRecord):
    """Record of a run with changed attention, as `attnviz.intervene` returns it.

    Attributes
    ----------
    effect : Effect
        Effect of the changes on the model's answer.
    changes : tuple of Change
        Changes of the attention, in the order in which they are applied.

    Examples
    --------
    >>> record = intervene(model, "a b c a b", Ablate(layers=1), ...)  # doctest: +SKIP
    >>> record.effect.change                                           # doctest: +SKIP
    """

    effect: Effect
    changes: tuple[Change, ...]


@overload
def intervene(
    model: Any,
    inputs: str | tuple[str, str],
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    decoder_input_ids: Any = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> ChangedRecord: ...


@overload
def intervene(
    model: Any,
    inputs: list[str] | list[tuple[str, str]],
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: Sequence[str] | None = None,
    decoder_input_ids: Any = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> list[ChangedRecord]: ...


# Inputs of other types can be one example or several, so the type of the result is Any.
@overload
def intervene(
    model: Any,
    inputs: Any,
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: str | Sequence[str] | None = None,
    decoder_input_ids: Any = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> Any: ...


def intervene(
    model: Any,
    inputs: Any,
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: str | Sequence[str] | None = None,
    decoder_input_ids: Any = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> ChangedRecord | list[ChangedRecord]:
    """Run a model with changed attention, and measure the effect on its answer.

    The attention functions of the model run without modification. Then the outputs of the changed
    heads at the changed queries are overwritten. In the changed layer, all other outputs stay
    bit-identical. The model also runs without changes, and in a third run that overwrites the same
    outputs with values computed from the unchanged weights. This third run measures the rounding
    error of the method (`Effect.noise`).

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object or list
        As for `attnviz.extract`. If inputs are a list of texts or an encoded batch, each example
        runs separately, without padding. Positions and token texts in `changes` are looked up in
        each example.
    changes : Change or iterable of Change
        `Ablate`, `Knockout`, `HideTokens` or `SetWeights`. Several changes of one layer are applied
        in their order.
    answer : int, str, pair of these, callable, or list, optional
        The number to measure.

        - For a pair of tokens or classes such as ``(" animal", " street")``, it is the logit of the
          first minus the logit of the second.
        - For a single token, it is the logit of this token minus that of the most likely other one.
        - By default, it is the logit of the most likely token before the change, minus that of the
          most likely other token after the change.
        - A function takes the model's output for one example, with a first axis of size 1, and
          returns one number, as in ``lambda output: output.start_logits[0, 3]``.
        - For a model without logits, the default is the cosine similarity of the last hidden states
          before and after the change.

        For several texts, a list has one answer per text.
    position : int or str, optional
        Token after which the answer is read, by position or text. By default the last token, or
        with `generate` the last token of the prompt.
    target : str or list of str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    decoder_input_ids : Tensor or sequence of int, optional
        As for `attnviz.extract`.
    progress : bool
        Whether a progress bar is shown for several texts, and for a generation that takes longer
        than a second.
    **options
        `tokenizer`, `processor`, `truncation`, `generate`, `name`, `layers`, `dtype` and `device`
        of `attnviz.extract`. `layers` selects the layers of the record, and does not limit the
        changed layers. With `generate`, the model generates a text while its attention is changed
        in every step, see the notes.

    Returns
    -------
    ChangedRecord or list of ChangedRecord
        Record of the changed run. Its weights are the changed weights, its notes describe the
        changes, and `ChangedRecord.effect` has their effect. If inputs are a list or an encoded
        batch with several examples, a list with one record per example.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text. For example, a layer, head or token does
        not exist, a token text occurs twice, the answer is not in the vocabulary, or `changes` is
        empty.
    MemoryError
        If the record needs more than the free memory. The error is raised before the model runs.
    NotImplementedError
        If the attention of a module cannot be changed, because one torch function computes it, or
        because the module attends within windows. The error is raised before a text is generated.

    Notes
    -----
    A change can bring the model into a state that did not occur in training. Other heads can also
    compensate for a change, so an effect of 0 does not prove that the model does not use a head.

    With `generate`, the model generates two texts from the same random state: `Effect.text_before`
    without the changes and `Effect.text_after` with them. Then the unchanged and the changed model
    read the prompt with the text of the changed model. The record and the effect come from these
    runs. By default, the answer is measured after the last token of the prompt.

    With `generate`, token texts and negative positions in `changes` refer to the prompt. In an
    encoder-decoder model, those of the decoder refer to its first input. A position after the end
    of the prompt refers to a generated token. A change without `queries` or `keys` also applies to
    generated tokens. Passed weights apply only to the tokens of the prompt.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> record = av.intervene(model, "a b c a b", av.Ablate(layers=1, heads=0),
    ...                       tokenizer=tokenizer)                             # doctest: +SKIP
    >>> print(record.effect)                                                   # doctest: +SKIP
    """
    change_list = read_changes(changes)
    capture = read_capture_options(
        options.get("layers"), options.get("dtype"), options.get("device", "cpu")
    )
    settings = None
    if options.get("generate") is not None:
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        # If the user passed a hub id or a folder, `model` becomes the loaded model, so that it is
        # not loaded again. A pipeline is not replaced, because it has the tokenizer.
        model = loaded.model if isinstance(model, str | PathLike) else model
        settings = read_generation_settings(options["generate"], loaded.model)
    runners, many = ExampleRunner.several(
        model, inputs, target, decoder_input_ids, options, settings=settings
    )
    answers = one_for_each(answer, len(runners), many=many)
    means = _Means()
    records = []
    bar = tqdm(runners, desc="intervene", unit="text", disable=not (progress and many))
    for runner, text_answer in zip(bar, answers, strict=True):
        one = _Intervention(runner, change_list, capture, means)
        if settings is None:
            records.append(one.record(text_answer, position))
        else:
            records.append(one.generated(text_answer, position, settings, progress=progress))
    return records if many else records[0]


class _Intervention:
    """Intervention on one example, with all runs of the model that it needs."""

    def __init__(
        self, run: ExampleRunner, changes: tuple[Change, ...], kept: CaptureOptions, means: _Means
    ) -> None:
        self._run = run
        self._changes = changes
        self._kept = kept
        self._means = means
        self._model = run.loaded.model
        self._tokenizer = run.encoder.tokenizer(required=False)

    def record(self, answer: Any, position: int | str | None) -> ChangedRecord:
        """Return the record of the changed run on the example, without a generated text."""
        self._run.check_memory(self._kept)
        before = self._run.forward(MINIMAL_CAPTURE, None)
        record = outline_of(self._run.record(before, MINIMAL_CAPTURE), before)
        changes = self._means.insert(self._changes, record, before, self._run)
        return self._compared(self._run, changes, (before, record), (answer, position), None)

    def generated(
        self,
        answer: Any,
        position: int | str | None,
        settings: GenerationSettings,
        *,
        progress: bool,
    ) -> ChangedRecord:
        """Generate a text with changed attention, and return the changed record of this text."""
        run = self._run
        run.check_memory(self._kept, settings)
        prompt = run
        if run.encoder.encoder_decoder:
            # The first input of the decoder is only known after a generation, so one token is
            # generated.
            first = read_generation_settings(1, self._model)
            prompt = run.with_generated_text(run.generated(first, progress=False), first.method)
        before = prompt.forward(MINIMAL_CAPTURE, None)
        record = outline_of(prompt.record(before, MINIMAL_CAPTURE), before)
        count = len(answering_stack(record).query_tokens)
        longest = settings.max_tokens(count)
        prompt_changes = self._means.insert(self._changes, record, before, prompt)
        changes = tuple(_for_generation(change, record, longest) for change in prompt_changes)
        plan = plan_of(changes, record, module_runs_of(before))
        # If the model does not support the changes, this run raises the error before the slow
        # generation.
        prompt.forward(MINIMAL_CAPTURE, _identity(plan))
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            unchanged_text = run.generated(settings, progress=progress)
        steps = ChangedSteps(
            self._model,
            _in_steps(changes, record, plan),
            trace_all=before.collector.trace_all,
        )
        text = run.generated(settings, progress=progress, watch=steps.watch)
        made = run.with_generated_text(text, settings.method)
        before = made.forward(MINIMAL_CAPTURE, None)
        record = outline_of(made.record(before, MINIMAL_CAPTURE), before)
        # An answer that is a function reads the whole output, and cannot have a position.
        read_after = count - 1 if position is None and not callable(answer) else position
        texts = tuple(map(self._text, (unchanged_text, text)))
        return self._compared(made, changes, (before, record), (answer, read_after), texts)

    def _text(self, generated: Generated) -> str:
        ids = generated.ids[generated.prefix :].tolist()
        if self._tokenizer is None:
            return "".join(token_texts(ids, None))
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _compared(
        self,
        run: ExampleRunner,
        changes: tuple[Change, ...],
        read: tuple[Forward, AttentionRecord],
        asked_for: tuple[Any, int | str | None],
        texts: tuple[str, ...] | None,
    ) -> ChangedRecord:
        before, record = read
        plan = plan_of(changes, record, module_runs_of(before))
        answer, position = asked_for
        reading = reading_of(record, position, before.outputs, run.batch, answer)
        logits = reading.logits(answer)
        if reading.lacks(before.outputs, answer):
            before = run.forward(MINIMAL_CAPTURE, None, logits)
        measured = partial(answer_of, run, before.outputs, answer, reading)
        # If the answer is invalid, this call raises the error before the model runs again.
        measured()
        same = run.forward(MINIMAL_CAPTURE, _identity(plan), logits)
        changed = run.forward(self._kept, by_module(plan), logits)
        effect = effect_of(
            run, measured(changed.outputs), after=changed.outputs, identity=same.outputs
        )
        if texts is not None:
            effect = replace(effect, text_before=texts[0], text_after=texts[1])
        made = changed_record(run.record(changed, self._kept), changes, plan, record, effect)
        made.changes = self._changes
        return made


def _for_generation(change: Change, record: AttentionRecord, longest: int) -> Change:
    """Return the change for a text that the model generates after the text of `record`.

    `longest` is the maximum number of tokens of the whole text. See `for_generation`.
    """
    _check_stack(change, record)
    stack = record.stack(change.stack)
    queries, keys = (
        longest if more else len(tokens)
        for more, tokens in (
            (stack.name in MORE_QUERIES, stack.query_tokens),
            (stack.name in MORE_KEYS, stack.key_tokens),
        )
    )
    return for_generation(change, stack, (queries, keys))


def _in_steps(
    changes: Sequence[Change], record: AttentionRecord, plan: Plan
) -> dict[StackLayer, StepChange]:
    """Return the changes of each attention module during a generation.

    The numbers of queries and keys can grow, so a `LayerChange` is made for each step.
    """
    # Cache with one entry. At each step, the layers of a stack run one after the other, with the
    # same numbers of queries and keys.
    outlines: dict[tuple[str, int, int], AttentionStack] = {}
    by_stack = _by_stack(changes, record)

    def at(name: str, number: int, queries: int, keys: int) -> LayerChange:
        if (name, queries, keys) not in outlines:
            outlines.clear()
            outlines[name, queries, keys] = _lengthened(record.stack(name), queries, keys)
        change = layer_change(by_stack[name], outlines[name, queries, keys], number)
        if change is None:
            raise RuntimeError(f"layer {number} of stack {name!r} is not changed")
        return change

    made = {}
    for (name, number), (module_run, _) in plan.items():
        num_heads = record.stack(name).attention(number).num_heads
        made[module_run] = StepChange(name, num_heads, partial(at, name, number))
    return made


def _lengthened(stack: AttentionStack, queries: int, keys: int) -> AttentionStack:
    """Return a stack without attention for a longer text, with as many heads and layers as `stack`.

    All tokens of the result have empty texts.
    """
    if (queries, keys) == (len(stack.query_tokens), len(stack.key_tokens)):
        return stack
    rows = Tokens.of([""] * queries)
    same = stack.key_tokens is stack.query_tokens
    return AttentionStack(
        stack.name,
        {
            number: _outline(
                stack.num_heads(number),
                queries,
                keys,
                vectors=stack.attention(number).vectors is not None,
            )
            for number in stack.layers
        },
        rows,
        None if same else Tokens.of([""] * keys),
    )


def _outline(heads: int, queries: int, keys: int, *, vectors: bool) -> LayerAttention:
    """Return an attention layer in which only the shape matters. Its arrays take almost no memory.

    `vectors` is whether the layer has queries and keys, or only weights.
    """
    one = torch.zeros(1, 1, 1)
    if not vectors:
        return StoredWeights(one.expand(heads, queries, keys))
    return QueryKeyAttention(one.expand(heads, queries, 1), one.expand(heads, keys, 1), scale=1.0)


def outline_of(record: AttentionRecord, forward: Forward) -> AttentionRecord:
    """Return a record with the layers, heads and tokens of a forward, but without its attention.

    Changes are checked and described with this record, which takes almost no memory.
    """
    made = {}
    for name, layers in forward.stacks.items():
        if name not in record.stacks:
            continue
        tokens = record.stack(name)
        same = tokens.key_tokens is tokens.query_tokens
        kept = {
            number: _outline(
                run.num_heads,
                len(tokens.query_tokens),
                len(tokens.key_tokens),
                vectors=run.dtype is not None,
            )
            for number, run in zip(layers.examples[0], layers.runs, strict=True)
        }
        made[name] = AttentionStack(
            name, kept, tokens.query_tokens, None if same else tokens.key_tokens
        )
    return AttentionRecord(made, model=record.model, images=record.images)


class _Means:
    """Cache of the mean outputs of heads over the texts of `Ablate.mean_of`."""

    def __init__(self) -> None:
        self._cached: dict[tuple[int, int], dict[ModuleRun, torch.Tensor]] = {}

    def insert(
        self,
        changes: Sequence[Change],
        record: AttentionRecord,
        forward: Forward,
        run: ExampleRunner,
    ) -> tuple[Change, ...]:
        """Return the changes. Each `Ablate` with `mean_of` is replaced by a copy with its means."""
        return tuple(self._with(change, record, forward, run) for change in changes)

    def _with(
        self, change: Change, record: AttentionRecord, forward: Forward, run: ExampleRunner
    ) -> Change:
        if not isinstance(change, Ablate) or change.mean_of is None:
            return change
        _check_stack(change, record)
        # In an encoder-decoder model, the means depend on the example: the texts run with its
        # decoder input.
        key = id(change), id(run) if run.encoder.encoder_decoder else 0
        if key not in self._cached:
            trace_all = forward.collector.trace_all
            self._cached[key] = means_of(
                [
                    sums_of(example.loaded.model, example.batch, trace_all=trace_all)
                    for example in run.other_examples(change.mean_of)
                ]
            )
        means = self._cached[key]
        module_runs = module_runs_of(forward).items()
        return with_means(
            change,
            {layer: means[module_run] for layer, module_run in module_runs if module_run in means},
        )


def read_changes(changes: Any) -> tuple[Change, ...]:
    change_list = (changes,) if isinstance(changes, Change) else tuple(_listed(changes))
    for change in change_list:
        if not isinstance(change, Change):
            raise TypeError(
                "changes must be one or several of Ablate, Knockout, HideTokens and SetWeights; "
                f"got {type(change).__name__}"
            )
    if not change_list:
        raise ValueError("changes is empty. Pass a change such as Knockout(queries=5, keys=2).")
    return change_list


def _listed(changes: Any) -> Iterable[Any]:
    if isinstance(changes, str) or not isinstance(changes, Iterable):
        return [changes]
    return changes


StackLayer = tuple[str, int]
#: For each stack and layer, the name of its attention module and the index of the module's run.
ModuleRuns = Mapping[StackLayer, StackLayer]
Plan = Mapping[StackLayer, tuple[StackLayer, LayerChange]]


def module_runs_of(forward: Forward) -> ModuleRuns:
    """Return the attention module and the index of its run for each layer of each stack."""
    return {
        (name, number): (run.name, run.turn)
        for name, layers in forward.stacks.items()
        for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }


def plan_of(changes: Sequence[Change], record: AttentionRecord, module_runs: ModuleRuns) -> Plan:
    """Return the change of each changed layer, with its attention module.

    The module is a name and the index of its run, see `ModuleRuns`. `record` has all layers of the
    model, as from `outline_of`. Raise TypeError, ValueError or IndexError if a change cannot be
    applied.
    """
    by_stack = _by_stack(changes, record)
    for name, stack_changes in by_stack.items():
        for change in stack_changes:
            check_change(change, record.stack(name))
    plan: dict[StackLayer, tuple[StackLayer, LayerChange]] = {}
    for (name, number), module_run in module_runs.items():
        if name in by_stack:
            layer_changes = layer_change(by_stack[name], record.stack(name), number)
            if layer_changes is not None:
                plan[name, number] = module_run, layer_changes
    return plan


def _by_stack(changes: Sequence[Change], record: AttentionRecord) -> dict[str, list[Change]]:
    by_stack: dict[str, list[Change]] = {}
    for change in changes:
        _check_stack(change, record)
        by_stack.setdefault(record.stack(change.stack).name, []).append(change)
    return by_stack


def _check_stack(change: Change, record: AttentionRecord) -> None:
    if change.stack is None and len(record.stacks) > 1:
        raise ValueError(
            f"{type(change).__name__}: stack is required. Pass one of "
            f"{', '.join(map(repr, record.stacks))}."
        )


def by_module(plan: Plan) -> ForwardChange:
    return dict(plan.values())


def _identity(plan: Plan) -> ForwardChange:
    """Return `identity_of` for the changes of a plan."""
    return identity_of(by_module(plan))


def identity_of(change: ForwardChange) -> ForwardChange:
    """Return changes that overwrite the same outputs with values from the unchanged weights.

    A run with these changes differs from the unchanged run only by rounding errors, which are the
    noise of the effect.
    """
    return {
        module_run: replace(module_change, attend=unchanged, factors={}, outputs={})
        for module_run, module_change in change.items()
    }


def unchanged(attention: LayerAttention) -> LayerAttention:
    return attention


def changed_record(
    record: AttentionRecord,
    changes: tuple[Change, ...],
    plan: Plan,
    before: AttentionRecord,
    effect: Effect,
) -> ChangedRecord:
    """Return a record with the changed weights, and with notes about the changes and their effect.

    `record` has the weights that the model computed in the changed run, before the changes are
    applied. `before` is the record without attention from which `plan` was made.
    """
    stacks = {}
    for name, stack in record.stacks.items():
        layers = {number: stack.attention(number) for number in stack.layers}
        stack_changes = [change for change in changes if before.stack(change.stack).name == name]
        for number, attention in layers.items():
            if (name, number) in plan:
                layers[number] = plan[name, number][1].attend(attention)
        same = stack.key_tokens is stack.query_tokens
        stacks[name] = AttentionStack(
            name,
            layers,
            stack.query_tokens,
            None if same else stack.key_tokens,
            normalized=stack.normalized and all(map(keeps_row_sums, stack_changes)),
        )
    notes = [f"{description_of(change, before.stack(change.stack))}." for change in changes]
    made = ChangedRecord(
        stacks,
        model=f"{record.model} (changed)" if record.model else "changed",
        notes=[*record.notes, *notes, f"{effect}."],
        images=record.images,
    )
    made.mapped_files = record.mapped_files
    made.effect, made.changes = effect, changes
    return made

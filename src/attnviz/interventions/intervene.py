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
    keeps_shares,
    layer_change,
    of_beginning,
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
        The changes.

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


# The type of other inputs does not show whether they are one example or several.
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

    The attention functions of the model run as usual. Then the outputs of the changed heads and
    queries are overwritten, and all other outputs stay bit-identical. The model runs three times:
    unchanged, changed, and with the same outputs computed again from the unchanged weights. The
    third run measures the noise.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object or list
        As for `attnviz.extract`. Each example of a list of texts or of an encoded batch runs
        separately, without padding. The tokens of `changes` refer to each example.
    changes : Change or iterable of Change
        `Ablate`, `Knockout`, `HideTokens` or `SetWeights`. Several changes of one layer are applied
        in their order.
    answer : int, str, pair of these, callable, or list, optional
        A pair such as ``(" animal", " street")`` measures the logit of the first token or class
        minus that of the second. A single token is compared with the most likely other token. By
        default, the most likely token before the change is compared with the most likely other
        token after it. A function takes the model's output for one example, with a first axis of
        size 1, and returns one number, as in ``lambda output: output.start_logits[0, 3]``. Models
        without logits are measured by a function, or by the similarity of their last hidden states.
        For several texts, a list has one answer per text.
    position : int or str, optional
        Token after which the answer is read, by position or text. By default the last token, or
        with `generate` the last token of the prompt.
    target : str or list of str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    decoder_input_ids : Tensor or sequence of int, optional
        As for `attnviz.extract`.
    progress : bool
        Whether a progress bar is shown for several texts and for slow generations.
    **options
        `tokenizer`, `processor`, `truncation`, `generate`, `name`, `layers`, `dtype` and `device`
        of `attnviz.extract`. `layers` selects the layers of the record. Changes can affect all
        layers. With `generate`, the model generates a text while its attention is changed in every
        step, see the notes.

    Returns
    -------
    ChangedRecord or list of ChangedRecord
        Record of the changed run, with the changes in its weights and notes, and with
        `ChangedRecord.effect`. A list for a list of texts or for an encoded batch with several
        examples.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text: an unknown layer, head or token, a token
        text that occurs twice, an answer outside the vocabulary, no change at all.
    MemoryError
        If the record needs more than the free memory. It is raised before the model runs.
    NotImplementedError
        If the attention of a module cannot be changed, because it is computed in one torch function
        or attends in windows. It is raised before a text is generated.

    Notes
    -----
    The model has never seen the changed state in training, and other heads can compensate for a
    change. An effect of 0 does not prove that a head is unused.

    With `generate`, texts of tokens and negative numbers refer to the prompt, or to the first input
    of the decoder of an encoder-decoder model. A change without `queries` or `keys` also affects
    generated tokens, and a position after the prompt refers to a generated token. An array, or the
    weights of a record, apply to the tokens of the prompt. The model generates twice, unchanged and
    changed, from the same random state. `Effect.text_before` and `Effect.text_after` are the two
    texts. Record and effect belong to the text of the changed model: both models read it, and by
    default the answer is measured at the end of the prompt, where their texts start.

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
        # Load a hub id or folder only once. A pipeline is kept, because it has the tokenizer.
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
    """Runs of one example for an intervention."""

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
        """Return the record of the changed run on the given example."""
        self._run.check_memory(self._kept)
        before = self._run.forward(MINIMAL_CAPTURE, None)
        record = outline_of(self._run.record(before, MINIMAL_CAPTURE), before)
        changes = self._means.known(self._changes, record, before, self._run)
        return self._compared(self._run, changes, (before, record), (answer, position), None)

    def generated(
        self,
        answer: Any,
        position: int | str | None,
        settings: GenerationSettings,
        *,
        progress: bool,
    ) -> ChangedRecord:
        """Return the record of a text that the model generates with changed attention."""
        run = self._run
        run.check_memory(self._kept, settings)
        prompt = run
        if run.encoder.encoder_decoder:
            # The input of the decoder is known after it has generated a token.
            first = read_generation_settings(1, self._model)
            prompt = run.producing(run.generated(first, progress=False), first.method)
        before = prompt.forward(MINIMAL_CAPTURE, None)
        record = outline_of(prompt.record(before, MINIMAL_CAPTURE), before)
        count = len(answering_stack(record).query_tokens)
        longest = settings.max_tokens(count)
        known = self._means.known(self._changes, record, before, prompt)
        changes = tuple(_of_beginning(each, record, longest) for each in known)
        plan = plan_of(changes, record, module_runs_of(before))
        # Unsupported changes raise an error before a text is generated.
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
        made = run.producing(text, settings.method)
        before = made.forward(MINIMAL_CAPTURE, None)
        record = outline_of(made.record(before, MINIMAL_CAPTURE), before)
        # A function reads the whole output and takes no position.
        read_after = count - 1 if position is None and not callable(answer) else position
        texts = tuple(self._text(each) for each in (unchanged_text, text))
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
        # An invalid answer raises an error before the model runs again.
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


def _of_beginning(change: Change, record: AttentionRecord, longest: int) -> Change:
    """Return the change for a text that grows from the record's to at most `longest` tokens."""
    _check_stack(change, record)
    stack = record.stack(change.stack)
    queries, keys = (
        longest if more else len(tokens)
        for more, tokens in (
            (stack.name in MORE_QUERIES, stack.query_tokens),
            (stack.name in MORE_KEYS, stack.key_tokens),
        )
    )
    return of_beginning(change, stack, (queries, keys))


def _in_steps(
    changes: Sequence[Change], record: AttentionRecord, plan: Plan
) -> dict[StackLayer, StepChange]:
    """Return the changes of each module for the steps of a generation."""
    # All layers of a stack need the outline of the same size, one after the other.
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
    """Return the outline of a stack with more tokens, whose texts are unknown."""
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
    """Return the attention of a layer of which only the shape is known. It takes no memory."""
    one = torch.zeros(1, 1, 1)
    if not vectors:
        return StoredWeights(one.expand(heads, queries, keys))
    return QueryKeyAttention(one.expand(heads, queries, 1), one.expand(heads, keys, 1), scale=1.0)


def outline_of(record: AttentionRecord, forward: Forward) -> AttentionRecord:
    """Return a record with all layers, heads and tokens of a run, but without attention."""
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
    """Cache of the mean outputs of heads over other texts."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], dict[ModuleRun, torch.Tensor]] = {}

    def known(
        self,
        changes: Sequence[Change],
        record: AttentionRecord,
        forward: Forward,
        run: ExampleRunner,
    ) -> tuple[Change, ...]:
        """Return the changes, with the means of mean ablations."""
        return tuple(self._with(each, record, forward, run) for each in changes)

    def _with(
        self, change: Change, record: AttentionRecord, forward: Forward, run: ExampleRunner
    ) -> Change:
        if not isinstance(change, Ablate) or change.mean_of is None:
            return change
        _check_stack(change, record)
        # The texts are run with the decoder input of this example.
        key = id(change), id(run) if run.encoder.encoder_decoder else 0
        if key not in self._found:
            trace_all = forward.collector.trace_all
            self._found[key] = means_of(
                [
                    sums_of(each.loaded.model, each.batch, trace_all=trace_all)
                    for each in run.alike(change.mean_of)
                ]
            )
        means = self._found[key]
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
#: Module, and index of its run, for each stack and layer.
ModuleRuns = Mapping[StackLayer, StackLayer]
Plan = Mapping[StackLayer, tuple[StackLayer, LayerChange]]


def module_runs_of(forward: Forward) -> ModuleRuns:
    """Return the module and the index of its run for each layer of each stack."""
    return {
        (name, number): (run.name, run.turn)
        for name, layers in forward.stacks.items()
        for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }


def plan_of(changes: Sequence[Change], record: AttentionRecord, module_runs: ModuleRuns) -> Plan:
    """Return the change of each stack and layer, with its module and the index of its run."""
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
    """Return changes that compute the same outputs again from the unchanged weights."""
    return identity_of(by_module(plan))


def identity_of(change: ForwardChange) -> ForwardChange:
    """Return changes that compute the same outputs again from the unchanged weights."""
    return {
        module_run: replace(each, attend=unchanged, factors={}, outputs={})
        for module_run, each in change.items()
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
    """Return the record with the changes in its weights and notes."""
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
            normalized=stack.normalized and all(map(keeps_shares, stack_changes)),
        )
    notes = [f"{description_of(each, before.stack(each.stack))}." for each in changes]
    made = ChangedRecord(
        stacks,
        model=f"{record.model} (changed)" if record.model else "changed",
        notes=[*record.notes, *notes, f"{effect}."],
        images=record.images,
    )
    made.mapped_files = record.mapped_files
    made.effect, made.changes = effect, changes
    return made

"""`intervene`: run a model with its attention changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from attnviz.extraction.capture.change import ForwardChange, LayerChange
from attnviz.extraction.capture.forward import Forward
from attnviz.extraction.options import CaptureOptions, RecordOptions, read_capture_options
from attnviz.interventions.changes import (
    Change,
    check_change,
    description_of,
    keeps_shares,
    layer_change,
)
from attnviz.interventions.effect import Effect, answer_of, effect_of
from attnviz.interventions.runs import Runs, row_of
from attnviz.record.attention import LayerAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack

__all__ = [
    "ChangedRecord",
    "Places",
    "Plan",
    "by_module",
    "changed_record",
    "intervene",
    "places_of",
    "plan_of",
    "read_changes",
    "unchanged",
]


class ChangedRecord(AttentionRecord):
    """The record of a run whose attention was changed; `attnviz.intervene` makes it.

    Attributes
    ----------
    effect : Effect
        What the change does to the model's answer.
    changes : tuple of Change
        What was changed.

    Examples
    --------
    >>> record = intervene(model, "a b c a b", Ablate(layers=1), ...)  # doctest: +SKIP
    >>> record.effect.change                                           # doctest: +SKIP
    """

    effect: Effect
    changes: tuple[Change, ...]


def intervene(
    model: Any,
    inputs: Any,
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    decoder_input_ids: Any = None,
    **options: Unpack[RecordOptions],
) -> ChangedRecord:
    """Run a model with its attention changed, and say what that does to its answer.

    The model's own attention functions run. What they give for the heads and queries that are
    changed is written over before the model goes on; all else keeps its bits. The model runs three
    times: unchanged, changed, and once more with the same outputs computed again from unchanged
    weights, which tells the noise of the method.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    changes : Change or iterable of Change
        `Ablate`, `Knockout`, `HideTokens`, `SetWeights`; several of one layer are made in their
        order.
    answer : int, str or pair of these, optional
        The token (or class) whose logit is measured, against another: ``(" animal", " street")``.
        Of one alone the other is the likeliest of the rest. When left out, the likeliest answer
        against the second. Models without logits are measured by their last hidden states.
    position : int or str, optional
        The token after which the answer is read, by number or text; the last one when left out.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    decoder_input_ids : Tensor or sequence of int, optional
        As for `attnviz.extract`.
    **options
        `tokenizer`, `processor`, `truncation`, `name`, `layers`, `heads`, `dtype` and `device` of
        `attnviz.extract`. `layers` and `heads` say what the record keeps; changes reach all.

    Returns
    -------
    ChangedRecord
        The attention of the changed run, with the changes in its weights and in its notes, and
        `ChangedRecord.effect`.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text: an unknown layer, head or token, a text
        that stands there twice, an answer outside of the vocabulary, no change at all.
    NotImplementedError
        If the attention of a module that is to be changed cannot be changed: one that does not use
        the dispatcher of transformers, or attends in windows.

    Notes
    -----
    It is one way of leaving something out. The model never saw this state in training, and other
    heads may make up for it: an effect of zero does not prove that a head does nothing.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> record = av.intervene(model, "a b c a b", av.Ablate(layers=1, heads=0),
    ...                       tokenizer=tokenizer)                             # doctest: +SKIP
    >>> print(record.effect)                                                   # doctest: +SKIP
    """
    wanted = read_changes(changes)
    if options.get("generate") is not None:
        raise NotImplementedError(
            "generate cannot be changed yet; generate first, and give the text as target="
        )
    run = Runs(model, inputs, target, decoder_input_ids, options)
    before = run.forward(CaptureOptions(), None)
    record = run.record(before, CaptureOptions())
    plan = plan_of(wanted, record, places_of(before))
    row, after = row_of(record, position, before.outputs)
    logits = None if row is None else -row
    if logits is not None and logits > 1:
        before = run.forward(CaptureOptions(), None, logits)
    tokenizer = run.encoder.tokenizer(needed=False)
    asked = answer_of(
        run.loaded.model, before.outputs, tokenizer, answer, position=row, after=after
    )
    same = run.forward(_nothing(record), _identity(plan), logits)
    kept = read_capture_options(
        options.get("layers"),
        options.get("heads"),
        options.get("dtype"),
        options.get("device", "cpu"),
    )
    changed = run.forward(kept, by_module(plan), logits)
    effect = effect_of(
        asked,
        run.loaded.model,
        tokenizer,
        before=before.outputs,
        after=changed.outputs,
        identity=same.outputs,
    )
    return changed_record(run.record(changed, kept), wanted, plan, record, effect)


def read_changes(changes: Any) -> tuple[Change, ...]:
    given = (changes,) if isinstance(changes, Change) else tuple(_listed(changes))
    for each in given:
        if not isinstance(each, Change):
            raise TypeError(
                "changes must be Ablate, Knockout, HideTokens or SetWeights, or several of them; "
                f"got {type(each).__name__}"
            )
    if not given:
        raise ValueError("changes is empty; give one such as Knockout(queries=5, keys=2)")
    return given


def _listed(changes: Any) -> Iterable[Any]:
    if isinstance(changes, str) or not isinstance(changes, Iterable):
        return [changes]
    return changes


_Place = tuple[str, int]
#: For each stack and layer, in which run of which module that is.
Places = Mapping[_Place, _Place]
Plan = Mapping[_Place, tuple[_Place, LayerChange]]


def places_of(forward: Forward) -> Places:
    """In which run of which module each layer of each stack is."""
    return {
        (name, number): (run.name, run.turn)
        for name, layers in forward.stacks.items()
        for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }


def plan_of(changes: Sequence[Change], record: AttentionRecord, places: Places) -> Plan:
    """What is changed by stack and layer, and in which run of which module that is."""
    by_stack: dict[str, list[Change]] = {}
    for change in changes:
        if change.stack is None and len(record.stacks) > 1:
            raise ValueError(
                f"{type(change).__name__}: stack=None; name the stack that is changed, "
                f"{', '.join(map(repr, record.stacks))}"
            )
        stack = record.stack(change.stack)
        check_change(change, stack)
        by_stack.setdefault(stack.name, []).append(change)
    plan: dict[_Place, tuple[_Place, LayerChange]] = {}
    for (name, number), place in places.items():
        if name in by_stack:
            change_here = layer_change(by_stack[name], record.stack(name), number)
            if change_here is not None:
                plan[name, number] = place, change_here
    return plan


def by_module(plan: Plan) -> ForwardChange:
    return dict(plan.values())


def _identity(plan: Plan) -> ForwardChange:
    """The same outputs computed again from the weights as they are."""
    return {place: replace(change, attend=unchanged, factors={}) for place, change in plan.values()}


def unchanged(attention: LayerAttention) -> LayerAttention:
    return attention


def _nothing(record: AttentionRecord) -> CaptureOptions:
    """Capture options that keep as little as there can be."""
    stack = record.stack()
    return CaptureOptions(layers=(stack.layers[0],), heads=(stack.kept_heads(stack.layers[0])[0],))


def changed_record(
    record: AttentionRecord,
    changes: tuple[Change, ...],
    plan: Plan,
    before: AttentionRecord,
    effect: Effect,
) -> ChangedRecord:
    """The record with the changes in its weights and notes."""
    stacks = {}
    for name, stack in record.stacks.items():
        layers = {number: stack.attention(number) for number in stack.layers}
        here = [change for change in changes if before.stack(change.stack).name == name]
        for number, attention in layers.items():
            if (name, number) in plan:
                layers[number] = plan[name, number][1].attend(attention)
        same = stack.key_tokens is stack.query_tokens
        stacks[name] = AttentionStack(
            name,
            layers,
            stack.query_tokens,
            None if same else stack.key_tokens,
            normalized=stack.normalized and all(map(keeps_shares, here)),
        )
    notes = [f"{description_of(each, before.stack(each.stack))}." for each in changes]
    made = ChangedRecord(
        stacks,
        model=f"{record.model} (changed)" if record.model else "changed",
        notes=[*record.notes, *notes, f"{effect}."],
        images=record.images,
    )
    made.effect, made.changes = effect, changes
    return made

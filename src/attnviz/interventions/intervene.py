"""The function `intervene`: runs a model with changed attention, and measures the effect.

The effect is the change of the model's answer, a number in its output. A stack is the attention of
one kind, such as self-attention, in all layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Unpack, overload

import torch

from attnviz.extraction.capture.layer_change import LayerChange, ModuleRun
from attnviz.extraction.capture.steps import MORE_KEYS, MORE_QUERIES, ChangedSteps, StepChange
from attnviz.extraction.inputs.generate import (
    Generated,
    GenerationSettings,
    read_generation_settings,
)
from attnviz.extraction.models import load
from attnviz.extraction.options import CaptureOptions, RecordOptions, read_capture_options
from attnviz.extraction.tokens.text import token_texts
from attnviz.interventions.answer import one_for_each
from attnviz.interventions.changes import (
    Ablate,
    Change,
    changes_by_stack,
    description_of,
    for_generation,
    identity_of,
    label_of,
    layer_change,
    with_means,
)
from attnviz.interventions.effect import Effect, effect_of
from attnviz.interventions.example import Example, answering_stack
from attnviz.interventions.means import Means, means_by_layer, means_of, sums_of
from attnviz.interventions.runner import Runner, outline_of_layer
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.progress import part_of, with_progress


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


# Other inputs can be one example or several, so the type of the result is Any.
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


@with_progress
def intervene(
    model: Any,
    inputs: Any,
    changes: Change | Iterable[Change],
    *,
    answer: Any = None,
    position: int | str | None = None,
    target: str | Sequence[str] | None = None,
    decoder_input_ids: Any = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> ChangedRecord | list[ChangedRecord]:
    """Run a model with changed attention, and measure the effect on its answer.

    The attention functions of the model run without modification. Then the outputs of the changed
    heads at the changed queries are overwritten. The outputs of the other heads and queries of a
    changed layer stay bit-identical. The model also runs without changes. In a third run, the
    unchanged model rounds the outputs of its modules differently. This run estimates the noise of
    the effect (`Effect.noise`). In half precision, it has two copies of the text.

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
        - A function takes the model's output for one example, whose tensors have a first axis of
          size 1, and returns one number, as in ``lambda output: output.start_logits[0, 3]``.
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
        Whether to show a progress bar if the call takes longer than a second.
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

    With `generate`, token texts and negative positions in `changes` refer to the prompt. For the
    decoder of an encoder-decoder model, the prompt is the first input of the decoder. A position
    after the end of the prompt refers to a generated token. A change without `queries` or `keys`
    also applies to generated tokens. Arrays and records as weights of `SetWeights` apply only to
    the tokens of the prompt.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> record = av.intervene(model, "a b c a b", av.Ablate(layers=1, heads=0),
    ...                       tokenizer=tokenizer)                             # doctest: +SKIP
    >>> print(record.effect)                                                   # doctest: +SKIP
    """
    change_list = read_changes(changes)
    capture = read_capture_options(**options)
    settings = None
    if options.get("generate") is not None:
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        settings = read_generation_settings(options["generate"], loaded.model)
        # Do not load the model of a hub id or folder again.
        model = loaded
    examples, many = Example.several(
        model, inputs, target, decoder_input_ids, options, settings=settings
    )
    answers = one_for_each(answer, len(examples), many=many)
    intervention = _Intervention(change_list, capture, position)
    records = []
    for number, (example, text_answer) in enumerate(zip(examples, answers, strict=True)):
        with part_of("texts", number, len(examples), "text"):
            if settings is None:
                records.append(intervention.record(example, text_answer))
            else:
                records.append(intervention.generated(example, text_answer, settings))
    return records if many else records[0]


class _Intervention:
    """Intervention that can be applied to several examples of a model.

    `kept` determines which attention the returned records store. `position` is the token after
    which answers are read, as in `intervene`.
    """

    def __init__(
        self, changes: tuple[Change, ...], kept: CaptureOptions, position: int | str | None
    ) -> None:
        self._changes = changes
        self._kept = kept
        self._position = position
        # Cache of the mean outputs of heads. A key has the id of the `Ablate` object, and the id of
        # the example if the model is an encoder-decoder model, otherwise 0.
        self._means: dict[tuple[int, int], Means] = {}

    def record(self, example: Example, answer: Any) -> ChangedRecord:
        """Return the record of the changed run on the example, without a generated text."""
        example.check_memory(self._kept)
        runner = Runner(example)
        return self._compare(runner, self._with_means(runner), answer, self._position)

    def generated(
        self,
        example: Example,
        answer: Any,
        settings: GenerationSettings,
    ) -> ChangedRecord:
        """Generate a text with changed attention, and return the changed record of this text."""
        settings = settings.for_batch(example.batch)
        example.check_memory(self._kept, settings)
        model, prompt = example.loaded.model, example
        if example.loaded.is_encoder_decoder:
            # Changes may name tokens of the decoder's first input, which is only known after a
            # generation. Therefore generate one token.
            first = settings.with_options(max_new_tokens=1)
            generated = example.generated(first)
            prompt = example.with_generated_text(generated, first.method)
        runner = Runner(prompt)
        count = len(answering_stack(runner.outline).query_tokens)
        longest = settings.max_tokens(count)
        changes = tuple(
            _for_generation(change, runner.outline, longest) for change in self._with_means(runner)
        )
        # If the model does not support the changes, this run raises an error before the generation,
        # which takes long.
        runner.forward(identity_of(runner.change(*changes)))
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            unchanged_text = example.generated(settings)
        steps = ChangedSteps(
            model, _in_steps(changes, runner), trace_all=runner.unchanged.collector.trace_all
        )
        text = example.generated(settings, watch=steps.watch)
        # By default, the answer is read after the prompt. An answer that is a function reads the
        # whole output, and cannot have a position.
        no_position = self._position is None and not callable(answer)
        made = Runner(example.with_generated_text(text, settings.method))
        position = count - 1 if no_position else self._position
        tokenizer = example.loaded.find_target_tokenizer()
        texts = _text_of(unchanged_text, tokenizer), _text_of(text, tokenizer)
        return self._compare(made, changes, answer, position, texts)

    def _compare(
        self,
        runner: Runner,
        changes: tuple[Change, ...],
        answer: Any,
        position: int | str | None,
        texts: tuple[str | None, str | None] = (None, None),
    ) -> ChangedRecord:
        """Run the model of `runner` with changes, and return the record of this run.

        The record has the effect of the changes. `texts` has the text that the unchanged model
        generated, and the text that the changed model generated. Without a generation, both are
        None.
        """
        change = runner.change(*changes)
        runner.ask(answer, position)
        perturbed = runner.perturbed(runner.answer, identity_of(change))
        changed = runner.forward(change, self._kept)
        measured = runner.answer_to(answer, changed.outputs)
        effect = effect_of(runner, measured, changed.outputs, perturbed)
        effect = replace(effect, text_before=texts[0], text_after=texts[1])
        record = runner.example.record(changed, self._kept)
        made = changed_record(runner, record, changes, effect)
        made.changes = self._changes
        return made

    def _with_means(self, runner: Runner) -> tuple[Change, ...]:
        """Return the changes. Each `Ablate` with `mean_of` is replaced by a copy with its means."""
        changes_by_stack(self._changes, runner.outline)
        return tuple(
            with_means(change, means_by_layer(self._means_of(change, runner), runner.module_runs))
            if isinstance(change, Ablate) and change.mean_of is not None
            else change
            for change in self._changes
        )

    def _means_of(self, change: Ablate, runner: Runner) -> Means:
        # In an encoder-decoder model, the means depend on the example, because the texts of
        # `mean_of` run with its decoder input.
        example = runner.example
        key = id(change), id(example) if example.loaded.is_encoder_decoder else 0
        if key not in self._means:
            self._means[key] = means_of(list(map(sums_of, example.other_examples(change.mean_of))))
        return self._means[key]


def _text_of(generated: Generated, tokenizer: Any) -> str:
    ids = generated.ids[generated.prefix :].tolist()
    if tokenizer is None:
        return "".join(token_texts(ids, None))
    return str(tokenizer.decode(ids, skip_special_tokens=True))


def _for_generation(change: Change, prompt: AttentionRecord, longest: int) -> Change:
    """Return the change for a text that the model generates after `prompt`.

    `longest` is the maximum number of tokens of the prompt and the generated text together. See
    `for_generation`.
    """
    stack = prompt.stack(change.stack)
    queries, keys = (
        longest if more else len(tokens)
        for more, tokens in (
            (stack.name in MORE_QUERIES, stack.query_tokens),
            (stack.name in MORE_KEYS, stack.key_tokens),
        )
    )
    return for_generation(change, stack, (queries, keys))


def _in_steps(changes: Sequence[Change], runner: Runner) -> dict[ModuleRun, StepChange]:
    """Return the changes of each attention module during a generation.

    The numbers of queries and keys can grow with each generated token (step), so a `LayerChange` is
    made for each step. Modules without a change are left out. Raise NotImplementedError for linear
    layers, whose steps use another rule, and for layers with summaries unless heads are ablated:
    the keys of a step are not those of the whole text.
    """
    by_stack = changes_by_stack(changes, runner.outline)
    for name, of_stack in by_stack.items():
        if "with summaries" in name and not all(isinstance(one, Ablate) for one in of_stack):
            raise NotImplementedError(
                f"changes: in stack {name!r}, only Ablate is possible while the model generates. "
                "Omit generate=, or pass Ablate."
            )
        if runner.outline.stack(name).signed:
            raise NotImplementedError(
                f"changes: the linear layers of stack {name!r} cannot be changed while the model "
                "generates. Omit generate=, or change another stack."
            )

    # One cached stack is enough: at each step, the layers of a stack run one after the other, with
    # the same numbers of queries and keys.
    @lru_cache(maxsize=1)
    def outline(name: str, queries: int, keys: int) -> AttentionStack:
        return _lengthened(runner.outline.stack(name), queries, keys)

    def at(name: str, number: int, queries: int, keys: int) -> LayerChange:
        change = layer_change(by_stack[name], outline(name, queries, keys), number)
        if change is None:
            raise RuntimeError(f"layer {number} of stack {name!r} is not changed")
        return change

    changed = runner.change(*changes)
    return {
        module_run: StepChange(
            name, runner.outline.stack(name).num_heads(number), partial(at, name, number)
        )
        for (name, number), module_run in runner.module_runs.items()
        if module_run in changed
    }


def _lengthened(stack: AttentionStack, queries: int, keys: int) -> AttentionStack:
    """Return a stack with the layers and heads of `stack`, and other numbers of tokens.

    The returned stack has placeholders in place of attention (`outline_of_layer`), and its tokens
    have empty texts. If `stack` already has `queries` queries and `keys` keys, return `stack`
    itself.
    """
    if (queries, keys) == (len(stack.query_tokens), len(stack.key_tokens)):
        return stack
    rows = Tokens.of([""] * queries)
    layers = {
        number: outline_of_layer(
            stack.num_heads(number),
            queries,
            keys,
            vectors=stack.attention(number).vectors is not None,
        )
        for number in stack.layers
    }
    same = stack.key_tokens is stack.query_tokens
    return stack.derive(layers, rows, None if same else Tokens.of([""] * keys))


def read_changes(changes: Any) -> tuple[Change, ...]:
    is_iterable = isinstance(changes, Iterable) and not isinstance(changes, str)
    change_list = tuple(changes) if is_iterable else (changes,)
    if not change_list:
        raise ValueError("changes is empty. Pass a change such as Knockout(queries=5, keys=2).")
    for change in change_list:
        if not isinstance(change, Change):
            raise TypeError(
                "changes must be one or several of Ablate, Knockout, HideTokens and SetWeights; "
                f"got {type(change).__name__}"
            )
    return change_list


def changed_stacks(
    runner: Runner, record: AttentionRecord, changes: tuple[Change, ...]
) -> dict[str, AttentionStack]:
    """Return the stacks of a record with the changed weights.

    `record` is the record of a run with `changes`, made with `runner`. It has the weights that the
    model computed in this run, before they were changed. This function applies the changes of each
    layer to these weights.
    """
    change = runner.change(*changes)
    by_stack = changes_by_stack(changes, runner.outline)
    stacks = {}
    label = label_of(changes, runner.outline)
    for name, stack in record.stacks.items():
        layers = {number: stack.attention(number) for number in stack.layers}
        for number, attention in layers.items():
            # Indexers have no attention to change, and so no module run.
            module_run = runner.module_runs.get((name, number))
            layer_changes = None if module_run is None else change.get(module_run)
            if layer_changes is not None:
                layers[number] = layer_changes.attend(attention)
        # A knockout after the softmax leaves rows that sum to less than 1.
        keeps_sums = all(getattr(one, "renormalize", True) for one in by_stack.get(name, ()))
        stacks[name] = stack.derive(
            layers, normalized=stack.normalized and keeps_sums, changed=label
        )
    return stacks


def changed_record(
    runner: Runner, record: AttentionRecord, changes: tuple[Change, ...], effect: Effect
) -> ChangedRecord:
    """Return a record with the changed weights, and with notes about the changes and their effect.

    `record` is the record of the changed run, as in `changed_stacks`.
    """
    stacks, outline = changed_stacks(runner, record, changes), runner.outline
    notes = [f"{description_of(change, outline.stack(change.stack))}." for change in changes]
    made = ChangedRecord(
        stacks,
        model=f"{record.model} (changed)" if record.model else "changed",
        notes=[*record.notes, *notes, f"{effect}."],
        images=record.images,
        classes=record.classes,
    )
    made.effect, made.changes = effect, changes
    return made

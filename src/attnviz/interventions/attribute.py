"""The function `attribute`: a record with attributions in place of attention weights.

An attribution is one number for each query-key pair that estimates the pair's effect on the answer.
The answer is a number in the model's output, such as the logit of one token minus that of another.
The methods "value norm" and "rollout" do not use an answer. "value norm" measures how much a key
contributes to the output at a query. "rollout" estimates which share of a token's hidden state
after a layer comes from each input token.

A record stores the attention of one example, which is one input of the model. It has one stack for
each kind of attention, such as self-attention, with all layers of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

import torch

from attnviz.extraction.capture.layer_change import ModuleRun
from attnviz.extraction.options import RecordOptions, check_options, read_capture_options
from attnviz.interventions.answer import FUNCTION_INSTEAD
from attnviz.interventions.attributed import HeadVectors, ValueNorms
from attnviz.interventions.attribution_methods import AttributionMethod, Needs, named
from attnviz.interventions.changes import StackLayer
from attnviz.interventions.direct import direct_gradients
from attnviz.interventions.example import Example
from attnviz.interventions.gradients import followed, gradients, mean_gradients
from attnviz.interventions.output_projection import head_norms
from attnviz.interventions.runner import Runner
from attnviz.record.attention import LayerAttention
from attnviz.record.record import AttentionRecord, derive_record
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import format_named, whole_number
from attnviz.utils.numbers import format_small
from attnviz.utils.progress import with_progress

_MAX_STEPS = 256
# Minimum number of vectors, each with the size of a hidden state, that a layer stores per token for
# the backward pass. The memory check before the runs uses this number.
_NUM_SAVED = 6


@with_progress
def attribute(
    model: Any,
    inputs: Any,
    *,
    method: str = "gradient",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    steps: int = 16,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> AttentionRecord:
    """Compute one attribution for each query-key pair, such as its estimated effect on the answer.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    method : str, default "gradient"
        Name of one of `attnviz.interventions.ATTRIBUTION_METHODS`. Register your own method with
        `attnviz.interventions.attribution_method`. The methods of attnviz are:

        - ``"gradient"``: the weight times the gradient of the answer with respect to the weight.
          This is a first-order estimate of the decrease of the answer if the weight is set to 0
          after the softmax.
        - ``"knockout gradient"``: a first-order estimate of the decrease of the answer if the pair
          is removed before the softmax, so that the other keys of the query get its weight.
        - ``"integrated gradients"``: the weight times the mean gradient while all weights of a
          layer are scaled from 0 to their values (Hao et al. 2021, arXiv 2004.11207, section 3).
        - ``"value norm"``: the weight times the norm of the key's value after the output projection
          (Kobayashi et al. 2020, arXiv 2004.10102). It does not depend on an answer.
        - ``"direct"``: direct logit attribution, the contribution to the answer through the
          residual stream, without later layers. Models with norms after their layers raise
          NotImplementedError.
        - ``"relevance"``: the share of each input token in the hidden state of each token after a
          layer, computed from the positive parts of ``"gradient"`` in all layers up to this one
          (Chefer et al. 2021, arXiv 2103.15679). Each layer has one matrix for all heads.
        - ``"rollout"``: the share of each input token in the hidden state of each token after a
          layer, computed from the weights of all layers up to this one (Abnar and Zuidema 2020,
          arXiv 2005.00928). It does not depend on an answer. Each layer has one matrix for all
          heads.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. A function must return a tensor. By default the logit of the
        most likely token minus that of the second. Do not use a probability as the answer, because
        the gradient of a probability near 1 is almost 0.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    steps : int, default 16
        Number of Gauss-Legendre points of ``"integrated gradients"``, from 1 to 256.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor`, `truncation`, `name`, `layers`, `dtype` and `device` of
        `attnviz.extract`.

    Returns
    -------
    AttentionRecord
        Record with attributions in place of weights. `AttentionStack.measure` names them.
        Attributions by ``"value norm"``, ``"relevance"`` and ``"rollout"`` are not negative. Those
        by the other methods are signed: positive numbers support the answer. The record does not
        store the attributions: they are computed each time they are read. Layers that cannot be
        attributed, for example because they do not use the attention dispatcher of transformers,
        are missing. A note of the record names these layers.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text, or if ``torch.inference_mode`` is active.
    MemoryError
        If the record or the backward pass needs more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If gradients do not pass through a module of the model, or if the method can be computed for
        none of its stacks.

    Notes
    -----
    For ``"integrated gradients"``, the numbers of a layer should sum to the decrease of the answer
    without the attention of this layer (completeness). A note of the record contains the largest
    relative deviation over the layers.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> record = av.attribute(model, "a b c a b", tokenizer=tokenizer)            # doctest: +SKIP
    >>> av.HeadView(record)                                                       # doctest: +SKIP
    """
    entry = named(method)
    steps = whole_number("steps", steps, 1, _MAX_STEPS, hint="of steps, 16 or so")
    check_options(options, refused=["generate"])
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "attribute needs gradients, which torch.inference_mode() disables. Call it outside, "
            "or use torch.no_grad()."
        )
    capture = read_capture_options(**options)
    if entry.mixed is not None and capture.layers is not None:
        raise ValueError(f"method={method!r} multiplies all layers. Do not pass layers.")
    if not entry.has_answer and not (answer is None and position is None):
        raise ValueError(f"method={method!r} has no answer. Do not pass answer and position.")
    example = Example.one(model, inputs, target, options)
    if entry.has_answer:
        # The model runs on `copies` copies of the example. For each token, a layer stores at least
        # `_NUM_SAVED` vectors per copy for the backward pass, and three vectors in all for the
        # attribution: value, output and gradient.
        copies = steps + 1 if entry.needs == "mean gradient" else 1
        example.check_runs(
            f"method={method!r}",
            copies=copies,
            kept=lambda _: 3 + _NUM_SAVED * copies,
        )
    runner = Runner(example, capture)
    notes = [entry.sentences]
    if entry.has_answer:
        runner.ask(answer, position)
        if runner.answer.of_hidden_states:
            raise ValueError(
                f"answer: {type(runner.model).__name__} has no logits, and the similarity of its "
                "hidden states to themselves has the gradient 0. Load the model with its head, or "
                f"{FUNCTION_INSTEAD}."
            )
        notes.append(f"Attributed number: the {runner.answer.measure}.")
    vectors, notes_on_vectors = _NEEDED[entry.needs](runner, steps)
    stacks, notes_on_layers = _attributed(runner, vectors, entry)
    if entry.mixed is not None:
        stacks, notes_on_mixed = _mixed(runner.record, stacks, entry, entry.mixed)
        notes_on_layers += notes_on_mixed
    notes = [*runner.record.notes, *notes, *notes_on_vectors, *notes_on_layers]
    return derive_record(runner.record, stacks, notes=notes)


# The needs of a method for each run of an attention module, and notes. None without needs.
_Needed = tuple[Mapping[ModuleRun, HeadVectors | ValueNorms] | None, list[str]]


def _requested(runner: Runner) -> dict[StackLayer, ModuleRun]:
    """Return the runs of attention modules whose layers are in the record."""
    stacks = runner.record.stacks
    return {
        (name, number): module_run
        for (name, number), module_run in runner.module_runs.items()
        if name in stacks and number in stacks[name].layers
    }


def _mean_gradients(runner: Runner, steps: int) -> _Needed:
    vectors, off = mean_gradients(runner, _requested(runner), steps)
    note = (
        "The sum of a layer's numbers differs from the loss of the answer without the layer by at "
        f"most {format_small(off)} of the loss ({steps} steps)."
    )
    return vectors, [note]


def _direct_gradients(runner: Runner, _: int) -> _Needed:
    requested = _requested(runner).values()
    return followed(runner.model, partial(direct_gradients, runner, requested)), []


# Functions that compute what a method needs (`AttributionMethod.needs`).
_NEEDED: Mapping[Needs, Callable[[Runner, int], _Needed]] = {
    "weights": lambda _, __: (None, []),
    "value norms": lambda runner, _: (head_norms(runner.example), []),
    "gradient": lambda runner, _: (gradients(runner, _requested(runner).values()), []),
    "mean gradient": _mean_gradients,
    "direct gradient": _direct_gradients,
}


def _attributed(
    runner: Runner,
    vectors: Mapping[ModuleRun, HeadVectors | ValueNorms] | None,
    method: AttributionMethod,
) -> tuple[dict[str, AttentionStack], list[str]]:
    """Return the stacks of `runner` with attributions in place of the weights, and notes.

    `vectors` has what the method needs for each `ModuleRun` whose attributions can be computed.
    None means that it needs only the weights. Layers without attributions are left out, and a note
    names them. Raise NotImplementedError if no layer remains.
    """
    positions = {(run.name, run.turn): run.positions for run in runner.unchanged.collector.runs}
    stacks: dict[str, AttentionStack] = {}
    left: list[str] = []
    for name, stack in runner.record.stacks.items():
        if stack.ranks:
            continue
        layers = {}
        for number in stack.layers:
            attention, module_run = stack.attention(number), runner.module_runs[name, number]
            if vectors is None:
                layers[number] = method.layer(attention, None)
                continue
            unpadded = positions[module_run]
            # If `unpadded` is None, the module computes separate attentions of parts of the input,
            # such as windows. Their vectors cannot be assigned to the tokens of the layer.
            if module_run in vectors and unpadded is not None and attention.vectors is not None:
                at = unpadded[0]
                own = vectors[module_run].select(at.queries, at.keys)
                layers[number] = method.layer(attention, own)
        if not layers:
            left.append(f"stack {quote(name)}")
            continue
        rest = [number for number in stack.layers if number not in layers]
        if rest:
            left.append(f"{format_named('layer', rest)} of stack {quote(name)}")
        stacks[name] = stack.derive(
            layers,
            normalized=method.normalized and stack.normalized,
            signed=method.signed,
            measure=method.measure or method.name,
        )
    if not stacks:
        raise NotImplementedError(
            f"model: {' and '.join(left)} cannot be attributed. The attention has no softmax, does "
            "not use the dispatcher of transformers, attends in windows, or has no known output "
            "projection. Use head_effects."
        )
    return stacks, [f"Not attributed: {', '.join(left)}."] if left else []


def _mixed(
    record: AttentionRecord,
    stacks: Mapping[str, AttentionStack],
    method: AttributionMethod,
    mix: Callable[[tuple[LayerAttention, ...]], LayerAttention],
) -> tuple[dict[str, AttentionStack], list[str]]:
    """Return stacks in which each layer has one matrix of all layers up to this one, and notes.

    `record` has the attention weights, and `stacks` the attributions of each layer. Stacks whose
    queries and keys are different tokens, stacks whose layers have different numbers of tokens, and
    stacks of linear layers are left out. Raise NotImplementedError if no stack remains.
    """
    mixed: dict[str, AttentionStack] = {}
    notes = []
    for name, stack in stacks.items():
        layers = [stack.attention(number) for number in stack.layers]
        if (
            stack.key_tokens is not stack.query_tokens
            or stack.linear
            or any(layer.num_queries != layers[0].num_queries for layer in layers)
        ):
            continue
        products = {
            number: mix(tuple(layers[: index + 1])) for index, number in enumerate(stack.layers)
        }
        mixed[name] = stack.derive(products)
        if method.baseline is not None and stack.causal:
            share = method.baseline(len(stack.query_tokens), len(layers))
            notes.append(
                f"In stack {quote(name)} the first token gets {share:.0%} of the last one for "
                "uniform attention, so that a large number means nothing."
            )
    if not mixed:
        raise NotImplementedError(
            f"method={method.name!r} needs self-attention, which the model does not have"
        )
    if any(stack.linear for stack in record.stacks.values()):
        notes.append(
            "Linear layers also mix tokens, but they are not in the product of the layers. So a "
            "token of a later layer may contain other tokens of the input."
        )
    return mixed, notes

"""Repeated interventions on one example, for a view in which the reader tries changes.

The unchanged run is computed once and stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.change import ForwardChange, LayerChange
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.interventions.answer import Answer
from attnviz.interventions.changes import Ablate, Change, HideTokens, Knockout, description_of
from attnviz.interventions.effect import Effect, effect_of, share_of
from attnviz.interventions.example import Example
from attnviz.interventions.intervene import ChangedRecord, changed_record, read_changes
from attnviz.interventions.plan import StackLayer, identity_of
from attnviz.interventions.projection import FollowedOutputs, ProjectedValues
from attnviz.interventions.runner import Runner
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import quote
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.numbers import format_change, format_signed, format_small
from attnviz.utils.progress import report

# The run that measures the noise computes the outputs of at most this many queries again.
_NOISE_ROWS = 256
# Maximum size in bytes of the values of all layers, which are stored to compute norms.
_VALUE_BYTES = 1 << 30
# Maximum number of heads whose value norms are cached.
_NORMS_KEPT = 64


@dataclass(frozen=True)
class Outcome:
    """Effect of changes, with sentences that describe it.

    Attributes
    ----------
    sentence : str
        Sentences about the prediction and the answer before and after the changes.
    described : tuple of str
        One sentence per change that describes it.
    effect : Effect
        Effect in numbers.
    record : ChangedRecord or None
        Record of the changed run, with the same layers as the record that the view shows. None if
        there are no changes, if no record is shown, or if there is too little memory.
    """

    sentence: str
    described: tuple[str, ...]
    effect: Effect
    record: ChangedRecord | None = None


@dataclass(frozen=True)
class _ChangedRun:
    """Results of the last changed run. If `record` is stored, other answers need no new run."""

    changes: tuple[Change, ...]
    outputs: Any
    identity: Any
    record: AttentionRecord | None


class RepeatedInterventions:
    """Interventions on one example of a model.

    The model runs without changes and to measure the noise, and the results are stored. After that,
    new changes need one forward. Another answer for the same changes needs no forward if the record
    of the changed run is stored.

    The noise is the rounding error of overwritten outputs. To measure it, the outputs of all heads
    are computed again from the unchanged weights, at up to 256 queries. If a module does not
    support this, every change needs an additional forward for its noise.

    Parameters
    ----------
    model, inputs : object
        As for `attnviz.intervene`.
    target : str, optional
        As for `attnviz.intervene`.
    shown : AttentionRecord, optional
        Record that a view shows. Its tokens must be equal to those that the model reads.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.
    """

    def __init__(
        self,
        model: Any,
        inputs: Any,
        *,
        target: str | None = None,
        shown: AttentionRecord | None = None,
        **options: Unpack[RecordOptions],
    ) -> None:
        self._arguments = (model, inputs, target, None, options)
        self._shown = shown
        self._runner: Runner | None = None
        #: Words for what the model predicts, such as "the next token".
        self._subject = ""
        #: Outputs of the run that measures the noise, for all heads. None if a module does not
        #: support it: then each change has a separate run for its noise.
        self._identity: Any = None
        #: Values and output projections for each (stack, layer) for which they were found.
        self._values: dict[StackLayer, ProjectedValues] = {}
        self._last: _ChangedRun | None = None
        self._busy = False
        self._norms: dict[tuple[str, int, int], NDArray[np.float64] | None] = {}

    @property
    def ready(self) -> bool:
        """Whether the unchanged run and the noise are computed."""
        return self._runner is not None

    def outcome(self, changes: Sequence[Change], answer: Any = None) -> Outcome:
        """Compute the effect of changes on the answer.

        If `changes` is empty, the outcome describes the unchanged answer. `answer` is as for
        `attnviz.intervene`. Raise RuntimeError if another outcome is being computed, and the errors
        of `attnviz.intervene`.
        """
        if self._busy:
            raise RuntimeError("another change is being computed. Wait for its answer.")
        self._busy = True
        try:
            runner = self._prepared(answer)
            # If the answer is invalid, this line raises the error before the model runs again.
            unchanged_answer = runner.answer_to(answer)
            if not changes:
                return self._unchanged_outcome(runner, unchanged_answer, named=answer is not None)
            change_list = read_changes(changes)
            if self._last is None or self._last.changes != change_list or self._last.record is None:
                self._last = self._changed_run(runner, change_list)
            return self._compared(runner, self._last, answer)
        finally:
            self._busy = False

    def check(self, answer: Any) -> None:
        """Raise ValueError or TypeError if an answer cannot be measured.

        If the stored outputs have too few rows of logits, the model runs as in `outcome`. If they
        have enough, this method can also be used while an outcome is being computed.
        """
        runner = self._runner
        if runner is None or runner.reading.lacks(runner.outputs, answer):
            self.outcome((), answer)
        else:
            runner.answer_to(answer)

    def norm_share(self, stack: str, layer: int, head: int, query: int, key: int) -> float:
        """Compute the norm of a key's contribution to a query, as a share of the sum over all keys.

        The norm is |A_ij v_j W_O| for the query i and the key j in one head (Kobayashi et al.
        2020). The model does not run again. Raise LookupError with a message for the reader of the
        view if the share is unknown.
        """
        if self._runner is None or self._shown is None:
            raise LookupError("the model has not run yet")
        shown = self._shown.stack(stack)
        if shown.measure != "weight" or shown.signed:
            raise LookupError("these numbers are not attention weights")
        stack_head = (stack, layer, head)
        if stack_head not in self._norms:
            while len(self._norms) >= _NORMS_KEPT:
                self._norms.pop(next(iter(self._norms)))
            self._norms[stack_head] = self._norms_of(self._runner, stack, layer, head)
        norms = self._norms[stack_head]
        if norms is None:
            raise LookupError("this attention has no known output projection")
        row = shown.weights(layer=layer, head=head, rows=slice(query, query + 1))[0] * norms
        total = float(row.sum())
        if not total > 0:
            raise LookupError("the query adds nothing to the stream")
        return float(row[key]) / total

    def _norms_of(
        self, runner: Runner, stack: str, layer: int, head: int
    ) -> NDArray[np.float64] | None:
        values = self._values.get((stack, layer))
        if values is None or not values.linear:
            return None
        if len(runner.outline.stack(stack).key_tokens) != values.values.shape[1]:
            raise LookupError("the model also reads padding")
        return values.norms(head).double().numpy()

    def _prepared(self, answer: Any) -> Runner:
        """Return the runner. Run the model without changes, and again to measure the noise.

        This is done only once, unless `answer` needs more rows of logits than the stored outputs
        have.
        """
        runner = self._runner
        if runner is None:
            report("the unchanged run", 0, 3, "run")
            runner = self._first_run()
        elif not runner.require_logits(answer):
            return runner
        self._last = None
        runner.require_logits(answer)
        report("the noise", 1, 3, "run")
        try:
            self._identity = runner.forward(_recompute_all_heads(runner)).outputs
        except NotImplementedError:
            self._identity = None
        self._runner = runner
        return runner

    def _first_run(self) -> Runner:
        """Run the model without changes, and store its values."""
        example = Example.one(*self._arguments)
        following = FollowedOutputs(example.loaded.model, _VALUE_BYTES)
        with Cleanup() as undo, undo:
            following.watch(undo)
            runner = Runner(example)
        if self._shown is not None:
            _check_same_tokens(self._shown, runner.record)
        self._values = {
            layer: following.found[module_run]
            for layer, module_run in runner.module_runs.items()
            if module_run in following.found
        }
        position = _masked_token(runner)
        runner.read_after(position)
        self._subject = _subject(runner, position)
        return runner

    def _changed_run(self, runner: Runner, changes: tuple[Change, ...]) -> _ChangedRun:
        """Run the model with changes.

        If the noise could not be measured for all heads, the model first runs to measure the noise
        of these changes.
        """
        change, identity = runner.change(*changes), self._identity
        if identity is None:
            report("the noise", 0, 2, "run")
            identity = runner.forward(identity_of(change)).outputs
        report("the changed run", 1, 2, "run")
        if self._shown is not None:
            options = _as_shown(self._shown, runner.outline)
            # If there is too little memory for the record, the answer is measured without a record.
            with suppress(MemoryError):
                forward = runner.forward(change, options)
                record = runner.example.record(forward, options)
                return _ChangedRun(changes, forward.outputs, identity, record)
        return _ChangedRun(changes, runner.forward(change).outputs, identity, None)

    def _unchanged_outcome(self, runner: Runner, answer: Answer, *, named: bool) -> Outcome:
        """Return the outcome without changes.

        `named` is whether the reader chose an answer. If True, the sentence also contains the value
        of the answer.
        """
        effect = effect_of(runner, answer, runner.outputs, runner.outputs)
        if answer.of_hidden_states:
            words = "The model has no logits: its last hidden states are compared."
            return Outcome(words, (), effect)
        sentence = "Unchanged."
        if effect.candidates_before:
            one = effect.candidates_before[0]
            sentence = f"Unchanged, {self._subject} is {quote(one.text)} ({one.probability:.2f})."
        if named:
            sentence += f" {_measure(effect)}: {format_signed(effect.before, '.1f')}."
        return Outcome(sentence, (), effect)

    def _compared(self, runner: Runner, changed: _ChangedRun, requested: Any) -> Outcome:
        answer = runner.answer_to(requested, changed.outputs)
        effect = effect_of(runner, answer, changed.outputs, changed.identity)
        changes, outline = changed.changes, runner.outline
        record = None
        if changed.record is not None:
            record = changed_record(runner, changed.record, changes, effect)
        described = tuple(
            f"{description_of(change, outline.stack(change.stack))}." for change in changes
        )
        begin = _begin(changes, outline)
        noise = "no more than the noise" if abs(effect.change) <= effect.noise else "noise"
        noise += f" {format_small(effect.noise)}."
        numbers = f"{format_change(effect.before, effect.after)}, {noise}"
        if effect.candidates_before:
            one, other = effect.candidates_before[0], effect.candidates_after[0]
            left = share_of(changed.outputs, runner.reading.row, one.id)
            same = one.id == other.id
            outcome = f"{self._subject} {'stays' if same else 'becomes'} {quote(other.text)}"
            of = "" if same else f"{quote(one.text)} "
            shares = f"({of}{one.probability:.2f} to {left:.2f})"
            sentence = f"{begin}, {outcome} {shares}. {_measure(effect)}: {numbers}"
        elif answer.of_hidden_states:
            sentence = (
                f"{begin}, the last hidden states have a cosine similarity of "
                f"{format_signed(effect.after, '.4f')} with the unchanged ones, {noise}"
            )
        else:
            sentence = f"{begin}, the {effect.measure} goes from {numbers}"
        return Outcome(sentence, described, effect, record)


def _masked_token(runner: Runner) -> int | None:
    """Return the position of the mask token, from whose logits the answer is read.

    Return None if the text does not have exactly one mask token. The answer is then read from the
    logits of the last token.
    """
    example = runner.example
    ids = example.batch.arguments.get("input_ids")
    mask = getattr(example.encoder.tokenizer(required=False), "mask_token_id", None)
    if mask is None or not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return None
    mask_positions = (ids[0] == mask).nonzero().flatten().tolist()
    count = len(runner.outline.stack().query_tokens)
    return mask_positions[0] if len(mask_positions) == 1 and ids.shape[1] == count else None


def _subject(runner: Runner, position: int | None) -> str:
    """Return the words for what the model predicts, such as "the next token"."""
    if runner.reading.row is None:
        return "the class"
    if position is not None:
        return "the masked token"
    return "the next token" if runner.model.can_generate() else "the most likely last token"


def _measure(effect: Effect) -> str:
    """Return `effect.measure` with a capital letter, and without its end " after “...”"."""
    measure = effect.measure.partition(" after ")[0]
    return f"{measure[0].upper()}{measure[1:]}"


def _as_shown(shown: AttentionRecord, every: AttentionRecord) -> CaptureOptions:
    """Return the capture options with which `shown` was made: its layers and its dtype.

    `every` is a record with all layers of the model.
    """
    stacks = list(shown.stacks.values())
    whole = all(stack.layers == every.stack(stack.name).layers for stack in stacks)
    layers = sorted({layer for stack in stacks for layer in stack.layers})
    vectors = stacks[0].attention(stacks[0].layers[0]).vectors
    return CaptureOptions(
        torch.device("cpu"),
        None if vectors is None else vectors.queries.dtype,
        None if whole else tuple(layers),
    )


def _check_same_tokens(shown: AttentionRecord, read: AttentionRecord) -> None:
    for name, stack in shown.stacks.items():
        if name not in read.stacks:
            raise ValueError(f"inputs: the record has a stack {name!r}, but the model does not")
        own = read.stack(name)
        for kind, one, other in (
            ("queries", stack.query_tokens, own.query_tokens),
            ("keys", stack.key_tokens, own.key_tokens),
        ):
            if list(one.text) != list(other.text):
                raise ValueError(
                    f"inputs: the {len(one)} {kind} of stack {name!r} in the record differ from "
                    f"the {len(other)} that the model reads. Pass the text of the record. The "
                    "record must be made without words=True and generate=."
                )


def _recompute_all_heads(runner: Runner) -> ForwardChange:
    """Return changes that compute the outputs of all heads again from the unchanged weights.

    Up to `_NOISE_ROWS` queries at equal distances are computed again.
    """
    change = {}
    for (name, number), module_run in runner.module_runs.items():
        if name in runner.outline.stacks:
            stack = runner.outline.stack(name)
            count = len(stack.query_tokens)
            rows = np.unique(np.linspace(0, count - 1, min(count, _NOISE_ROWS)).astype(np.int64))
            heads = range(stack.num_heads(number))
            shape = (count, len(stack.key_tokens))
            change[module_run] = LayerChange(shape, rows=dict.fromkeys(heads, rows))
    return change


def _begin(changes: tuple[Change, ...], record: AttentionRecord) -> str:
    """Return the start of a sentence that describes the changes, such as "Without head 1.0"."""
    if len(changes) > 1:
        return f"With these {len(changes)} changes"
    [change] = changes
    if isinstance(change, Knockout):
        return f"Cut {'before' if change.renormalize else 'after'} the softmax"
    if isinstance(change, HideTokens):
        tokens = change.tokens if isinstance(change.tokens, int) else 0
        text = record.stack(change.stack).key_tokens.text[tokens].strip("·")
        return f"With {quote(text)} hidden"
    if isinstance(change, Ablate) and isinstance(change.heads, int):
        return f"Without head {change.layers}.{change.heads}"
    return "With this change"

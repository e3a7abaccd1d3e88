"""Runs of a view's model with changed attention: their effects, and their weights.

A change is, for example, the ablation of a head. All changes in a list are made together, in one
run of the model. Before that, the model runs once without changes, and this run is stored.

An answer is a number that is computed from the outputs of a run, for example the logit of one token
minus the logit of another token. The effect of changes is the difference that they make to the
answer. Cutting a pair of a query and a key removes its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ForwardChange, LayerChange
from attnviz.extraction.capture.outputs import FollowedOutputs
from attnviz.extraction.options import CaptureOptions
from attnviz.interventions.answer import Answer
from attnviz.interventions.attributed import ValueNorms
from attnviz.interventions.changes import (
    Ablate,
    Change,
    HideTokens,
    Knockout,
    StackLayer,
    change_for_view,
    change_from_json,
    change_to_json,
    description_of,
    identity_of,
    label_of,
)
from attnviz.interventions.effect import Effect, SameChanges, effect_of, share_of
from attnviz.interventions.example import Example
from attnviz.interventions.intervene import ChangedRecord, changed_record, changed_stacks
from attnviz.interventions.output_projection import ProjectedValues
from attnviz.interventions.runner import Runner
from attnviz.record.difference import difference_stack
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, quote
from attnviz.server.description import describe_numbers
from attnviz.server.server import (
    AnswerToken,
    ChangedHeader,
    ChangedStack,
    Cut,
    EdgeHeader,
    EdgeRequest,
    OutcomeHeader,
)
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.numbers import compare_to_noise, format_change, format_signed, format_small
from attnviz.utils.progress import report

# Maximum number of cached effects, and of cached descriptions of query-key pairs. An exported page
# contains both.
_MAX_OUTCOMES = 50
# Maximum number of runs whose weights are cached.
_MAX_RUNS = 2
# Maximum number of queries per layer whose outputs are computed again to measure the noise (see
# `ChangedRuns`).
_NOISE_ROWS = 256
# Maximum total size in bytes of the stored value vectors. The norm shares of query-key pairs are
# computed from them (see `ChangedRuns.edge`).
_VALUE_BYTES = 1 << 30

Changes = tuple[Change, ...]

#: Answer to measure: a function, a tuple of one or two tokens or classes, or None for the default
#: answer of `attnviz.intervene`. The argument of `ChangedRuns.outcome` can also be an empty tuple,
#: and gives None another meaning (see there).
Measured = tuple[int | str, ...] | Callable[[Any], Any] | None


@dataclass(frozen=True)
class ChangedWeights:
    """Weights of a run with changed attention.

    Attributes
    ----------
    record : AttentionRecord
        Record of the changed run, with the layers of the record that the view shows. The weights of
        each layer are those before the changes of this layer are applied.
    after, difference : dict
        `after` contains the stacks of the changed run, with the changes of all layers applied.
        `difference` contains stacks with these weights minus the weights of the unchanged run. The
        keys of both dicts are the names of the stacks in the unchanged run. Each stack itself has a
        name that no other stack has.
    """

    record: AttentionRecord
    after: dict[str, AttentionStack]
    difference: dict[str, AttentionStack]


@dataclass(frozen=True)
class _Run:
    """Results of a run with changed attention.

    `outputs` has the outputs of the model, and `perturbed` those of the runs that measure the noise
    (see `ChangedRuns`). `weights` is None if there was too little memory.
    """

    outputs: Any
    perturbed: list[Any]
    weights: ChangedWeights | None


@dataclass(frozen=True)
class _Outcome:
    """Effect of changes, with sentences for the reader.

    `numbers` has the answer before and after the changes and compares the effect with its noise.
    `unranked` has the same change of all heads, tokens or layers, if their effects are not known.
    It is None if the rank is known, or if the changes have none.
    """

    described: list[str]
    sentence: str
    effect: Effect
    numbers: str
    unranked: SameChanges | None


class ChangedRuns:
    """Runs of a view's model with changed attention, and a cache of their results.

    The noise of an effect bounds its rounding error. To measure it, the unchanged model runs with
    perturbed outputs of its modules (see `Runner.perturbed`). The outputs of all heads are also
    computed again from the unchanged weights, as a change does, at up to 256 queries of each layer.
    If an attention module does not support this, the noise of each list of changes is measured in a
    separate run.

    Parameters
    ----------
    record : AttentionRecord
        Record that the view shows, of the unchanged run.
    source : tuple
        Model, inputs, target and options of `attnviz.extract`.

    Attributes
    ----------
    measured : tuple of int or str, callable, or None
        Trait `answer` of the view as a `Measured`. This answer is measured if a method has no
        argument for the answer, or if the argument `measured` of `outcome` is None.
    """

    def __init__(self, record: AttentionRecord, source: tuple[Any, Any, Any, Any]) -> None:
        self._record = record
        self._source = source
        self.measured: Measured = None
        self._runner: Runner | None = None
        #: Outputs of the runs that measure the noise for all changes. None before the first run, or
        #: if the noise must be measured separately for each list of changes.
        self._perturbed: list[Any] | None = None
        #: Words for what the model predicts, such as "the next token".
        self._subject = ""
        self._values: dict[StackLayer, ProjectedValues] = {}
        self._norms: dict[StackLayer, ValueNorms | None] = {}
        self._runs: LRUCache[Changes, _Run] = LRUCache(_MAX_RUNS)
        self._outcomes: LRUCache[Changes, _Outcome] = LRUCache(_MAX_OUTCOMES)
        #: Effects of the same change of all heads, tokens or layers, by the first of these changes
        #: and the answer.
        self._ranked: LRUCache[Any, NDArray[np.float64]] = LRUCache(_MAX_OUTCOMES)
        self._edges: LRUCache[EdgeRequest, EdgeHeader] = LRUCache(_MAX_OUTCOMES)
        self._labels: dict[Changes, str] = {}

    def outcome(
        self,
        changes: Sequence[Mapping[str, Any]],
        measured: Measured = (),
        *,
        ranks: bool = False,
    ) -> OutcomeHeader:
        """Compute the effect that all `changes` together have on an answer.

        `measured` determines the answer: a function of the model's output, or tokens whose logits
        are measured. None selects the answer of the view, and an empty tuple the default of
        `attnviz.intervene`. If `changes` is empty, describe the unchanged run. If `ranks`, measure
        the effects with which the effect of a single change is compared.
        """
        answer = self.measured if measured is None else measured or None
        given = self._read(changes)
        unranked = None
        if given:
            _, outcome = self._measure(given, answer, ranks=ranks)
            sentence, effect, unranked = outcome.sentence, outcome.effect, outcome.unranked
        else:
            runner = self.runner_for(answer)
            unchanged = runner.answer_to(answer)
            effect = effect_of(runner, unchanged, runner.outputs, [])
            sentence = self._unchanged_sentence(unchanged, effect, named=answer is not None)
        return {
            "sentence": sentence,
            "measure": effect.measure,
            "unranked": "" if unranked is None else str(unranked),
            "is_cheap": unranked is not None and unranked.is_cheap(self.runner_for(answer)),
            "candidates_before": _answer_tokens(effect.candidates_before),
            "candidates_after": _answer_tokens(effect.candidates_after),
        }

    def runner_for(self, answer: Measured) -> Runner:
        """Check that `answer` can be measured, and return the object that runs the model.

        The first call runs the model twice: without changes, and to measure the noise. If a later
        answer needs logits of more tokens than are stored, both runs are repeated, and cached runs
        are dropped. Raise ValueError or TypeError if the answer cannot be measured.
        """
        runner = self._runner
        if runner is None:
            report("the unchanged run", 0, 3, "run")
            runner = self._first_run()
            runner.require_logits(answer)
        elif not runner.require_logits(answer):
            runner.answer_to(answer)
            return runner
        measured = runner.answer_to(answer)
        report("the noise", 1, 3, "run")
        try:
            perturbed = runner.perturbed(measured, _recompute_all_heads(runner), many=True)
        except NotImplementedError:
            perturbed = None
        self._runs.clear()
        self._runner, self._perturbed = runner, perturbed
        return runner

    def weights(self, changes: Changes) -> ChangedWeights:
        """Return the weights of the run with `changes`. Run the model if this run is not cached.

        Raise MemoryError if the weights do not fit into memory.
        """
        run = self._runs.get(changes) or self._measure(changes, self.measured)[0]
        if run.weights is None:
            raise MemoryError(
                "the weights of the changed run do not fit into free memory. Its answer is "
                "available."
            )
        return run.weights

    def changed_record(self, changes: Changes) -> ChangedRecord:
        """Return the record of the run with `changes`. Run the model if this run is not cached.

        Raise MemoryError if the record does not fit into memory.
        """
        _, outcome = self._measure(changes, self.measured)
        record = self.weights(changes).record
        return changed_record(self.runner_for(self.measured), record, changes, outcome.effect)

    def changed(self, changes: Sequence[Mapping[str, Any]]) -> ChangedHeader:
        """Describe the stacks of the run with `changes` for the browser.

        The changes are in their JSON form. Raise ValueError if there are none.
        """
        if not changes:
            raise ValueError("changes is empty. Pass at least one change.")
        weights = self.weights(self._read(changes))
        return ChangedHeader(
            stacks=[
                ChangedStack(
                    stack=name,
                    after=describe_numbers(after),
                    difference=describe_numbers(weights.difference[name]),
                    predictions=list(after.query_tokens.predictions),
                )
                for name, after in weights.after.items()
            ]
        )

    def stack(self, name: str) -> AttentionStack | None:
        """Return the stack with the unique name `name` from the cached runs.

        The stack contains the weights of a changed run, or their difference from the unchanged run
        (see `ChangedWeights`). Return None if no cached run has a stack with this name.
        """
        for weights in filter(None, (run.weights for run in self._runs.values())):
            for stack in (*weights.after.values(), *weights.difference.values()):
                if stack.name == name:
                    return stack
        return None

    def edge(self, pair: EdgeRequest) -> EdgeHeader:
        """Describe a query-key pair by its norm share and its cuts, without running the model.

        The norm share is the norm of the key's contribution to the query, divided by the sum of
        these norms over all keys. The cuts are the cached effects of removing the pair. If the
        model has not run yet, the description contains neither.
        """
        if self._runner is None:
            return EdgeHeader(model="waits", share=None, share_problem="", cuts=[])
        share, problem = None, ""
        try:
            share = self._norm_share(pair)
        except LookupError as error:
            problem = str(error.args[0])
        cuts = self._describe_cuts(pair)
        header = EdgeHeader(model="ready", share=share, share_problem=problem, cuts=cuts)
        self._edges[pair] = header
        return header

    def page_state(self) -> dict[str, Any]:
        """Return the cached results as entries for the state of an exported page.

        The entry "outcomes" has the cached effects. The entry "known_edges" has the cached
        descriptions of query-key pairs. An entry without content is omitted.
        """
        outcomes = [
            {
                "changes": list(map(change_to_json, changes)),
                "described": outcome.described,
                "sentence": outcome.sentence,
            }
            for changes, outcome in self._outcomes.items()
        ]
        edges = [
            {**asdict(pair), **header, "cuts": self._describe_cuts(pair)}
            for pair, header in self._edges.items()
        ]
        state = {"outcomes": outcomes, "known_edges": edges}
        return {name: entries for name, entries in state.items() if entries}

    def _read(self, changes: Sequence[Mapping[str, Any]]) -> Changes:
        given = map(change_from_json, changes)
        return tuple(change_for_view(change, self._record.stack(change.stack)) for change in given)

    def _first_run(self) -> Runner:
        """Run the model without changes, and store the value vectors of its layers.

        If the value vectors of all layers exceed `_VALUE_BYTES`, those of only some layers are
        stored. Raise ValueError if the tokens of the run differ from the tokens of the record.
        """
        model, inputs, target, options = self._source
        example = Example.one(model, inputs, target, options)

        def keep(
            call: AttentionCall, projection: nn.Module, gate: torch.Tensor | None
        ) -> ProjectedValues | None:
            stored = sum(values.values.nbytes for values in following.found.values())
            value: Any = call.value
            fits = stored + value.nbytes <= _VALUE_BYTES
            return ProjectedValues.of_call(call, projection, gate) if fits else None

        following = FollowedOutputs(example.loaded.model, keep)
        with Cleanup() as undo, undo:
            following.watch(undo)
            runner = Runner(example, observe=following.observe)
        _check_same_tokens(self._record, runner.record)
        self._values = {
            layer: following.found[module_run]
            for layer, module_run in runner.module_runs.items()
            if module_run in following.found
        }
        position = _masked_token(runner)
        runner.read_after(position)
        self._subject = _subject(runner, position)
        return runner

    def _measure(
        self, changes: Changes, requested: Measured, *, ranks: bool = False
    ) -> tuple[_Run, _Outcome]:
        """Measure the answer `requested` in the run with `changes`, and cache the effect.

        Run the model if the run is not cached. If `ranks`, also measure the effects with which the
        effect is compared, unless they are cached.
        """
        runner = self.runner_for(requested)
        run = self._runs.get(changes)
        if run is None:
            run = self._runs[changes] = self._new_run(runner, changes)
        answer, outline = runner.answer_to(requested, run.outputs), runner.outline
        effect = effect_of(runner, answer, run.outputs, run.perturbed)
        described = [f"{description_of(one, outline.stack(one.stack))}." for one in changes]
        numbers = _numbers(answer, effect)
        sentence = self._sentence(runner, changes, run, answer, effect)
        unranked = None
        if len(changes) == 1:
            unranked = SameChanges.of(changes[0], outline.stack(changes[0].stack))
        if unranked is not None:
            key = unranked.changes[0], answer.ids, answer.function
            if ranks and key not in self._ranked:
                self._ranked[key] = unranked.effects(runner, answer)
            if key in self._ranked:
                rank = unranked.rank_in_words(changes[0], self._ranked[key], effect.noise)
                sentence, unranked = f"{sentence} {rank}", None
        # Remove an old effect of these changes first, because a page lists the effects in the order
        # in which they were last measured.
        self._outcomes.pop(changes, None)
        self._outcomes[changes] = outcome = _Outcome(described, sentence, effect, numbers, unranked)
        return run, outcome

    def _new_run(self, runner: Runner, changes: Changes) -> _Run:
        """Run the model with changes.

        If the noise could not be measured for all changes in one run, first run the model to
        measure the noise of these changes.
        """
        change, perturbed = runner.change(*changes), self._perturbed
        if perturbed is None:
            report("the noise", 0, 2, "run")
            perturbed = runner.perturbed(runner.answer_to(self.measured), identity_of(change))
        report("the changed run", 1, 2, "run")
        options = _as_shown(self._record, runner.outline)
        try:
            forward = runner.forward(change, options)
            record = runner.example.record(forward, options)
        except MemoryError:
            return _Run(runner.forward(change).outputs, perturbed, None)
        return _Run(forward.outputs, perturbed, self._weights_of(runner, record, changes))

    def _unchanged_sentence(self, answer: Answer, effect: Effect, *, named: bool) -> str:
        """Describe the unchanged run in a sentence for the reader of the view.

        If `named`, the reader chose the answer, and the sentence states its value, except for a
        model without logits.
        """
        if answer.of_hidden_states:
            return "The model has no logits: its last hidden states are compared."
        sentence = "Unchanged."
        if effect.candidates_before:
            one = effect.candidates_before[0]
            sentence = f"Unchanged, {self._subject} is {quote(one.text)} ({one.probability:.2f})."
        if named:
            sentence += f" {_measure(effect)}: {format_signed(effect.before, '.1f')}."
        return sentence

    def _sentence(
        self, runner: Runner, changes: Changes, run: _Run, answer: Answer, effect: Effect
    ) -> str:
        """Describe the effect of changes on the answer, and on the model's prediction if any."""
        begin = _begin(changes, runner.outline)
        numbers = _numbers(answer, effect)
        if effect.candidates_before:
            one, other = effect.candidates_before[0], effect.candidates_after[0]
            left = share_of(run.outputs, runner.reading.row, one.id)
            same = one.id == other.id
            outcome = f"{self._subject} {'stays' if same else 'becomes'} {quote(other.text)}"
            of = "" if same else f"{quote(one.text)} "
            shares = f"({of}{one.probability:.2f} to {left:.2f})"
            return f"{begin}, {outcome} {shares}. {_measure(effect)}: {numbers}."
        if answer.of_hidden_states:
            return (
                f"{begin}, the last hidden states of all tokens, compared with the unchanged ones, "
                f"have a cosine similarity of {numbers}."
            )
        return f"{begin}, the {effect.measure} goes from {numbers}."

    def _weights_of(
        self, runner: Runner, record: AttentionRecord, changes: Changes
    ) -> ChangedWeights:
        weights = ChangedWeights(record, {}, {})
        label = self._unique_label(changes, runner.outline)
        for name, stack in changed_stacks(runner, record, changes).items():
            before = self._record.stack(name)
            layers = {number: stack.attention(number) for number in before.layers}
            weights.after[name] = stack.derive(layers, name=f"{name} · after: {label}")
            weights.difference[name] = difference_stack(
                before, stack, f"{name} · difference after: {label}"
            )
        return weights

    def _unique_label(self, changes: Changes, outline: AttentionRecord) -> str:
        """Return the label of changes. If other changes have the same one, add a number to it."""
        if changes not in self._labels:
            label, taken = label_of(changes, outline), self._labels.values()
            numbered = (f"{label} ({number})" for number in count(2))
            self._labels[changes] = next(
                one for one in chain([label], numbered) if one not in taken
            )
        return self._labels[changes]

    def _norm_share(self, pair: EdgeRequest) -> float:
        """Compute the norm of a key's contribution to a query, as a share of the sum over all keys.

        For the query i and the key j in one head, the norm is |A_ij v_j W_O|, with the weight A,
        the value vector v and the output projection W_O (Kobayashi et al. 2020). If the head has a
        gate, v_j is multiplied by the gate of the query first. The model does not
        run again. If the share is unknown, raise LookupError with a message for the reader of the
        view.
        """
        layer = pair.stack, pair.layer
        if layer not in self._norms:
            values = self._values.get(layer)
            self._norms[layer] = None if values is None else values.norms()
        of_layer, stack = self._norms[layer], self._record.stack(pair.stack)
        if of_layer is None:
            raise LookupError("this attention has no known output projection")
        if of_layer.num_keys != len(stack.key_tokens):
            raise LookupError("the model also reads padding")
        row = slice(pair.query, pair.query + 1)
        columns = slice(0, of_layer.num_keys)
        norms = of_layer.block(pair.head, row, columns)[0].double().numpy()
        norms = stack.weights(layer=pair.layer, head=pair.head, rows=row)[0] * norms
        if not norms.sum() > 0:
            raise LookupError("the query adds nothing to the stream")
        return float(norms[pair.key] / norms.sum())

    def _describe_cuts(self, pair: EdgeRequest) -> list[Cut]:
        """Return the cached effects of cutting a pair.

        An effect is returned if its run had only one change, and this change cut the pair in its
        head. The change may also have cut the pair in other heads or layers.
        """
        cuts: list[Cut] = []
        for changes, outcome in self._outcomes.items():
            change, effect = changes[0], outcome.effect
            if (
                len(changes) > 1
                or not isinstance(change, Knockout)
                or (change.stack, change.queries, change.keys) != (pair.stack, pair.query, pair.key)
                or change.layers not in (None, pair.layer)
                or change.heads not in (None, pair.head)
            ):
                # Skip runs with several changes, and runs that did not cut this pair in this head.
                continue
            when = "before" if change.renormalize else "after"
            where = "" if change.heads is not None else f" in all heads of layer {change.layers}"
            where = " in all layers" if change.layers is None else where
            words = f"cut {when} the softmax{where} {outcome.numbers}"
            cuts.append(Cut(description=words, measure=effect.measure))
        return cuts


def _answer_tokens(candidates: Iterable[Candidate]) -> list[AnswerToken]:
    return [AnswerToken(text=candidate.text, id=candidate.id) for candidate in candidates]


def _masked_token(runner: Runner) -> int | None:
    """Return the position of the mask token, at which the answer is read.

    Return None if the text does not have exactly one mask token, or if the number of its tokens is
    not the number of queries in the record's first stack. The answer is then read at the default
    position, which for language models is the last token.
    """
    example = runner.example
    ids = example.batch.arguments.get("input_ids")
    mask = getattr(example.loaded.find_tokenizer(), "mask_token_id", None)
    if mask is None or not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return None
    mask_positions = (ids[0] == mask).nonzero().flatten().tolist()
    num_tokens = len(runner.outline.stack().query_tokens)
    is_masked = len(mask_positions) == 1 and ids.shape[1] == num_tokens
    return mask_positions[0] if is_masked else None


def _subject(runner: Runner, position: int | None) -> str:
    """Return the words for what the model predicts, such as "the next token".

    `position` is the position of the mask token, or None.
    """
    if runner.reading.row is None:
        return "the class"
    if position is not None:
        return "the masked token"
    return "the next token" if runner.model.can_generate() else "the most likely last token"


def _numbers(answer: Answer, effect: Effect) -> str:
    """Format an answer before and after changes, and compare their effect with its noise."""
    verdict = compare_to_noise(effect.change, effect.noise)
    if not answer.of_hidden_states:
        return f"{format_change(effect.before, effect.after)}, {verdict}"
    # By rounding, the similarity of equal states may also increase.
    return f"1 − {format_small(max(0.0, -effect.change))}, a change {verdict}"


def _measure(effect: Effect) -> str:
    """Return `effect.measure` with a capital letter, and without its end " after “...”"."""
    measure = effect.measure.partition(" after ")[0]
    return f"{measure[0].upper()}{measure[1:]}"


def _begin(changes: Changes, record: AttentionRecord) -> str:
    """Return the beginning of a sentence about changes, such as "Without head 1.0"."""
    if len(changes) > 1:
        return f"With these {len(changes)} changes"
    [change] = changes
    if isinstance(change, Knockout):
        return f"Cut {'before' if change.renormalize else 'after'} the softmax"
    if isinstance(change, HideTokens) and isinstance(change.tokens, int):
        text = record.stack(change.stack).key_tokens.text[change.tokens].strip("·")
        return f"With {quote(text)} hidden"
    if isinstance(change, Ablate) and isinstance(change.heads, int):
        if change.layers is None:
            return f"Without head {change.heads} of all layers"
        return f"Without head {change.layers}.{change.heads}"
    return "With this change"


def _as_shown(shown: AttentionRecord, every: AttentionRecord) -> CaptureOptions:
    """Return the options that capture the layers of the record `shown`.

    Queries and keys are captured with the dtype of those in `shown`, or with the dtype of the model
    if `shown` has none. `every` is a record with all layers of the model.
    """
    stacks = [stack for stack in shown.stacks.values() if not stack.ranks]
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
        if stack.ranks:
            continue
        own = read.stack(name)
        for one, other in (
            (stack.query_tokens, own.query_tokens),
            (stack.key_tokens, own.key_tokens),
        ):
            if list(one.text) != list(other.text):
                raise ValueError(
                    f"inputs: the {len(one)} tokens of stack {name!r} in the record differ from "
                    f"the {len(other)} that the model reads. Pass the text of the record. The "
                    "record must be made without words=True and generate=."
                )


def _recompute_all_heads(runner: Runner) -> ForwardChange:
    """Return the changes of the run that measures the noise.

    They replace the outputs of all heads by outputs that are computed again from the unchanged
    weights. In each layer, this is done for up to `_NOISE_ROWS` queries at equal distances.
    """
    change = {}
    for (name, number), module_run in runner.module_runs.items():
        if name in runner.outline.stacks:
            stack = runner.outline.stack(name)
            num_queries = len(stack.query_tokens)
            rows = np.linspace(0, num_queries - 1, min(num_queries, _NOISE_ROWS))
            heads = range(stack.num_heads(number))
            change[module_run] = LayerChange(
                (num_queries, len(stack.key_tokens)),
                rows=dict.fromkeys(heads, np.unique(rows.astype(np.int64))),
            )
    return change

"""Runs of a model on an example, and on copies of it with changed attention or changed inputs.

An example is one input of the model. Its answer is a number in the model's output, such as the
logit of one token minus that of another. Several copies run in one batch. An unchanged copy in the
batch shows whether the model computes each copy separately. If the model does not, the copies run
one at a time. A `ModuleRun` is one run of an attention module within a forward, and a `LayerChange`
says how the attention of this run is changed.

A layer of the model, which is an entry of a ``ModuleList``, is called a block. Blocks before the
first changed attention return the same output for every copy. So the output of each block is stored
once, and these blocks do not run again. A trial run checks that the model allows this. Blocks that
share data outside of their outputs, such as the keys and values of Gemma 4, do not allow this, and
neither do blocks whose outputs do not have the batch as first axis, as in Gemma 3n. In such models,
all blocks run for all copies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.collector import Observer
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import Forward, arguments_of, run_forward
from attnviz.extraction.capture.layer_change import ForwardChange, ModuleRun
from attnviz.extraction.capture.memory import forward_memory, free_memory
from attnviz.extraction.inputs.batch import Batch, TokenSequence
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import attention_modules
from attnviz.extraction.options import CaptureOptions
from attnviz.interventions.answer import Answer, answer_of, example_of, reading_of
from attnviz.interventions.changes import Change, ModuleRuns, plan_of
from attnviz.interventions.example import MINIMAL_CAPTURE, Example
from attnviz.interventions.rounding import perturb
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import report

Arguments = dict[str, Any]

# Maximum number of tokens in all copies of a batch together on a CPU, unless the batch has only two
# copies. Larger batches are not faster on a CPU. The second number is for other devices.
_TOKENS_AT_ONCE, _TOKENS_ON_A_DEVICE = 4096, 32_768
# Largest share of the free memory that a batch may need, by the estimate of `forward_memory`. The
# memory is not read for batches of few bytes.
_SHARE_OF_MEMORY, _FEW_BYTES = 0.5, 1 << 26
# Relative tolerances for rounding errors, by the dtype of the model. `_SAME_HALF` is the tolerance
# for all other dtypes. The outputs of an unchanged copy in a batch count as equal to those of the
# example alone if no number differs by more than the tolerance times max(1, largest absolute
# value).
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_HALF = 0.05
# Number of perturbed runs from which the noise of one effect is estimated, and the number for many
# effects on a text, by the dtype of the model. `_PERTURBED_HALF` is for all other dtypes. Their
# noise is often as large as effects, so it is estimated from more runs.
_PERTURBED = {torch.float32: (1, 1), torch.float64: (1, 1)}
_PERTURBED_HALF = (2, 4)


def copies_per_batch(loaded: Loaded, num_tokens: int) -> int:
    """Return the maximum number of copies of a text with `num_tokens` tokens in one batch.

    This number includes an unchanged copy. It is at least 2, and follows from the free memory.
    """
    # If weights are offloaded to disk, their device is "meta", and the CPU computes.
    device = loaded.model.device
    device = torch.device("cpu") if device.type == "meta" else device
    num_at_once = _TOKENS_AT_ONCE if device.type == "cpu" else _TOKENS_ON_A_DEVICE
    most = num_at_once // max(1, num_tokens)
    of_one = forward_memory(loaded, 1, num_tokens)
    free = free_memory(device) if most * of_one >= _FEW_BYTES else None
    if free is not None:
        most = min(most, int(_SHARE_OF_MEMORY * free / of_one))
    return max(2, most)


@dataclass(frozen=True)
class Copy:
    """One copy of an example in a batch, and its differences from the example.

    Attributes
    ----------
    change : mapping of ModuleRun to LayerChange
        Changes of the attention.
    inputs : callable or None
        Function that returns the arguments of the model for the copy. None if they are those of the
        example.
    """

    change: ForwardChange = field(default_factory=dict)
    inputs: Callable[[], Arguments] | None = None


class Runner:
    """Runs of a model on an example and on copies of it, and the answer of each run.

    Creating an instance runs the model once on the unchanged example. Before copies run, call
    `ask`, or call `read_after` and set `answer` and `before`.

    Parameters
    ----------
    example : Example
        The example.
    options : CaptureOptions
        Options that determine which attention `record` stores. By default, it stores none.
    observe : callable or None
        Function that is called during the unchanged run of the model, with each `AttentionCall` and
        the `ModuleRun` that made it.

    Attributes
    ----------
    unchanged : Forward
        Result of the unchanged run.
    outputs : object
        Outputs of the unchanged model for the example alone.
    record : AttentionRecord
        Record of the unchanged run, with the attention that `options` select.
    outline : AttentionRecord
        Record with all layers and tokens, but without attention. Changes are checked and described
        with it.
    module_runs : mapping
        For each layer of each stack, the `ModuleRun` that computes its attention. A stack is the
        attention of one kind, such as self-attention, in all layers.
    answer : Answer
        Definition of the measured number.
    before : float
        Answer of the unchanged run.
    noise : float
        Noise of the effects that were measured so far: a number that at least 90 % of their
        rounding errors do not exceed. It is estimated from runs with perturbed outputs of modules
        (see `rounding`), and is at least the largest difference between `before` and the answer of
        an unchanged copy in a batch.
    """

    answer: Answer
    before: float

    def __init__(
        self,
        example: Example,
        options: CaptureOptions = MINIMAL_CAPTURE,
        observe: Observer | None = None,
    ) -> None:
        self.example = example
        self.model = example.loaded.model
        self.unchanged = example.forward(options, None, observe=observe)
        self.outputs = self.unchanged.outputs
        self.record = example.record(self.unchanged, options)
        self.outline = outline_of(self.record, self.unchanged)
        self.module_runs: ModuleRuns = module_runs_of(self.unchanged)
        self.noise = 0.0
        self._logits = 1
        self._shortens_head = False
        # Whether copies run together in one batch. It becomes False if a batch shows that the model
        # does not compute each copy separately.
        self._separates = True
        self._longest = max(len(stack.query_tokens) for stack in self.outline.stacks.values())

    def ask(self, answer: Any, position: int | str | None = None) -> None:
        """Set the attributes `answer` and `before`.

        The arguments are the requested answer, as in `answer_of`, and the token after which the
        answer is read, as in `reading_of`.
        """
        self.read_after(position, answer)
        self.answer = self.answer_to(answer)
        self.before = self.answer.value(self.outputs)

    def read_after(self, position: int | str | None, answer: Any = None) -> None:
        """Set the token after which answers are read. The arguments are those of `reading_of`.

        If `outputs` lacks logits that `answer` needs, run the unchanged model again.
        """
        self.reading = reading_of(self.record, position, self.outputs, self.example.batch, answer)
        self.require_logits(answer)

    def require_logits(self, answer: Any) -> bool:
        """Let later runs return the logits of all tokens that `answer` needs.

        If `outputs` lacks some of these logits, run the unchanged model again. Return whether the
        model ran again.
        """
        needed = self.reading.logits(answer)
        self._logits = max(self._logits, needed)
        if self.reading.row is None or self.outputs.logits.shape[1] >= needed:
            return False
        self.outputs = self.forward(None).outputs
        self.__dict__.pop("_perturbed", None)
        return True

    def answer_to(self, answer: Any, changed: Any = None) -> Answer:
        """Return the definition of an answer, as `answer_of` does.

        `changed` has the outputs of a changed run, or is None. The default answer depends on it.
        """
        return answer_of(self.example, self.outputs, answer, self.reading, changed)

    def change(self, *changes: Change) -> ForwardChange:
        """Return the `LayerChange` that applies `changes`, for each `ModuleRun` that they change.

        Raise the errors of `plan_of`.
        """
        return plan_of(changes, self.outline, self.module_runs)

    def forward(
        self, change: ForwardChange | None, options: CaptureOptions = MINIMAL_CAPTURE
    ) -> Forward:
        """Run the model on the example alone, with changes unless `change` is None."""
        return self.example.forward(options, change, self._logits)

    @property
    def arguments(self) -> Arguments:
        """Arguments of the model for the example alone."""
        return arguments_of(self.example.loaded, self.example.batch, self._logits)

    def answers(
        self, copies: Sequence[Copy], unchanged: Copy = Copy(), *, doing: str, unit: str
    ) -> list[float]:
        """Return the answer of each copy, and update `noise`.

        `unchanged` is a copy that should have the answer of the example alone. It is added to
        batches to check this. `doing` and `unit` are as in `Progress`. Raise NotImplementedError if
        the answer of `unchanged` differs even without other copies in its batch.
        """
        starts = [self._start_of(copy) for copy in copies]
        self.measure_noise()
        order = sorted(range(len(copies)), key=starts.__getitem__)
        # Add an unchanged copy only to batches that run all blocks, or that skip the smallest or
        # the largest number of blocks. Adding it to every batch would take too much time.
        checked = (0, min(starts, default=0), max(starts, default=0))
        most = copies_per_batch(self.example.loaded, self._longest) - 1
        values: dict[int, float] = {}
        for start, group in groupby(order, key=starts.__getitem__):
            indices = list(group)
            beside = [unchanged] if start in checked else []
            for first in range(0, len(indices), most):
                chunk = indices[first : first + most]
                answers = self._answers_of_batch([copies[i] for i in chunk], beside, start)
                if answers is None:
                    # With stored outputs of blocks, the answer of the unchanged copy differs. Run
                    # all copies again without stored outputs.
                    self._blocks.drop()
                    return self.answers(copies, unchanged, doing=doing, unit=unit)
                values.update(zip(chunk, answers, strict=True))
                report(doing, len(values), len(copies), unit)
        return [values[index] for index in range(len(copies))]

    def run(self, copies: Sequence[Copy], observe: Observer | None = None) -> Any:
        """Run copies in one batch, and return the outputs of the model.

        The texts of all copies must have the same length. `observe` gets each attention call after
        its output was changed. Gradients are disabled until `observe` enables them.
        """
        return self._run(copies, observe, start=min(map(self._start_of, copies)))

    def measure_noise(self) -> None:
        """Update `noise` with perturbed runs. Only the first call runs the model."""
        self.noise = max(self.noise, self.answer.noise(self._perturbed))

    def perturbed(
        self, answer: Answer, change: ForwardChange | None = None, *, many: bool = False
    ) -> list[Any]:
        """Run the unchanged model, with perturbed outputs of its modules.

        Return the outputs of each run. The noise of effects on `answer` is estimated from them.
        `change` is a change of the attention that does not change the answer, up to rounding.
        `many` is whether many effects are measured. The model runs once in float32 and float64, and
        a few times in half precision. If the text is short, these runs are copies in one batch.
        """
        number = _PERTURBED.get(self.model.dtype, _PERTURBED_HALF)[many]
        copies = [Copy(change or {})] * number
        if self._separates and 1 < number <= copies_per_batch(self.example.loaded, self._longest):
            try:
                outputs = self._run(copies, perturbs=True)
                parts = [example_of(outputs, self.outputs, index) for index in range(number)]
                before = answer.value(self.outputs)
                off = [abs(answer.value(part) - before) for part in parts]
            except Exception:  # noqa: BLE001 - a model that takes one example can raise any error
                off = []
            if off and max(off) <= self._rounding(before):
                return parts
        # Run each copy alone, because the model may not compute each copy of a batch separately.
        return [self._run([copy], perturbs=True) for copy in copies]

    def is_unchanged(self, copy: Copy) -> bool:
        """Run one copy, and return whether its answer is that of the example, up to rounding."""
        return self._is_unchanged(self.run([copy]), 0)

    def _start_of(self, copy: Copy) -> int:
        """Return how many blocks come before the first changed attention of a copy.

        The stored outputs of these blocks are valid for the copy, so the blocks do not run again.
        The result is 0 if the copy has other inputs, or if its attention is not changed.
        """
        if copy.inputs is not None or not copy.change:
            return 0
        return min(self._blocks.number_of.get(module_run, 0) for module_run in copy.change)

    def _answers_of_batch(
        self, copies: list[Copy], beside: list[Copy], start: int
    ) -> list[float] | None:
        """Return the answers of copies that run in one batch.

        The first `start` blocks return their stored outputs. `beside` is empty, or has an unchanged
        copy that is added to the batch. If the answer of this copy differs from that of the example
        alone, the answers of the batch are wrong. Then return None if `start` is not 0, because the
        stored outputs may be the reason. Otherwise, run these and all later copies one at a time,
        without stored outputs.
        """
        if self._separates:
            outputs = self._run([*beside, *copies], start=start)
            if not beside or self._is_unchanged(outputs, 0):
                return self._values(outputs, len(copies), len(beside))
            if start:
                return None
            self._stop_batches(beside[0])
        return [value for copy in copies for value in self._values(self._run([copy]), 1)]

    def _stop_batches(self, unchanged: Copy) -> None:
        """Run copies one at a time from now on.

        Raise NotImplementedError if the answer of `unchanged` differs from that of the example even
        without other copies in its batch.
        """
        self._separates = False
        if not self.is_unchanged(unchanged):
            raise NotImplementedError(
                f"model: the answer of {type(self.model).__name__} differs if its input is "
                "passed in another form, such as embeddings. Pass another removal."
            )

    def _values(self, outputs: Any, num_copies: int, first: int = 0) -> list[float]:
        """Return the answers of copies, which are the examples of `outputs` from `first`."""
        examples = range(first, first + num_copies)
        noise = (self.answer.noise_after(self._perturbed, outputs, index) for index in examples)
        self.noise = max(self.noise, *noise)
        return self.answer.values(outputs, examples)

    def _is_unchanged(self, outputs: Any, index: int) -> bool:
        """Return whether an unchanged copy has the answer `before`, up to rounding.

        If it has, `noise` becomes at least the difference between the two answers.
        """
        off = abs(self.answer.value(outputs, index) - self.before)
        # If an answer is NaN, the comparison is False, and the copy does not count as unchanged.
        is_same = off <= self._rounding(self.before)
        if is_same:
            self.noise = max(self.noise, off)
        return is_same

    def _rounding(self, largest: float) -> float:
        """Return how much a number may differ between a copy in a batch and the example alone.

        `largest` is the largest absolute value of the compared numbers.
        """
        return _SAME.get(self.model.dtype, _SAME_HALF) * max(1.0, abs(largest))

    def _run(
        self,
        copies: Sequence[Copy],
        observe: Observer | None = None,
        *,
        start: int = 0,
        perturbs: bool = False,
    ) -> Any:
        with Cleanup() as undo, undo:
            if perturbs:
                perturb(self.model, undo)
            skipped = self._blocks.replay(start, len(copies), undo) if start else []
            batch = self._batch_of(copies)
            if self._shortens_head and "logits_to_keep" not in batch.arguments:
                _shorten_head(self.model, self._logits, undo)
            changes = [copy.change for copy in copies]
            forward = run_forward(
                self.example.loaded,
                batch,
                options=MINIMAL_CAPTURE,
                changes=changes if any(changes) else (),
                skipped=skipped,
                trace_all=self.unchanged.collector.trace_all,
                observe=observe,
                logits=self._logits,
            )
        return forward.outputs

    def _batch_of(self, copies: Sequence[Copy]) -> Batch:
        own, batch = self.arguments, self.example.batch
        parts = [own if copy.inputs is None else copy.inputs() for copy in copies]
        arguments = {}
        for name, value in parts[0].items():
            shared = all(part[name] is value for part in parts)
            if shared or not isinstance(value, torch.Tensor) or value.dim() == 0:
                arguments[name] = _expanded(value, len(parts))
            else:
                arguments[name] = torch.cat([part[name] for part in parts])
        sequences = {
            name: TokenSequence(sequence.length, sequence.unpadded * len(copies))
            for name, sequence in batch.sequences.items()
        }
        return replace(batch, arguments=arguments, size=len(copies), sequences=sequences)

    @cached_property
    def _perturbed(self) -> list[Any]:
        """Outputs of perturbed runs of the unchanged model."""
        return self.perturbed(self.answer, many=True)

    @cached_property
    def _blocks(self) -> _Blocks:
        """Blocks of the model with their stored outputs.

        In a trial run, two unchanged copies use the stored outputs of all blocks before the last
        attention module. If the outputs of the copies differ from those of the example alone, the
        model does not allow stored outputs, and they are dropped.

        To save time and memory, the language head computes the logits only for the last tokens that
        the answer needs, unless this changes these logits, as in some models for pretraining.
        """
        blocks = _Blocks(self.model)
        row, alone = self.reading.row, [Copy()]
        for shortens in (False,) if row is None else (True, False):
            self._shortens_head = shortens
            with Cleanup() as undo, undo:
                blocks.record(undo)
                outputs = self._run(alone, blocks.note)
            own = None if row is None else self.outputs.logits[0, row].float()
            if own is None or self._is_close(outputs.logits[0, row].float(), own):
                break
        self.__dict__["_blocks"] = blocks
        last = max(blocks.number_of.values(), default=0)
        try:
            pair = self._run([Copy(), Copy()], start=last)
        except Exception:  # noqa: BLE001 - without some of its inputs, a block can raise any error
            pair = None
        if pair is None or not self._are_copies(pair, outputs):
            blocks.drop()
        return blocks

    def _is_close(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        most = self._rounding(float(other.abs().max()))
        return torch.allclose(one, other, rtol=0, atol=most, equal_nan=True)

    def _are_copies(self, pair: Any, alone: Any) -> bool:
        """Return whether two copies have the outputs of the example alone, up to rounding.

        `pair` are the outputs for a batch of the two copies, and `alone` those for the example.
        """
        for name in alone if isinstance(alone, Mapping) else range(len(alone)):
            one, two = alone[name], pair[name]
            if not isinstance(one, torch.Tensor) or not one.is_floating_point():
                continue
            if one.shape[:1] == (1,) and not (
                two.shape == (2, *one.shape[1:]) and self._is_close(two.float(), one.float())
            ):
                return False
        return True


def _expanded(value: Any, copies: int) -> Any:
    """Repeat an input or output of a module along the batch axis, for `copies` copies.

    Tensors whose first axis does not have the size 1 are returned unchanged.
    """
    if isinstance(value, torch.Tensor):
        if value.shape[:1] != (1,) or copies == 1:
            return value
        # Some models change their inputs in place, so each copy needs separate memory.
        return value.expand(copies, *value.shape[1:]).contiguous()
    if type(value) in (tuple, list):
        return type(value)(_expanded(item, copies) for item in value)
    if type(value) is dict:
        return {name: _expanded(item, copies) for name, item in value.items()}
    return value


def _shorten_head(model: Any, logits: int, undo: Cleanup) -> None:
    """Let the language head compute logits only for the last `logits` tokens.

    The language head is the direct child of the model that contains the output embeddings. Nothing
    changes if the model has no such child, or if this child also contains attention modules. The
    original ``forward`` of the head is restored at the end of the ``with`` block of `undo`.
    """
    outputs = model.get_output_embeddings()
    own = next(
        (
            child
            for child in model.children()
            if outputs is not None and any(module is outputs for module in child.modules())
        ),
        None,
    )
    if own is None or attention_modules(own):
        return
    thread, run = threading.get_ident(), own.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        is_head_input = (
            threading.get_ident() == thread and args and isinstance(args[0], torch.Tensor)
        )
        if is_head_input and args[0].dim() == 3:
            args = (args[0][:, -logits:], *args[1:])
        return run(*args, **kwargs)

    undo.add(partial(_put_back, own, own.__dict__.get("forward")))
    own.forward = forward


def module_runs_of(forward: Forward) -> ModuleRuns:
    """Return for each layer of each stack the `ModuleRun` that computed its attention."""
    return {
        (name, number): (run.name, run.turn)
        for name, layers in forward.stacks.items()
        for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }


def outline_of(record: AttentionRecord, forward: Forward) -> AttentionRecord:
    """Return a record with the layers, heads and tokens of a forward, but without its attention.

    Changes are checked and described with this record, which takes almost no memory.
    """
    made = {}
    for name, layers in forward.stacks.items():
        if name not in record.stacks:
            continue
        stack = record.stack(name)
        kept = {
            number: outline_of_layer(
                run.num_heads,
                len(stack.query_tokens),
                len(stack.key_tokens),
                vectors=run.dtype is not None,
            )
            for number, run in zip(layers.examples[0], layers.runs, strict=True)
        }
        made[name] = stack.derive(kept)
    return AttentionRecord(made, model=record.model, images=record.images)


def outline_of_layer(heads: int, queries: int, keys: int, *, vectors: bool) -> LayerAttention:
    """Return a placeholder for the attention of a layer. It takes almost no memory.

    It has the given numbers of heads, queries and keys, but all of its stored numbers are 0. With
    `vectors`, it stores query and key vectors, otherwise weights.
    """
    one = torch.zeros(1, 1, 1)
    if not vectors:
        return StoredWeights(one.expand(heads, queries, keys))
    return QueryKeyAttention(one.expand(heads, queries, 1), one.expand(heads, keys, 1), scale=1.0)


class _Blocks:
    """Blocks of a model, with their stored outputs.

    A block is an entry of a ``ModuleList`` that is not inside another ``ModuleList``.
    """

    def __init__(self, model: nn.Module) -> None:
        lists = [
            name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)
        ]
        outermost = [
            name for name in lists if not any(name.startswith(f"{other}.") for other in lists)
        ]
        self._blocks = [
            block for name in outermost for block in model.get_submodule(name).children()
        ]
        self._outputs: list[Any] = []
        self._begun = 0
        self._inside = False
        #: For each run of an attention module, the number of blocks that have finished before it.
        self.number_of: dict[ModuleRun, int] = {}

    def drop(self) -> None:
        """Remove all stored outputs. From now on, all blocks run."""
        self._outputs.clear()
        self.number_of.clear()

    def note(self, call: AttentionCall, module_run: ModuleRun) -> None:
        """Add a run of an attention module to `number_of`. Called while the model runs."""
        del call
        self.number_of[module_run] = self._begun - self._inside

    def record(self, undo: Cleanup) -> None:
        """Store the output of each block that runs until the ``with`` block of `undo` ends."""
        self._outputs.clear()
        self._replace_forwards(0, 1, undo, stores=True)

    def replay(self, until: int, copies: int, undo: Cleanup) -> list[ModuleRun]:
        """Let the first `until` blocks return their stored outputs, repeated for `copies` copies.

        After the ``with`` block of `undo`, the blocks compute their outputs again. Return the runs
        of attention modules that are skipped because they are in the first `until` blocks.
        """
        self._replace_forwards(until, copies, undo)
        return [module_run for module_run, number in self.number_of.items() if number < until]

    def _replace_forwards(
        self, until: int, copies: int, undo: Cleanup, *, stores: bool = False
    ) -> None:
        self._begun, self._inside = 0, False
        thread = threading.get_ident()
        for block in self._blocks:
            own = block.forward

            def forward(*args: Any, _own: Any = own, **kwargs: Any) -> Any:
                # A block that another block calls is part of that block, so it is neither counted
                # nor stored separately.
                if threading.get_ident() != thread or self._inside:
                    return _own(*args, **kwargs)
                self._begun += 1
                if self._begun <= until:
                    return _expanded(self._outputs[self._begun - 1], copies)
                self._inside = True
                try:
                    output = _own(*args, **kwargs)
                finally:
                    self._inside = False
                if stores:
                    self._outputs.append(output)
                return output

            undo.add(partial(_put_back, block, block.__dict__.get("forward")))
            block.forward = forward


def _put_back(module: nn.Module, forward: Any) -> None:
    if forward is None:
        module.__dict__.pop("forward", None)
    else:
        module.forward = forward

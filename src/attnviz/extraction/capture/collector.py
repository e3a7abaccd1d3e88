"""Classes and functions that collect the attention of one forward and join attention windows.

An attention call is one computation of attention by an attention module. A run is one forward of a
module, with one or more calls. A module may have several runs in a forward of the model. A stack is
the attention of one kind in all layers, such as the attention of a decoder. Some image encoders
attend in windows: a patch attends only to the patches of its window. The examples of a forward are
the texts or images of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import torch

from attnviz.extraction.capture.calls import read_attention, with_four_axes
from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.indexer import (
    NO_TIES,
    IndexerRun,
    Ties,
    mask_with_summaries,
    read_ranks,
    report_indexers,
)
from attnviz.extraction.capture.layer_change import Changer, Changes, ForwardChange, ModuleRun
from attnviz.extraction.capture.linear import RuleCall, report_rules, rule_call
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.extraction.capture.running import RunningModules
from attnviz.extraction.capture.sparse import SparseCall
from attnviz.extraction.families import (
    IMAGES,
    INDEXER,
    LANGUAGE_MODEL,
    SOUNDS,
    Summaries,
    indexer_of,
    summaries_of,
    summary_indexer,
)
from attnviz.extraction.inputs.batch import Batch, TokenSequence
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import (
    TEXTS_OF_STACKS,
    AttentionModule,
    attention_modules,
    layer_numbers,
    scan_modules,
    stack_of,
)
from attnviz.extraction.options import CaptureOptions
from attnviz.record.attention import QueryKeyAttention, StoredAttention, StoredWeights
from attnviz.record.linear import join_heads
from attnviz.record.masks import (
    BandMask,
    Bias,
    ChosenMask,
    Mask,
    PackedMask,
    WindowBias,
    WindowMask,
)
from attnviz.record.storage.spool import Spool
from attnviz.utils.cleanup import Cleanup

# Maximum number of bytes of the tensors of calls that are captured together. One after the other,
# they take half of the time that they take between the layers of a model, which displace the code
# of the capture from the cache of the processor. The outputs are compared in one computation.
_MAX_WAITING = 1 << 20

#: Function that gets each attention call, and the `ModuleRun` that made it.
Observer = Callable[[AttentionCall, ModuleRun], None]


@dataclass
class Run:
    """Attention that was captured in one run of an attention module.

    Attributes
    ----------
    name : str
        Path of the module in the model.
    stack : str
        Stack of the module, such as ``"self"`` or ``"vision"``.
    turn : int
        Number of earlier runs of the same module.
    input_shape : tuple of int
        Shape of the input of the module. Empty if it is not known.
    batch_sizes : set of int
        Possible numbers of examples in the input of the module.
    calls : list of list
        For each captured attention call, the attention of each example. A call with several windows
        has one list per window, each with the attention of every example.
    num_calls : int
        Number of captured attention calls. A call with several windows counts once.
    total_shape : tuple of int
        Number of queries and number of keys of one example, summed over all captured calls and
        windows. Padding is included, so the numbers are the same for all examples.
    dtype : dtype or None
        Dtype of the queries and keys of the last captured call, or None if they are not known.
    has_all_logits : bool
        Whether the product of queries and keys is the only product in the logits (not in DeBERTa,
        which also multiplies by position embeddings).
    dispatched : bool
        Whether all captured calls used transformers' attention dispatcher or torch's
        `scaled_dot_product_attention`.
    is_copied : bool
        Whether the attention is copied, which is done for requested layers. If False, the
        attentions in `calls` have only the numbers of queries and keys, and no heads.
    num_heads : int
        Number of heads.
    rule : str or None
        Name of the rule of a linear layer (a key of `LINEAR_RULES`), or None for softmax attention.
    positions : sequence of Positions or None
        Queries and keys of each example that are not padding. None if the run made no call or
        several calls, or if its call has windows.
    mask : Tensor or None
        For a module that chooses keys (`INDEXER`), the mask that it got as an argument, (batch, 1,
        queries, keys). This mask also allows keys that are then not chosen. If the module chooses
        summaries of tokens, columns for the summaries are appended. None if the module got no such
        mask, and for other modules.
    summaries : Summaries or None
        Summaries to which the module attends, or None. A short text may have no summary.
    ties : Ties
        For an indexer, the number of choices that rounding may change.
    """

    name: str
    stack: str
    turn: int = 0
    input_shape: tuple[int, ...] = ()
    batch_sizes: frozenset[int] = frozenset()
    calls: list[list[StoredAttention]] = field(default_factory=list)
    num_calls: int = 0
    total_shape: tuple[int, int] = (0, 0)
    dtype: torch.dtype | None = None
    has_all_logits: bool = True
    dispatched: bool = True
    is_copied: bool = False
    num_heads: int = 0
    rule: str | None = None
    positions: Sequence[Positions] | None = None
    mask: torch.Tensor | None = None
    summaries: Summaries | None = None
    ties: Ties = NO_TIES

    @property
    def num_tokens(self) -> set[int]:
        """Possible numbers of tokens per example in the input of the module.

        The features of a token may be the last axis or, as in images, the second axis. Each of
        these two cases gives a number. The result is empty if the input is not known, is empty or
        has fewer than two axes.
        """
        size = math.prod(self.input_shape)
        if len(self.input_shape) < 2 or not size:
            return set()
        axes = (self.input_shape[-1], self.input_shape[1])
        return {size // features // count for features in axes for count in self.batch_sizes}

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of queries and keys of the first example, summed over `calls`.

        Padding does not count.
        """
        return (
            sum(call[0].num_queries for call in self.calls),
            sum(call[0].num_keys for call in self.calls),
        )

    @property
    def examples(self) -> list[StoredAttention]:
        """Attention of each example. All calls and windows are joined (see `joined_windows`)."""
        return [joined_windows(parts) for parts in zip(*self.calls, strict=True)]


class Collector:
    """Collector of the attention that a model computes in one forward.

    Parameters
    ----------
    loaded : Loaded
        The model that runs.
    batch : Batch
        Inputs of the forward.
    options : CaptureOptions
        Which layers are copied, and the dtype and device of the copies.
    spools : sequence of Spool
        For each example, the spool (a folder on disk) to which its copies are written. Copies stay
        in memory if no spools are passed.
    trace_all : bool
        Whether to trace the torch functions of all modules with a softmax (see `RunningModules`).
    changes : sequence of mapping
        For each example, the changes of the model's attention. Empty if nothing is changed.
    skipped : sequence of ModuleRun
        Runs of modules that this forward leaves out, because an earlier forward has computed their
        results.

    Attributes
    ----------
    sequences : mapping of str to TokenSequence
        Token sequences by name: ``"input"``, ``"decoder"`` for an encoder-decoder model, and
        ``"input keys"`` if an adapter adds keys without queries.
    """

    def __init__(
        self,
        loaded: Loaded,
        batch: Batch,
        options: CaptureOptions,
        *,
        spools: Sequence[Spool] = (),
        trace_all: bool = False,
        changes: Sequence[ForwardChange] = (),
        skipped: Sequence[ModuleRun] = (),
    ) -> None:
        self.model = loaded.model
        virtual = loaded.virtual
        self.sequences: Mapping[str, TokenSequence] = (
            batch.sequences if virtual is None else virtual.sequences(batch.sequences)
        )
        self._batch_size = batch.size
        # Whether several texts are compared with one image or sound (CLIP, CLAP).
        self._shares_media = batch.size > 1 and any(
            name.startswith((*IMAGES, *SOUNDS)) and len(value) == 1
            for name, value in batch.arguments.items()
            if isinstance(value, torch.Tensor) and value.dim()
        )
        self._batch_sizes = frozenset({batch.size, 1} if self._shares_media else {batch.size})
        self._options = options
        self._changes = changes
        self.runs: list[Run] = []
        self._by_module_run: dict[ModuleRun, Run] = {}
        # Largest number of examples or windows of a call. If it is 1 and the batch has several
        # examples, the model treats all rows of the batch as one example.
        self.max_examples = 0
        self.trace_all = trace_all
        self.scan = scan_modules(self.model)
        self._modules = self.scan.attending
        # The model counts as a vision model only if it reads no text. If it reads text and images,
        # the stack of a module follows from the path of the module.
        vision = "input_ids" not in batch.arguments and any(
            name.startswith("pixel_values") for name in batch.arguments
        )
        # Stack of modules outside of the language model whose paths do not name a stack. None if
        # the model has no separate language model.
        beside_text = None
        if any(LANGUAGE_MODEL in entry.name.split(".") for entry in self._modules):
            sounds = any(map(batch.arguments.__contains__, SOUNDS))
            beside_text = "audio" if sounds else "vision"
        self._stack_of = partial(
            stack_of,
            encoder_decoder=loaded.is_encoder_decoder,
            vision=vision,
            beside_text=beside_text,
        )
        self._linear = {entry.name: entry.module for entry in self._modules if entry.linear}
        self._indexers = {
            indexer: entry
            for entry in self._modules
            if (indexer := indexer_of(entry.module)) is not None
        }
        #: Paths of the indexers whose scores could not be read.
        self.unread_indexers: list[str] = []
        self._running = RunningModules(self.scan, trace_all=trace_all, skipped=skipped)
        self._unpadded: dict[tuple[str, int, int, int], list[Positions]] = {}
        self._masks = MaskReader()
        self.check = SelfCheck()
        self._copier = Copier(options, spools, self.check.postponed)
        # Calls that are captured later, and the size of the tensors that they and the calls with
        # outputs to compare keep in memory.
        self._waiting: list[tuple[AttentionCall, Run]] = []
        self._num_waiting_bytes = 0
        # The last call of the running module, if it has queries and keys. It is dropped when the
        # module ends, because it keeps them in memory.
        self._previous: tuple[AttentionCall, Run] | None = None
        self.stacks: dict[str, list[AttentionModule]] = {}
        for entry in self._modules:
            if entry.computes:
                stack = "linear" if entry.linear else self._stack_of(entry.name)
                self.stacks.setdefault(stack, []).append(entry)

    @property
    def changed(self) -> set[ModuleRun]:
        """Runs whose attention was changed."""
        return self._changer.changed

    @property
    def lowered_queries(self) -> dict[int, set[int]]:
        """`MaskReader.lowered` of the captured layers."""
        return self._masks.lowered

    @property
    def virtual_keys(self) -> int:
        """Number of learned keys that an adapter puts before the keys of the text, or 0."""
        keys = self.sequences.get("input keys")
        return 0 if keys is None else keys.length - self.sequences["input"].length

    def watch(self, undo: Cleanup, observe: Observer | None = None) -> None:
        """Collect the attention computed in this thread until the ``with`` block of `undo` ends.

        `observe` gets each call after the requested changes of its output.
        """
        self._changer = Changer(undo)

        def receive(call: AttentionCall) -> None:
            if isinstance(call, SparseCall):
                sequence = self.sequences.get("input")
                call = call.first_tokens(None if sequence is None else sequence.length)
            run = self._receive(call)
            if observe is not None:
                observe(call, (run.name, run.turn))

        def receive_rule(rule: str, arguments: dict[str, Any], output: torch.Tensor) -> None:
            # Ignore a rule that is called outside of the modules with attention.
            if self._running.innermost is not None:
                entry, _ = self._running.innermost
                receive(rule_call(entry.module, rule, arguments, output))

        self._running.watch(
            receive,
            undo,
            edit=self._edit_weights if self._changes else None,
            outputs=any(
                layer_change.outputs for change in self._changes for layer_change in change.values()
            ),
            begun=self._begin,
            ended=partial(setattr, self, "_previous", None),
        )
        report_rules(list(self._linear.values()), receive_rule, undo)
        report_indexers(list(self._indexers), self._receive_ranks, undo)

    def _begin(self, module_run: ModuleRun, arguments: Sequence[Any]) -> None:
        # The code between the layers of a model is slow, because the layers displace it from the
        # cache of the processor. So do little here and in `_receive`.
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        run = self._new_run(module_run, tuple(tensors[0].shape) if tensors else ())
        if self._indexers:
            run.mask = next((tensor for tensor in tensors if tensor.dim() == 4), None)

    def _new_run(self, module_run: ModuleRun, input_shape: tuple[int, ...] = ()) -> Run:
        name, turn = module_run
        stack = "linear" if name in self._linear else self._stack_of(name)
        run = Run(name, stack, turn, input_shape, self._batch_sizes)
        self._by_module_run[module_run] = run
        self.runs.append(run)
        return run

    def _receive(self, call: AttentionCall) -> Run:
        module_run = self._running.run_of(call.module)
        run = self._by_module_run.get(module_run) or self._new_run(module_run)
        self._num_waiting_bytes += _num_bytes(call)
        is_full = self._num_waiting_bytes >= _MAX_WAITING
        if is_full or self._changes or call.weights is not None or isinstance(call, RuleCall):
            self._capture_waiting()
            self._capture(call, run)
            if is_full:
                self._num_waiting_bytes = 0
                self.check.compare_samples()
        else:
            # The model may overwrite the output before it is compared.
            output = call.output.detach().clone() if isinstance(call.output, torch.Tensor) else None
            self._waiting.append((replace(call, output=output), run))
        return run

    def _capture_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call, run in waiting:
            self._capture(call, run)

    def finish(self) -> None:
        """Complete the captures and checks of a forward. Raise the errors of `SelfCheck.finish`."""
        self._capture_waiting()
        self._previous = None
        self.check.finish()

    def _capture(self, call: AttentionCall, run: Run) -> None:
        """Add the attention of a call to its run, and change the output if this was requested."""
        if call.weights is not None:
            call = with_four_axes(call, self._batch_size, run.num_tokens)
        num_examples = call.num_examples
        self.max_examples = max(self.max_examples, num_examples)
        windows = 1
        if num_examples not in (1, self._batch_size):
            # If several texts share an image or sound, all windows are those of one example.
            is_shared = self._shares_media and run.stack in ("audio", "vision")
            windows, remainder = divmod(num_examples, 1 if is_shared else self._batch_size)
            if remainder:
                raise NotImplementedError(
                    f"model: {run.name} ({type(call.module).__name__}) attends in "
                    f"{num_examples} windows or groups for {self._batch_size} examples, and it "
                    "is unclear which windows belong to which example. Pass one example."
                )
        if windows == 1:
            run.summaries = summaries_of(call.module)
            # Summaries follow the tokens.
            num_summaries = 0 if run.summaries is None else call.num_keys - call.num_queries
            unpadded = self._positions(
                run.stack, call.num_queries, call.num_keys, num_summaries=num_summaries
            )
        else:
            unpadded = [Positions(None, None)] * num_examples
        read = cache(partial(self._read, call, unpadded, run))
        # Differential attention calls the attention function several times with the same queries
        # and keys, but other values. Only the first call is captured.
        is_same = (
            self._previous is not None
            and self._previous[1] is run
            and (_addresses(self._previous[0]) == _addresses(call))
        )
        self._previous = None if call.query is None or call.key is None else (call, run)
        if is_same and windows == 1:
            run.positions = None
        else:
            self._capture_call(call, unpadded, run, windows, read)
        # Change the output only now, because `read_attention` compares the model's own output.
        if self._changes:
            self._change_output(call, unpadded, run, read)

    def _read(
        self, call: AttentionCall, unpadded: Sequence[Positions], run: Run
    ) -> Sequence[StoredAttention]:
        attentions = read_attention(call, unpadded, self._masks, self.check, name=run.name)
        module = call.module
        if not self._indexers or not (hasattr(module, INDEXER) or summary_indexer(module)):
            return attentions
        # The mask of the call allows only chosen keys. `run.mask` allows all keys that could be
        # chosen. If it is None, these are the keys of causal attention.
        bases: list[Mask | None] = [BandMask(None, 0)] * len(attentions)
        if run.mask is not None:
            bases = [mask for mask, _ in self._masks.read(replace(call, mask=run.mask), unpadded)]
        return list(map(_with_choice, attentions, bases))

    def _receive_ranks(self, indexer: torch.nn.Module, indexer_run: IndexerRun) -> None:
        """Capture the ranks of the scores of an indexer, as a run of the stack "indexer".

        For an indexer of summaries, also add columns for the summaries to the mask of its attention
        module.
        """
        entry = self._indexers[indexer]
        name, summaries = f"{entry.name}.{INDEXER}", None
        if summary_indexer(entry.module) is indexer:
            name, summaries = f"{entry.name}.compressor.{INDEXER}", summaries_of(entry.module)
        if self._running.innermost is not None:
            attention_run = self._by_module_run[self._running.innermost[1]]
            indexer_run.mask = attention_run.mask
            if summaries is not None:
                attention_run.mask = mask_with_summaries(indexer_run)
        # A short text has no summaries.
        if not self.is_requested(entry.name) or not indexer_run.chosen.shape[-1]:
            return
        num_tokens = indexer_run.chosen.shape[-2]
        unpadded = self._positions("self", num_tokens, num_tokens)
        try:
            ranks, ties = read_ranks(indexer, indexer_run, unpadded)
        except NotImplementedError:
            self.unread_indexers.append(name)
            return
        written = ((index, name) for index in range(len(ranks)))
        run = Run(name, "indexer", num_calls=1, is_copied=True, num_heads=ranks[0].num_heads)
        run.positions, run.summaries, run.ties = unpadded, summaries, ties
        run.calls = [list(map(self._copier.copy, ranks, written))]
        run.total_shape = run.shape
        self.runs.append(run)

    def _capture_call(
        self,
        call: AttentionCall,
        unpadded: Sequence[Positions],
        run: Run,
        windows: int,
        read: Callable[[], Sequence[StoredAttention]],
    ) -> None:
        """Add the attention of a call to `run`. `read` returns the attention of each example."""
        if not run.num_calls:
            run.num_heads = call.num_heads
            run.is_copied = self.is_requested(run.name)
        attentions: list[StoredAttention]
        if not run.is_copied:
            attentions = [
                StoredWeights(torch.empty(0, *_unpadded_size(call, positions)))
                for positions in unpadded
            ]
        else:
            # Copies of windows stay in memory even if there are spools, because the windows of an
            # example are joined to one attention after the forward.
            attentions = [
                self._copier.copy(attention, None if windows > 1 else (index, run.name))
                for index, attention in enumerate(read())
            ]
        if isinstance(call, RuleCall):
            if run.rule is not None:
                # Zamba calls the rule of Mamba-1 once for each head.
                run.num_heads += call.num_heads
                self.check.postponed.arrive()
                run.calls = [list(map(join_heads, run.calls[0], attentions))]
                return
            run.rule = call.rule
        run.num_calls += 1
        run.positions = unpadded if windows == 1 and run.num_calls == 1 else None
        run.dtype = None if call.query is None else call.query.dtype
        run.total_shape = (
            run.total_shape[0] + windows * call.num_queries,
            run.total_shape[1] + windows * call.num_keys,
        )
        run.has_all_logits = run.has_all_logits and call.has_all_logits
        run.dispatched = run.dispatched and call.weights is None
        num_shared = 1 if windows == 1 else self._batch_size * windows // len(attentions)
        for window in range(windows):
            run.calls.append([*attentions[window::windows]] * num_shared)

    def _changes_of(self, run: Run) -> Changes:
        """Return the change of a run, or None, for each example.

        Return an empty list if no example has a change of this run.
        """
        changes = [change.get((run.name, run.turn)) for change in self._changes]
        return changes if any(change is not None for change in changes) else []

    def _change_output(
        self,
        call: AttentionCall,
        unpadded: Sequence[Positions],
        run: Run,
        read: Callable[[], Sequence[StoredAttention]],
    ) -> None:
        """Change the output of a call if a change was requested.

        `read` returns the attention of the call for each example.
        """
        changes, module_run = self._changes_of(run), (run.name, run.turn)
        if isinstance(call, RuleCall):
            # `run.num_heads` counts the heads of all calls so far. The last are those of this call.
            first_head = run.num_heads - call.num_heads
            changes = [one and one.of_heads(first_head, call.num_heads) for one in changes]
        if changes:
            self._changer.change_outputs(module_run, call, changes, unpadded, read)

    def _edit_weights(self, weights: torch.Tensor) -> bool:
        """Change the weights of the innermost running module right after its softmax.

        Return whether a change was requested.
        """
        if self._running.innermost is None:
            return False
        entry, module_run = self._running.innermost
        run = self._by_module_run[module_run]
        changes = self._changes_of(run)
        if changes:
            positions = self._positions(run.stack, *weights.shape[-2:])
            self._changer.edit_weights(module_run, entry.module, weights, changes, positions)
        return bool(changes)

    def is_requested(self, path: str) -> bool:
        """Whether a module may belong to a layer that the options request.

        Layer numbers are predicted from module paths. They are certain only after the forward,
        because they depend on which modules run and how often.
        `attnviz.extraction.capture.stacks.is_copied` detects wrong predictions.
        """
        return not self._options.outline and path not in self._unrequested

    @cached_property
    def _unrequested(self) -> set[str]:
        """Paths of the modules whose predicted layer number is not requested.

        Modules without a predicted number are not in the set.
        """
        unrequested: set[str] = set()
        for entries in self.stacks.values():
            paths = [entry.name for entry in entries]
            numbers = layer_numbers(paths)
            # In ALBERT, one module computes all layers. So do not predict the number of a module
            # that is the only one of its stack.
            if numbers is not None and len(paths) > 1:
                keeps = self._options.of_stack(sorted(numbers)).keeps
                pairs = zip(paths, numbers, strict=True)
                unrequested.update(path for path, number in pairs if not keeps(number))
        return unrequested

    @cached_property
    def missing(self) -> list[AttentionModule]:
        """Modules with softmax attention that ran in the forward but were not captured."""
        captured = {run.name for run in self.runs if run.calls}
        if all(entry.name in captured for entry in self._modules if entry.softmax):
            return []
        # The forward may have replaced modules, as BigBird does for short texts. Then only the new
        # module at the path counts.
        modules = {entry.name: entry for entry in [*self._modules, *attention_modules(self.model)]}
        ran = {run.name for run in self.runs}
        return [
            entry
            for name, entry in modules.items()
            if entry.softmax
            and name not in captured
            and (name in ran or id(entry.module) not in self.scan.paths)
        ]

    @property
    def has_untraced_attention(self) -> bool:
        """Whether an attention module ran that was neither captured nor traced.

        Another forward that traces (observes) the torch functions of all modules may capture it.
        """
        return any(
            id(entry.module) not in self.scan.paths or not self._running.is_traced(entry)
            for entry in self.missing
        )

    def _positions(
        self, stack: str, num_queries: int, num_keys: int, *, num_summaries: int = 0
    ) -> list[Positions]:
        """Return, for each example of a call, the queries and keys that are not padding.

        `stack` is the stack of the module that made the call. The last `num_summaries` keys are
        summaries of tokens, none of which counts as padding. Equal arguments give the same list
        object, because `MaskReader` finds its earlier results by the id of this list.
        """
        key = (stack, num_queries, num_keys, num_summaries)
        if key not in self._unpadded:
            # The number of patches may equal the length of a text by chance, so ignore the padding
            # of texts in stacks without text.
            of_queries, of_keys = TEXTS_OF_STACKS.get(stack, ("", ""))
            num_tokens = num_keys - num_summaries
            queries = self._unpadded_of(num_queries, of_queries)
            keys = self._unpadded_of(num_tokens, of_keys, f"{of_keys} keys")
            if num_summaries:
                added = torch.arange(num_tokens, num_keys)
                keys = [None if tokens is None else torch.cat([tokens, added]) for tokens in keys]
            self._unpadded[key] = [Positions(*pair) for pair in zip(queries, keys, strict=True)]
        return self._unpadded[key]

    def _unpadded_of(self, length: int, *names: str) -> list[torch.Tensor | None]:
        """Return, for each example, the positions that are not padding. None means all positions.

        The padding is that of the first token sequence in `names` with `length` positions. Without
        such a sequence, every position counts as a token.
        """
        for name in names:
            sequence = self.sequences.get(name)
            if sequence is not None and sequence.length == length:
                return sequence.unpadded
        return [None] * self._batch_size


def _unpadded_size(call: AttentionCall, unpadded: Positions) -> tuple[int, int]:
    """Return the numbers of queries and keys of an example or window, without padding."""
    num_queries = call.num_queries if unpadded.queries is None else len(unpadded.queries)
    num_keys = call.num_keys if unpadded.keys is None else len(unpadded.keys)
    return num_queries, num_keys


def _num_bytes(call: AttentionCall) -> int:
    """Return the size of the queries, keys, values and output of a call."""
    tensors = (call.query, call.key, call.value, call.output)
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def _addresses(call: AttentionCall) -> list[tuple[int, torch.Size] | None]:
    """Return where the queries and keys of a call are in memory, each None if it is not known.

    Equal numbers at different addresses are not the same, because two windows or images may be
    equal.
    """
    tensors = (call.query, call.key)
    return [None if tensor is None else (tensor.data_ptr(), tensor.shape) for tensor in tensors]


def joined_windows(parts: Sequence[StoredAttention]) -> StoredAttention:
    """Join the attention of windows, or of several calls, into one attention over all their tokens.

    Queries and keys are in the order of the windows or calls. A query does not attend to keys of
    another window or call.
    """
    if len(parts) == 1:
        return parts[0]
    vectors = [part.vectors for part in parts if part.vectors is not None]
    if len(vectors) < len(parts):
        blocks = [part.weights for part in parts if isinstance(part, StoredWeights)]
        num_queries, num_keys = (sum(block.shape[axis] for block in blocks) for axis in (1, 2))
        # The attention of a layer that is not copied has no heads, and `torch.stack` needs at least
        # one tensor.
        values = torch.empty(0, num_queries, num_keys)
        if len(blocks[0]):
            values = torch.stack([torch.block_diag(*head) for head in zip(*blocks, strict=True)])
        return StoredWeights(values)
    query_windows, query_positions = _window_indices([part.num_queries for part in vectors])
    key_windows, key_positions = _window_indices([part.num_keys for part in vectors])
    windows = (query_windows, key_windows)
    return replace(
        vectors[0],
        queries=torch.cat([part.queries for part in vectors], dim=1),
        keys=torch.cat([part.keys for part in vectors], dim=1),
        mask=_joined_mask(vectors, WindowMask(*windows)),
        bias=_joined_bias(
            [part.bias for part in vectors], windows, (query_positions, key_positions)
        ),
    )


def _window_indices(lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of each token's window, and the index of each token in its window.

    `lengths` has the number of tokens of each window.
    """
    windows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return windows, torch.cat([torch.arange(length) for length in lengths])


def _with_choice(attention: StoredAttention, base: Mask | None) -> StoredAttention:
    """Return `attention` with a mask that distinguishes left-out keys from masked ones."""
    if not isinstance(attention, QueryKeyAttention) or attention.mask is None:
        return attention
    if base is not None and attention.mask.equals(base):
        return attention
    return replace(attention, mask=ChosenMask(attention.mask, base))


def _joined_mask(parts: Sequence[QueryKeyAttention], windows: WindowMask) -> Mask:
    masks = [part.mask for part in parts if part.mask is not None]
    if not masks:
        return windows
    num_heads = max(mask.num_heads for mask in masks)
    flags = [
        torch.block_diag(
            *(part.allowed([head], slice(0, part.num_queries))[0] for part in parts)
        ).bool()
        for head in range(num_heads)
    ]
    return PackedMask.pack(torch.stack(flags))


def _joined_bias(
    biases: Sequence[Bias | None],
    windows: tuple[torch.Tensor, torch.Tensor],
    positions: tuple[torch.Tensor, torch.Tensor],
) -> WindowBias | None:
    known = [bias for bias in biases if bias is not None]
    if not known:
        return None
    size = [int(indices.max()) + 1 for indices in positions]
    window = slice(0, size[0]), slice(0, size[1])
    num_heads = max(bias.num_heads for bias in known)
    distinct = biases[:1] if all(bias is biases[0] for bias in biases) else biases
    values = [
        torch.zeros(num_heads, *size)
        if bias is None
        else torch.stack([bias.added(head, *window).expand(*size) for head in range(num_heads)])
        for bias in distinct
    ]
    return WindowBias(torch.stack(values), *windows, *positions)

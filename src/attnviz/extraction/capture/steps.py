"""Classes that change attention in every step of a generation.

A step is one forward of the model. Its queries are the tokens that the model has not read yet: the
prompt in the first step, and the last generated token in later steps. The cache has the keys of
earlier tokens. Without a cache, the queries are all tokens in every step.

The positions of queries and keys in the text follow from the length of the cache and from the
number of keys: a dynamic cache returns all keys, a cache with a sliding window returns only the
last keys, and a static cache also returns entries for keys of later tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from attnviz.extraction.capture.calls import read_attention, with_four_axes
from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import Block, Changer, LayerChange, ModuleRun
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.extraction.capture.running import RunningModules
from attnviz.extraction.capture.sparse import SparseCall
from attnviz.extraction.families import CACHES
from attnviz.extraction.hooks import Hooks
from attnviz.extraction.modules import scan_modules
from attnviz.record.attention import StoredAttention
from attnviz.utils.cleanup import Cleanup

#: Stacks (kinds of attention) in which every step of a generation has new queries.
MORE_QUERIES = ("self", "decoder", "cross")
#: Stacks in which every step of a generation adds keys to those of earlier steps.
MORE_KEYS = ("self", "decoder")


@dataclass(frozen=True)
class StepChange:
    """Change of one attention module in every step of a generation.

    Attributes
    ----------
    stack : str
        Stack of the module, such as ``"self"``.
    num_heads : int
        Number of heads of the module.
    change_for : callable
        Function that gets the number of queries and the number of keys of the text so far, and
        returns the change of the module's attention over this text.
    """

    stack: str
    num_heads: int
    change_for: Callable[[int, int], LayerChange]


class ChangedSteps:
    """Changes of a model's attention while the model generates. The prompt must have no padding.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    changes : mapping of ModuleRun to StepChange
        Changes by the run of a module within a step.
    trace_all : bool
        Whether to trace the torch functions of all modules with a softmax (see `RunningModules`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        changes: Mapping[ModuleRun, StepChange],
        *,
        trace_all: bool,
    ) -> None:
        self._model = model
        self._changes = changes
        self._running = RunningModules(scan_modules(model), trace_all=trace_all)
        self._offset = 0
        self._masks = MaskReader()

    def watch(self, undo: Cleanup) -> None:
        """Change attention in this thread until the ``with`` block of `undo` ends."""
        self._changer = Changer(undo)
        register = self._model.register_forward_pre_hook
        Hooks(undo).add(register, self._begin_step, with_kwargs=True)
        self._running.watch(self._receive, undo, edit=self._edit_weights)

    def _begin_step(self, _module: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
        lengths = (getattr(kwargs.get(name), "get_seq_length", None) for name in CACHES)
        self._offset = next((int(length() or 0) for length in lengths if length is not None), 0)
        self._running.restart()
        self._changer.changed.clear()
        # Start with an empty cache, because the masks of earlier steps do not occur again.
        self._masks = MaskReader()

    def _in_text(
        self, step_change: StepChange, num_examples: int, num_queries: int, num_keys: int
    ) -> tuple[list[LayerChange], list[Positions], Block]:
        """Return the changes and positions of examples, and the location of a call in the text.

        The call has `num_queries` queries and `num_keys` keys.
        """
        first = self._offset if step_change.stack in MORE_QUERIES else 0
        block = Block(first, 0, first + num_queries, num_keys)
        if step_change.stack in MORE_KEYS:
            queries = block.num_queries
            block = Block(first, max(0, queries - num_keys), queries, queries)
        change = step_change.change_for(block.num_queries, block.num_keys)
        return [change] * num_examples, [Positions(None, None)] * num_examples, block

    def _receive(self, call: AttentionCall) -> None:
        module_run = self._running.run_of(call.module)
        step_change = self._changes.get(module_run)
        if step_change is None:
            return
        if isinstance(call, SparseCall):
            call = call.first_tokens()
        if call.weights is not None:
            call = with_four_axes(call, _num_examples(step_change, call.weights))
        sizes = call.num_examples, call.num_queries, call.num_keys
        changes, unpadded, block = self._in_text(step_change, *sizes)

        def read() -> Sequence[StoredAttention]:
            check = SelfCheck()
            attentions = read_attention(call, unpadded, self._masks, check, name=module_run[0])
            check.finish()
            return attentions

        self._changer.change_outputs(module_run, call, changes, unpadded, read, block=block)

    def _edit_weights(self, weights: torch.Tensor) -> bool:
        entry, module_run = self._running.innermost or (None, ("", 0))
        step_change = self._changes.get(module_run)
        if entry is None or step_change is None:
            return False
        examples = _num_examples(step_change, weights)
        changes, unpadded, block = self._in_text(step_change, examples, *weights.shape[-2:])
        self._changer.edit_weights(
            module_run, entry.module, weights, changes, unpadded, block=block
        )
        return True


def _num_examples(step_change: StepChange, weights: torch.Tensor) -> int:
    """Return the number of continuations (examples) in a tensor of weights.

    If the weights have three axes, the first axis has the heads of all examples.
    """
    return len(weights) if weights.dim() == 4 else max(1, len(weights) // step_change.num_heads)

"""Observation of the positions that a model gives to its tokens.

A model with absolute positions reads a vector for each position from a table. If a row begins with
padding and the caller passes no positions, some models count the padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from transformers import PreTrainedConfig

from attnviz.extraction.adapters import base_of
from attnviz.extraction.capture.trace import FunctionMode
from attnviz.extraction.families import NOT_TEXT, POSITION_TABLE
from attnviz.extraction.inputs.batch import TokenSequence
from attnviz.extraction.modules import ModuleScan
from attnviz.utils.cleanup import Cleanup


class PositionWatch(FunctionMode):
    """Observer of the positions with which a model reads its tables.

    Parameters
    ----------
    model : PreTrainedModel
        The model, or an adapter around it.
    scan : ModuleScan
        Modules of the model.
    arguments : mapping
        Arguments of the forward. Numbers among them, such as token ids, are no positions that the
        model has made.
    sequences : mapping of str to TokenSequence
        Token sequences of the forward, by name.
    size : int
        Number of examples.

    Attributes
    ----------
    notes : list of list of str
        Notes of each example.
    """

    def __init__(
        self,
        model: Any,
        scan: ModuleScan,
        arguments: Mapping[str, Any],
        sequences: Mapping[str, TokenSequence],
        size: int,
    ) -> None:
        super().__init__()
        self._scan = scan
        self._sequences = {
            name: sequence
            for name, sequence in sequences.items()
            if name in ("input", "decoder")
            and f"{'decoder_' if name == 'decoder' else ''}position_ids" not in arguments
            and any(map(num_padding, sequence.unpadded))
        }
        self._has_sides = "decoder" in sequences
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        self._passed = {tensor.data_ptr() for tensor in tensors}
        self._widths = _widths(model) if self._sequences else set()
        self.notes: list[list[str]] = [[] for _ in range(size)]

    def watch(self, undo: Cleanup) -> None:
        """Observe this thread until the block of `undo` ends, if a text begins with padding."""
        if self._sequences:
            undo.add(self.stop)
            self.start()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function. If it reads a table, look for positions that count padding."""
        del types
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "embedding":
            table = kwargs.get("weight", args[1] if len(args) > 1 else None)
            self._read(table, kwargs.get("input", args[0] if args else None))
        elif name == "index_select" and len(args) == 3 and args[1] == 0:
            self._read(args[0], args[2])
        elif name == "__getitem__":
            index = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
            self._read(args[0], index)
        return func(*args, **kwargs)

    def _read(self, table: Any, index: Any) -> None:
        """Add notes if `index` are positions of rows of `table` that count padding."""
        if not isinstance(table, torch.Tensor) or not isinstance(index, torch.Tensor):
            return
        # Tables of rotary positions are as wide as a head. Such positions are relative.
        is_table = table.is_floating_point() and table.dim() == 2 and table.shape[1] in self._widths
        is_index = not (index.is_floating_point() or index.dtype == torch.bool) and index.dim() > 0
        if not is_table or not is_index or index.data_ptr() in self._passed:
            return
        path, unused = self._owner(table)
        if NOT_TEXT.search(path):
            return
        is_decoder = any(part.endswith("decoder") for part in path.split("."))
        for name, sequence in self._sequences.items():
            if self._has_sides and (name == "decoder") != is_decoder:
                continue
            # BigBird pads a text until it fills its blocks.
            is_longer = bool(POSITION_TABLE.match(path.rpartition(".")[2]))
            length = index.shape[-1] if is_longer else sequence.length
            if length < sequence.length or index.numel() not in (length, length * len(self.notes)):
                continue
            rows = index.reshape(-1, length)[:, : sequence.length].cpu()
            for number, unpadded in enumerate(sequence.unpadded):
                row = rows[number if len(rows) > 1 else 0]
                count = num_padding(unpadded)
                # Positions that count padding are consecutive in the whole row. Those that a model
                # computes from the mask or the ids are also consecutive if there is one padding
                # token, which then has a position that no token has.
                if (
                    count
                    and unpadded is not None
                    and torch.equal(row, row[0] + torch.arange(len(row)))
                    and (count > 1 or int(row[0]) >= unused)
                ):
                    self._add(number, count, is_before=int(unpadded[0]) == count)

    def _owner(self, table: torch.Tensor) -> tuple[str, int]:
        """Return the path of the module of `table`, and how many of its first rows no token has."""
        for path, module in zip(self._scan.names, self._scan.modules, strict=True):
            own = [*module._parameters.values(), *module._buffers.values()]
            if any(tensor is table for tensor in own):
                padding = getattr(module, "padding_idx", None)
                return path, max(
                    int(getattr(module, "offset", 0)), -1 if padding is None else padding + 1
                )
        return "", 0

    def _add(self, number: int, count: int, *, is_before: bool) -> None:
        tokens = "the padding token" if count == 1 else f"the {count} padding tokens"
        note = (
            f"Positions count {tokens} {'before' if is_before else 'before or in'} the text, "
            "because no position_ids were passed: the weights are those of the model's own call, "
            "and those of the text without padding differ. Pass position_ids, or padding on the "
            "right."
        )
        if note not in self.notes[number]:
            self.notes[number].append(note)


def _widths(model: Any) -> set[int]:
    """Return the possible widths of vectors that a model adds to the embeddings of its tokens."""
    config = base_of(model).config
    parts = [config, *(one for one in vars(config).values() if isinstance(one, PreTrainedConfig))]
    widths = {getattr(part, "hidden_size", None) for part in parts}
    # Some models have no embeddings of tokens, or embeddings of characters.
    with suppress(NotImplementedError, AttributeError):
        widths.add(model.get_input_embeddings().weight.shape[-1])
    return {width for width in widths if isinstance(width, int)}


def num_padding(unpadded: torch.Tensor | None) -> int:
    """Return the number of padding tokens before the last token of a text."""
    return 0 if unpadded is None else int(unpadded[-1]) + 1 - len(unpadded)

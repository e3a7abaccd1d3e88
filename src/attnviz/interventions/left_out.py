"""Weight that a model would lose if its key-value cache were cut.

A cut cache keeps some keys of each layer. With the layer's queries, keys and values fixed, the loss
follows from a run with all keys. Let P be the softmax weight of a query on the keys that are left
out (the lost weight), and u their mean value, weighted by the softmax. The output of a head is o
with all keys, and o' with the kept ones:

    o = (1 - P) o' + P u,    so    o' - o = P (o' - u)

The weight of a learned sink is part of 1 - P.

A press of kvpress cuts a cache, too. ``press(model)`` is a context manager, in which a forward of
the model on a context leaves a cache with fewer keys (Devoto et al. 2025, arXiv 2510.00636). The
entries of this cache are looked up in the cache of an ordinary forward on the same context. kvpress
itself is not imported, so other libraries with the same interface work, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.capture.layer_change import ModuleRun
from attnviz.extraction.capture.outputs import HeadOutputs
from attnviz.extraction.hooks import Hooks, evaluate
from attnviz.extraction.modules import attention_modules, modules_of
from attnviz.extraction.options import RecordOptions, check_options, read_capture_options
from attnviz.interventions.example import Example, answering_stack
from attnviz.interventions.runner import module_runs_of
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, ChosenMask, CutMask, LeftOutMask
from attnviz.record.record import AttentionRecord
from attnviz.record.softmax import row_tiles
from attnviz.record.stack import AttentionStack
from attnviz.record.table import require_pandas
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr, whole_number
from attnviz.utils.arrays import as_array
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import Pace, with_progress

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """Cache that keeps the first keys of a text and the last keys before each query.

    StreamingLLM cuts the cache in this way (Xiao et al. 2024, arXiv 2309.17453).

    Parameters
    ----------
    size : int
        Number of last keys that are kept, including the key of the query itself.
    sinks : int
        Number of first keys that are kept.

    Raises
    ------
    TypeError, ValueError
        If `size` is not an integer of at least 1, or `sinks` not an integer of at least 0.

    Examples
    --------
    >>> Window(64)
    Window(size=64, sinks=4)
    """

    size: int
    sinks: int = 4

    def __post_init__(self) -> None:
        whole_number("size", self.size, 1)
        whole_number("sinks", self.sinks, 0)

    def _mask(self, num_tokens: int) -> CutMask:
        queries = torch.ones(num_tokens, dtype=torch.bool)
        keys = torch.arange(num_tokens) >= self.sinks
        return CutMask(torch.tensor([True]), queries, keys, kept=BandMask(self.size - 1, 0))


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Loss of each head and query if the cache is cut, as `attnviz.left_out` returns it.

    Attributes
    ----------
    record : AttentionRecord
        Record with the weights of the cut cache. Views and `AttentionStack.left_out` distinguish
        its left-out keys from masked ones. Keys that the model itself did not choose count as left
        out, too.
    complete : AttentionRecord
        Record of the run with all keys.
    stack : str
        Name of the stack whose layers are cut.
    lost : mapping of int to ndarray of float32
        Lost weight of each layer, (heads, queries): the total weight, from 0 to 1, that the
        keys outside the cut cache have in the run with all keys. Keys that the model itself did not
        choose have no weight in this run.
    change : mapping of int to ndarray of float32
        Relative change of the output of each head, (heads, queries), in each layer: the norm of the
        difference that the cut makes, divided by the norm of the output with all keys. The output
        is taken before the gate and the output projection.
    after : int
        Position of the first query that can lose keys. Means are over the queries from `after` on.
    keep : object
        Keys that are kept, as passed to `attnviz.left_out`.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")
    >>> text = "the animal did not cross the street because it was too wide so the"
    >>> result = av.left_out(model, text, keep=av.Window(4, sinks=1), tokenizer=tokenizer)
    >>> result.lost[0].shape
    (4, 14)
    """

    record: AttentionRecord
    complete: AttentionRecord
    stack: str
    lost: Mapping[int, Values]
    change: Mapping[int, Values]
    after: int
    keep: Any

    @property
    def means(self) -> list[Values]:
        """Mean lost weight of each head, one array (heads,) per layer.

        A view can show the means as scores: ``ModelView(result.record, scores={"lost":
        result.means})``.
        """
        return [_mean(lost[:, self.after :]) for lost in self.lost.values()]

    def to_pandas(self) -> pd.DataFrame:
        """Return the losses of each head as a table.

        Returns
        -------
        pandas.DataFrame
            One row per head. The columns are ``layer``, ``head``, ``mean_lost``, ``max_lost``,
            ``mean_change`` and ``max_change``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        require_pandas()
        import pandas as pd

        parts = []
        for layer, lost in self.lost.items():
            columns: dict[str, Any] = {"layer": layer, "head": range(len(lost))}
            for name, values in (("lost", lost), ("change", self.change[layer])):
                columns[f"mean_{name}"] = _mean(values[:, self.after :])
                columns[f"max_{name}"] = values.max(axis=1)
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def curve(self, sizes: Iterable[int]) -> pd.DataFrame:
        """Return the mean lost weight for windows of other sizes. The model does not run again.

        Parameters
        ----------
        sizes : iterable of int
            Sizes of the windows, which keep the `sinks` of `keep`.

        Returns
        -------
        pandas.DataFrame
            One row per size. The columns are the layers. The index is the number of kept keys,
            including the sinks. Means are over all heads and the queries from `after` on.

        Raises
        ------
        ImportError
            If pandas is not installed.
        TypeError, ValueError
            If a size is not an integer of at least 1, or if `keep` is not a `Window`.
        """
        require_pandas()
        import pandas as pd

        if not isinstance(self.keep, Window):
            raise ValueError("curve needs keep=Window. For a press, call left_out for each ratio.")
        stack, rows = self.complete.stacks[self.stack], {}
        attentions = [_vectors(stack, layer) for layer in self.lost]
        for size in sizes:
            window = replace(self.keep, size=size)
            mask = window._mask(len(stack.query_tokens))
            losses = (_lost(_cut(attention, mask), self.after) for attention in attentions)
            rows[window.size + window.sinks] = [_mean(lost).mean() for lost in losses]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=list(self.lost))
        return table.rename_axis(index="kept keys", columns="layer")

    def __repr__(self) -> str:
        if not any(map(np.any, self.lost.values())):
            return "<LeftOut: no query loses weight>"
        mean, layer, head = max(
            (value, layer, head)
            for layer, means in zip(self.lost, self.means, strict=True)
            for head, value in enumerate(means.tolist())
        )
        total = np.concatenate(self.means).mean()
        return (
            f"<LeftOut: queries from token {self.after} on lose {total:.3g} of their weight on "
            f"average, most in head {layer}.{head} ({mean:.3g})>"
        )


@with_progress
def left_out(
    model: Any,
    inputs: Any,
    *,
    keep: Any,
    after: int | str | None = None,
    target: str | None = None,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> LeftOut:
    """Measure what each head would lose if the model's key-value cache were cut.

    The model runs with all keys. The weights and outputs with the cut cache are then computed from
    the queries, keys and values of each layer. They are exact for each layer, but a cut of earlier
    layers would also change the queries, keys and values of a layer, which is not included.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    keep : Window, array, mapping or press
        Keys that are kept.

        - A `Window` keeps the first keys, and the last keys before each query.
        - An array has the kept keys among the tokens before `after`: positions, or flags (bool) of
          all these tokens. It has one axis, or two with one row per head or key head.
        - A mapping has an array for some layers. Other layers keep all keys.
        - A press of kvpress, such as ``SnapKVPress(0.5)``, cuts the cache of the tokens before
          `after`.
    after : int or str, optional
        First token that reads the cut cache, by position or text: the first token after the
        context. The default is the number of flags. Do not pass it with a `Window`.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor`, `truncation`, `name`, `layers`, `dtype` and `device` of
        `attnviz.extract`.

    Returns
    -------
    LeftOut
        The lost weight and the change of the output for each head and query, and the record of the
        cut cache.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text, or if the model keeps no keys, because
        its attention is not causal or has no softmax.
    MemoryError
        If the record needs more than the free memory. The error is raised before the model runs.
    NotImplementedError
        If the queries, keys or values of a layer are not known, or if a press changes keys or
        values.

    Notes
    -----
    Keys keep their positions. StreamingLLM and some presses give new positions to the kept keys,
    which changes their weights. Queries before `after` are not changed. Layers without a softmax
    have no such cache, and are left as they are.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")
    >>> text = "the animal did not cross the street because it was too wide so the"
    >>> result = av.left_out(model, text, keep=av.Window(4, sinks=1), tokenizer=tokenizer)
    >>> print(result)  # doctest: +ELLIPSIS
    <LeftOut: queries from token 5 on lose 0.388 of their weight on average, ...>
    """
    check_options(options, refused=("generate",))
    capture = read_capture_options(**options)
    example = Example.one(model, inputs, target, options)
    example.check_memory(capture)
    values: dict[ModuleRun, torch.Tensor] = {}
    gates = HeadOutputs(example.loaded.model, vectors=False)

    def note(call: AttentionCall, module_run: ModuleRun) -> None:
        gates.observe(call, module_run)
        if call.value is not None and call.key is not None:
            values[module_run] = call.value[0].detach().to(capture.device, copy=True)

    with Cleanup() as undo, undo:
        gates.watch(undo)
        forward = example.forward(capture, None, observe=note)
    record = example.record(forward, capture, gates)
    stack, runs = answering_stack(record), module_runs_of(forward)
    attentions = {layer: _vectors(stack, layer) for layer in stack.layers}
    first, size = _read_after(keep, after, stack.query_tokens), len(stack.query_tokens)
    if isinstance(keep, Window):
        masks = dict.fromkeys(attentions, keep._mask(size))
    else:
        masks = _masks_of_context(keep, first, stack, attentions, example)
    cut = {layer: _cut(attention, masks[layer]) for layer, attention in attentions.items()}
    pace = Pace("heads", 2 * sum(stack.heads_per_layer) * (size - first) * size)
    lost, change = {}, {}
    for layer, attention in cut.items():
        value = values.get(runs[stack.name, layer])
        if value is None or value.shape[1] != size or attention.num_heads % len(value):
            raise NotImplementedError(
                f"model: left_out needs values of the attention, but those of layer {layer} of "
                f"stack {stack.name!r} cannot be read"
            )
        lost[layer], change[layer] = _losses(attention, value, first, pace)
    shown = {layer: _with_joined_choices(attention) for layer, attention in cut.items()}
    stacks = {**record.stacks, stack.name: stack.derive(shown, keep_gates=True)}
    notes = [
        f"Keys are left out of stack {stack.name}, as in a cache that keeps "
        f"{_describe(keep, first, masks.values())}. The inputs of each layer are those of the run "
        "with all keys."
    ]
    if "linear" in stacks:
        notes.append("Linear layers have a state and no keys, and are left as they are.")
    if stack.chooses_keys:
        notes.append(
            "Keys that the model itself did not choose are shown as not chosen, too, but "
            "`LeftOut.lost` does not count them."
        )
    made = AttentionRecord(
        stacks, model=record.model, notes=[*record.notes, *notes], images=record.images
    )
    return LeftOut(made, record, stack.name, lost, change, first, keep)


def _mean(values: Values) -> Values:
    """Return the mean over queries, or 0 without queries."""
    mean: Values = values.sum(axis=1) / np.float32(max(1, values.shape[1]))
    return mean


def _describe(keep: Any, first: int, masks: Iterable[CutMask]) -> str:
    """Describe the kept keys in words, for a note of the record."""
    if isinstance(keep, Window):
        ends = {"first": keep.sinks, "last": keep.size}
        parts = [
            f"the {end} {f'{count} keys' if count > 1 else 'key'}"
            for end, count in ends.items()
            if count
        ]
        return f"{' and '.join(parts)} of each query"
    kept = np.mean([first - mask.keys.sum(dim=-1).float().mean().item() for mask in masks])
    by = f" (chosen by {type(keep).__name__})" if callable(keep) else ""
    return f"{kept:.4g} of the {first} keys before token {first} on average{by}"


def _vectors(stack: AttentionStack, layer: int) -> QueryKeyAttention:
    """Return the queries and keys of a layer.

    Raise NotImplementedError if they are not known, or ValueError if the layer cannot have a
    key-value cache.
    """
    attention = stack.attention(layer).vectors
    if stack.signed or stack.key_tokens is not stack.query_tokens:
        raise ValueError(f"model: stack {stack.name!r} has no key-value cache that could be cut")
    if attention is None:
        raise NotImplementedError(
            f"queries and keys of layer {layer} are not known. Pass layers= without it."
        )
    if not attention.causal and bool(attention.allowed([0], slice(0, 1))[..., 1:].any()):
        raise ValueError(
            f"model: the attention of stack {stack.name!r} is not causal, so the model has no "
            "key-value cache that could be cut"
        )
    return attention


def _read_after(keep: Any, after: int | str | None, tokens: Tokens) -> int:
    """Return the position of the first query that reads the cut cache."""
    if isinstance(keep, Window):
        if after is not None:
            raise ValueError("after= is for keys of a context. Do not pass it with a Window.")
        return min(keep.size + keep.sinks, len(tokens))
    if after is None:
        one = next(iter(keep.values()), None) if isinstance(keep, Mapping) else keep
        flags = None if callable(one) else _array(one)
        if flags is None or flags.dtype != np.bool_:
            raise ValueError("after is required: pass the first token after the context")
        after = flags.shape[-1]
    position = tokens.position(after, "after")
    if not position:
        raise ValueError(f"after={after!r}: no token comes before it, so no key could be left out")
    return position


def _array(kept: Any) -> NDArray[Any]:
    """Convert kept keys to an array of flags or of positions, with one or two axes."""
    try:
        array = as_array(kept)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype == np.float64 and not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu" or array.ndim not in (1, 2):
        raise TypeError(
            f"keep={short_repr(kept)} must be a Window, a press, or an array of positions or flags "
            "with one or two axes, or a mapping of layers to such arrays"
        )
    return array


def _masks_of_context(
    keep: Any,
    after: int,
    stack: AttentionStack,
    attentions: Mapping[int, QueryKeyAttention],
    example: Example,
) -> dict[int, CutMask]:
    """Return the masks that forbid the keys before `after` that `keep` does not keep, by layer."""
    if callable(keep):
        keep = keys_kept_by(keep, example, after)
        missing = sorted(attentions.keys() - keep.keys())
        if missing:
            raise NotImplementedError(f"keep: layer {missing[0]} has no keys in the cache")
        keep = {layer: keep[layer] for layer in attentions}
    by_layer = keep if isinstance(keep, Mapping) else dict.fromkeys(attentions, keep)
    arrays = {stack.layer_number(layer): _array(kept) for layer, kept in by_layer.items()}
    masks = {}
    for layer, attention in attentions.items():
        flags = np.ones((1, after), np.bool_)
        if layer in arrays:
            flags = _flags(arrays[layer], after, attention, f"keep, layer {layer}")
        keys = torch.zeros(len(flags), attention.num_keys, dtype=torch.bool)
        keys[:, :after] = torch.from_numpy(~flags)
        queries = torch.arange(attention.num_queries) >= after
        keys = keys[0] if len(keys) == 1 else keys
        masks[layer] = CutMask(torch.tensor([True]), queries, keys)
    return masks


def _flags(array: NDArray[Any], after: int, attention: QueryKeyAttention, name: str) -> Flags:
    """Return which keys of the context are kept, (1 or heads, after)."""
    rows = np.atleast_2d(array)
    if rows.dtype != np.bool_:
        if rows.size and not (rows.min() >= 0 and rows.max() < after):
            raise IndexError(
                f"{name}: the context has the positions 0 to {after - 1}, but keep has "
                f"{rows.min()} to {rows.max()}"
            )
        positions, rows = rows, np.zeros((len(rows), after), np.bool_)
        np.put_along_axis(rows, positions, values=True, axis=1)
    heads = attention.num_heads, attention.num_key_heads
    if rows.shape[1] != after or len(rows) not in (1, *heads):
        raise ValueError(
            f"{name}: keep has the shape {array.shape}. Pass one row for all {heads[0]} heads, or "
            f"one for each head or each of the {heads[1]} key heads, with flags for the {after} "
            "tokens of the context, or positions."
        )
    return rows.repeat(heads[0] // heads[1], axis=0) if len(rows) == heads[1] else rows


def _cut(attention: QueryKeyAttention, chosen: CutMask) -> QueryKeyAttention:
    return replace(attention, mask=ChosenMask(chosen, attention.mask))


def _with_joined_choices(cut: QueryKeyAttention) -> QueryKeyAttention:
    """Let the mask of a cut cache also leave out the keys that the model itself did not choose.

    In the mask of `cut`, only keys that the model chose are left out, because losses are shares of
    the weight on chosen keys.
    """
    mask = cut.mask
    if not (isinstance(mask, ChosenMask) and isinstance(mask.base, ChosenMask)):
        return cut
    if not isinstance(mask.chosen, CutMask):
        raise TypeError("the mask of a cut cache must be a CutMask")
    chosen = replace(mask.chosen, base=mask.base.chosen)
    return replace(cut, mask=ChosenMask(chosen, mask.base.base))


def _lost(attention: QueryKeyAttention, first: int) -> Values:
    """Return the lost weight of the queries from `first` on, (heads, queries)."""
    rows = slice(first, attention.num_queries)
    lost: Values = attention.lost_weight(range(attention.num_heads), rows).cpu().numpy()
    return lost


def _losses(
    cut: QueryKeyAttention, values: torch.Tensor, first: int, pace: Pace
) -> tuple[Values, Values]:
    """Return the lost weight and the relative change of the output, both (heads, queries).

    `cut` is the attention to the kept keys. `values` is (value_heads, keys, value_dim). The results
    are 0 for queries before `first`.
    """
    if cut.mask is None:
        raise TypeError("cut must have a mask")
    shape = cut.num_heads, cut.num_queries
    lost, change = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    left_out = replace(cut, mask=LeftOutMask(cut.mask), sinks=None)
    lost[:, first:] = _lost(cut, first)
    for head in range(cut.num_heads):
        value = values[head * len(values) // cut.num_heads].float()
        for rows in row_tiles(slice(first, cut.num_queries), cut.num_keys):
            kept, mean = (one.block([head], rows)[0] @ value for one in (cut, left_out))
            share = torch.from_numpy(lost[head, rows]).to(value.device)[:, None]
            difference = share * (kept - mean)
            norms = (vectors.norm(dim=1) for vectors in (difference, kept - difference))
            change[head, rows] = torch.div(*norms).nan_to_num(nan=0.0, posinf=torch.inf).cpu()
            pace.advance(2 * (rows.stop - rows.start) * cut.num_keys)
    return lost, change


#: Function that takes a model and returns a context manager, such as a press of kvpress.
Press = Callable[[Any], AbstractContextManager[Any]]
# Attribute that kvpress adds to attention modules if heads keep different numbers of keys. It has
# the entries of the cache that get no weight, as three arrays of indices: example, key head, row.
_MASKED = "masked_key_indices"


def keys_kept_by(press: Press, example: Example, context: int) -> dict[int, torch.Tensor]:
    """Return which of the first `context` tokens of an example a press keeps as keys.

    The result has a tensor for each layer with keys in the cache, bool, (key_heads, context). Raise
    TypeError if `press` does not return a context manager. Raise NotImplementedError if the model
    has an encoder, if its input is not token ids, or if the press changes keys or values.
    """
    model = example.loaded.model
    arguments = arguments_of(example.loaded, example.batch) | {"use_cache": True}
    if "input_ids" not in arguments or example.loaded.is_encoder_decoder:
        raise NotImplementedError("keep: a press needs a decoder-only model and a text")
    length = arguments["input_ids"].shape[-1]
    for name, value in arguments.items():
        # Shorten the arguments that have one entry per token: ids, the mask and positions.
        if isinstance(value, torch.Tensor) and value.shape[-1:] == (length,):
            arguments[name] = value[..., :context]
    modules: dict[int, Any] = {
        number: entry.module
        for entry in attention_modules(model)
        if entry.softmax and isinstance(number := getattr(entry.module, "layer_idx", None), int)
    }
    # kvpress reads the arguments `cache_position` and `past_key_values` of attention modules. The
    # models of transformers 5.3 and later do not pass the positions, and those of 5.24 and later
    # pass the cache as `cache`.
    positions = {"cache_position": torch.arange(context, device=model.device)}

    def add_arguments(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        renamed = {"past_key_values": named["cache"]} if "cache" in named else {}
        return inputs, positions | renamed | named

    manager = press(model)
    if not isinstance(manager, AbstractContextManager):
        raise TypeError(
            f"keep={short_repr(press)} is not a press: it does not return a context manager"
        )
    with Cleanup() as undo, undo:
        evaluate(modules_of(model), undo)
        complete = model(**arguments).past_key_values
        for module in modules.values():
            undo.add(partial(module.__dict__.pop, _MASKED, None))
            Hooks(undo).add(module.register_forward_pre_hook, add_arguments, with_kwargs=True)
        with manager, warnings.catch_warnings():
            # transformers warns because the cache is passed under both names.
            warnings.filterwarnings("ignore", ".*`past_key_values`", FutureWarning)
            cut = model(**arguments).past_key_values
        masked = {number: getattr(module, _MASKED, None) for number, module in modules.items()}
    kept = {}
    for number, (before, after) in enumerate(zip(complete.layers, cut.layers, strict=True)):
        if getattr(before, "keys", None) is not None:
            kept[number] = _kept(_rows(before), _rows(after), masked.get(number), context)
    return kept


def _rows(layer: Any) -> list[list[bytes]]:
    """Return the bytes of the key and value of each row in a layer's cache, one list per head."""
    both = torch.cat([layer.keys[0], layer.values[0]], dim=-1).contiguous().cpu()
    return [[row.tobytes() for row in head] for head in both.view(torch.uint8).numpy()]


def _kept(
    complete: list[list[bytes]], cut: list[list[bytes]], masked: Any, context: int
) -> torch.Tensor:
    """Return which keys of a layer's cache remain in the cut cache, bool, (key_heads, context).

    `complete` and `cut` are results of `_rows`. `masked` is the attribute `_MASKED`, or None.
    """
    # The cache of a sliding window has only the last keys. No later query may attend to the others.
    first = context - len(complete[0])
    flags = torch.zeros(len(complete), context, dtype=torch.bool)
    positions_of_cut = []
    for rows, remaining in zip(complete, cut, strict=True):
        positions: dict[bytes, list[int]] = {}
        for position, row in enumerate(rows, first):
            positions.setdefault(row, []).append(position)
        try:
            positions_of_cut.append([positions[row].pop() for row in remaining])
        except LookupError as error:
            raise NotImplementedError(
                "keep: the press changes keys or values, and does not only select them. Its lost "
                "weight is not defined."
            ) from error
    kept = torch.tensor(positions_of_cut, dtype=torch.int64)
    flags.scatter_(1, kept, value=True)
    if masked is not None:
        _, heads, rows_of_cache = (torch.as_tensor(numbers).cpu() for numbers in masked)
        flags[heads, kept[heads, rows_of_cache]] = False
    return flags

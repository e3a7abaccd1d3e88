"""The attention of a model while it generates: the prompt's forward, and a row for each step.

A step reads one token. Only its query and its key are new in each layer: they are put behind those
of the prompt. What a record needs is then there at every length, without another forward.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.calls import read_attention, with_four_axes
from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.collector import Collector, Run, same_vectors
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import (
    TRAINING_NOTE,
    Forward,
    collector_of,
    forward_notes,
    hold_uncompiled,
    needs_another,
)
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.extraction.capture.stacks import select_layers
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import Loaded, evaluate, hook, in_this_thread
from attnviz.extraction.options import CaptureOptions
from attnviz.record.attention import GivenWeights, QueryKeyAttention
from attnviz.record.masks import BandMask, Bias, DenseBias, DistanceBias, Mask, compact_mask
from attnviz.utils.arguments import from_end, spans
from attnviz.utils.restoring import Restoring

__all__ = ["OTHERWISE", "GrowingAttention"]

#: What to do where steps cannot be read.
OTHERWISE = (
    "give live=False (or use attnviz.extract with generate=), which generates first and then reads "
    "the text in one forward"
)

_Place = tuple[str, int]

# What the next step is given of the last one's arguments; with any other it is not known.
_OF_STEPS = {
    "attention_mask",
    "cache_position",
    "input_ids",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "return_dict",
    "use_cache",
}
# Rows of a buffer that grows: so many more at least.
_LEAST_ROWS = 64


class GrowingAttention:
    """Collects a model's attention, step by step, for one prompt without padding.

    Parameters
    ----------
    loaded : Loaded
        A model that reads and writes one text: no encoder beside its decoder.
    batch : Batch
        The prompt.
    options : CaptureOptions
        What is kept of queries and keys, and how.

    Attributes
    ----------
    num_read : int
        How many tokens the model has read. What is known of them does not change any more, and may
        be read in any thread.
    """

    def __init__(self, loaded: Loaded, batch: Batch, options: CaptureOptions) -> None:
        self._model = loaded.model
        self._options = options
        self._collector: Collector = collector_of(loaded, batch, options, encoder_decoder=False)
        self._names = {id(module): name for name, module in loaded.model.named_modules()}
        self._notes: list[str] = []
        self._layers: dict[_Place, _Layer] = {}
        self._ignored: frozenset[_Place] = frozenset()
        self._places: dict[str, dict[int, _Layer]] = {}
        self.num_read = 0
        self._begun = False
        self._arguments: dict[str, Any] = {}
        self._thread = 0
        self._turns: Counter[str] = Counter()
        self._previous: AttentionCall | None = None
        self._masks = MaskReader()
        self._rows = _RowReader()
        self._check: SelfCheck | None = None
        self._everything: list[Positions] = [Positions(None, None)]

    def watch(self, undo: Restoring) -> None:
        """Watch the forwards of this thread until the block of `undo` ends."""
        self._thread = threading.get_ident()
        # Another thread may hold it in evaluation mode at this moment.
        if evaluate(self._model, undo):
            self._notes = [TRAINING_NOTE]
        hold_uncompiled(self._model, undo)
        begin = self._model.register_forward_pre_hook
        hook((begin(in_this_thread(each), with_kwargs=True) for each in [self._begin]), undo)
        hook((self._model.register_forward_hook(each) for each in [self._end]), undo)
        self._collector.watch(undo, self._receive)

    def read_last(self, token: torch.Tensor) -> None:
        """Have the model read the last token, int64, (), with the cache of the steps before.

        Raises NotImplementedError where it is not known how.
        """
        given = {name: each for name, each in self._arguments.items() if each is not None}
        unknown = sorted(given.keys() - _OF_STEPS)
        cache = given.get("past_key_values")
        if unknown or (cache is None and given.get("use_cache") is not False):
            raise _unreadable(f"its steps are given {', '.join(unknown) or 'no cache'}")
        ids = token.reshape(1, 1)
        if cache is None:
            ids = torch.cat([given["input_ids"], ids.to(given["input_ids"])], dim=1)
        mask, positions = given.get("attention_mask"), given.get("position_ids")
        more: dict[str, Any] = {"input_ids": ids}
        if mask is not None:
            if mask.dim() != 2:
                raise _unreadable("its steps are given a mask of another form")
            more["attention_mask"] = torch.cat([mask, mask[:, -1:]], dim=1)
        if positions is not None:
            following = positions[..., -1:] + 1
            more["position_ids"] = (
                torch.cat([positions, following], dim=-1) if cache is None else following
            )
        if given.get("cache_position") is not None:
            more["cache_position"] = given["cache_position"][-1:] + 1
        self._model(**{**given, **more})

    def release(self) -> None:
        """Let go of what only a further step would need: the model's cache among it."""
        self._arguments = {}
        self._previous = None
        self._masks = MaskReader()
        self._rows = _RowReader()

    def forward(self, num_tokens: int, outputs: Any) -> Forward:
        """All that ran, over so many tokens of those that were read."""
        collector = copy.copy(self._collector)
        collector.runs = [self._grown(run, num_tokens) for run in self._collector.runs]
        notes = [*self._notes, *forward_notes(self._model, collector)]
        return Forward(collector, outputs, notes)

    def row(self, stack: str, layer: int, num_tokens: int) -> NDArray[np.float32]:
        """Weights of the last of so many tokens, float32, (heads that are kept, keys)."""
        attention = self._places[stack][layer].attention(num_tokens)
        last = slice(num_tokens - 1, num_tokens)
        return attention.weights_of_heads(range(attention.num_heads), last)[:, 0]

    def kept_heads(self, stack: str, layer: int) -> tuple[int, ...]:
        """The model's numbers of a layer's heads that are kept, ascending."""
        found = self._places[stack][layer]
        return found.kept(found.prompt.num_heads)

    def head_index(self, stack: str, layer: int, head: int) -> int:
        """Where a head, by the model's number, stands in a row; IndexError where it is not kept."""
        kept = self.kept_heads(stack, layer)
        number = from_end(head, kept)
        if number not in kept:
            raise IndexError(f"head={head!r}: layer {layer} was kept with heads {spans(kept)}")
        return kept.index(number)

    @property
    def stacks(self) -> Mapping[str, Sequence[int]]:
        """The stacks whose tokens become more, with the model's numbers of their layers."""
        return {name: tuple(layers) for name, layers in self._places.items()}

    def check_finite(self) -> None:
        """Raise ValueError where queries or keys hold NaN or infinite numbers."""
        for (name, _), layer in self._layers.items():
            for rows in (layer.queries, layer.keys):
                values = rows.first(self.num_read)
                if not bool(torch.isfinite(values).all()):
                    raise ValueError(
                        f"model: the queries or keys of {name} hold NaN or infinite numbers; look "
                        "at its weights, and at the precision that it runs in"
                    )

    def _grown(self, run: Run, num_tokens: int) -> Run:
        """A run of the prompt as it would be of the first tokens."""
        place = _place(run)
        if place in self._layers:
            return replace(run, calls=[[self._layers[place].attention(num_tokens)]])
        if place in self._ignored:
            return replace(run, calls=[[GivenWeights(torch.empty(0, num_tokens, num_tokens))]])
        return run

    def _here(self) -> bool:
        return threading.get_ident() == self._thread

    def _begin(self, _module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._here():
            return
        self._arguments = dict(kwargs)
        if args:
            self._arguments["(arguments without a name)"] = args
        self._turns.clear()
        self._previous = None
        self._masks = MaskReader()
        self._rows = _RowReader()

    def _end(self, *_: Any) -> None:
        if not self._here():
            return
        if not self._begun:
            self._take_prompt()
            self._collector.settle()
            self._begun = True
            self._check = SelfCheck()
        else:
            # What was compared once with the model's output goes on in the same way.
            self._check = None
            grown = {layer.num_tokens for layer in self._layers.values()}
            if len(grown) > 1 or grown == {self.num_read}:
                raise _unreadable("its layers do not each read one token a step")
            self.num_read = grown.pop()

    def _take_prompt(self) -> None:
        """Take over what the prompt's forward gave; NotImplementedError where it cannot grow."""
        forward = Forward(self._collector, None, [])
        if needs_another(forward, self._options):
            raise _unreadable("its attention has to be looked at twice")
        ignored: set[_Place] = set()
        lengths: set[int] = set()
        for run in self._collector.runs:
            if run.stack != "self":
                continue
            if run.heads == ():
                ignored.add(_place(run))
                continue
            attention = run.calls[0][0] if run.num_calls == 1 else None
            if not isinstance(attention, QueryKeyAttention) or run.turn:
                raise _unreadable(f"{run.name} does not attend once, with queries and keys")
            if attention.num_queries != attention.num_keys:
                raise _unreadable(f"{run.name} reads other keys than those of its text")
            kept = run.heads if run.heads and len(run.heads) < run.num_heads else None
            self._layers[_place(run)] = _Layer(attention, kept)
            lengths.add(attention.num_queries)
        if len(lengths) != 1:
            raise _unreadable("its layers read texts of different lengths")
        self._ignored = frozenset(ignored)
        self.num_read = lengths.pop()
        # Of copies: what is selected changes the runs.
        stacks = self.forward(self.num_read, None).stacks
        for name, layers in select_layers(stacks, self._options).items():
            places = [_place(run) for run in layers.runs]
            if any(
                place in self._layers and run.heads != self._layers[place].kept(run.num_heads)
                for place, run in zip(places, layers.runs, strict=True)
            ):
                raise _unreadable("its layers have other numbers than their names say")
            numbers = list(layers.examples[0])
            if all(place in self._layers for place in places):
                self._places[name] = {
                    number: self._layers[place]
                    for number, place in zip(numbers, places, strict=True)
                }

    def _receive(self, call: AttentionCall) -> bool:
        """Take up a step's call; False of the prompt's."""
        if not self._begun:
            return False
        name = self._names.get(id(call.module), "")
        call = with_four_axes(call, 1)
        # Differential attention meets several values with the same weights.
        if same_vectors(self._previous, call):
            return True
        self._previous = call
        place = (name, self._turns[name])
        self._turns[name] += 1
        if place in self._ignored or place not in self._layers:
            return True
        layer = self._layers[place]
        if call.query is None or call.key is None or call.num_examples != 1:
            raise _unreadable(f"{name} shows no queries and keys in a step")
        if self._check is not None:
            run = next(run for run in self._collector.runs if _place(run) == place)
            # The prompt's were compared for all heads: here it is seen whether a step's go on.
            heads = tuple({*(run.heads or ())[:1], *(run.heads or ())[-1:]})
            [found] = read_attention(
                call, self._everything, self._masks, self._check, heads=heads, name=name
            )
            if not isinstance(found, QueryKeyAttention):
                raise _unreadable(f"{name} shows no queries and keys in a step")
        [(mask, bias)] = self._masks.read(call, self._everything)
        # Without a cache a step reads the whole text again.
        count = call.num_queries
        if count > 1 and count == call.num_keys and count > layer.num_tokens:
            count -= layer.num_tokens
        layer.append(call, count, self._rows.read(mask, call, count), bias)
        return True


def _place(run: Run) -> _Place:
    return run.name, run.turn


def _unreadable(why: str) -> NotImplementedError:
    return NotImplementedError(
        f"live: the steps of this model cannot be read as they come ({why}); {OTHERWISE}"
    )


@dataclass(frozen=True)
class _Row:
    """Which keys one query may attend to: those from `start` on, or as `flags` say, (heads, n)."""

    start: int
    flags: torch.Tensor | None = None


class _RowReader:
    """Reads the rows of a step's masks, which layers share, once each."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, int, int, int], tuple[Mask | None, list[_Row]]] = {}

    def read(self, mask: Mask | None, call: AttentionCall, count: int) -> list[_Row]:
        """The rows of the last `count` queries; keys are the last ones that there are."""
        key = (id(mask), call.num_queries, call.num_keys, count)
        if key not in self._read:
            rows = [self._row(mask, call, call.num_queries - count + at) for at in range(count)]
            # The mask too: its id must stay its own.
            self._read[key] = (mask, rows)
        return self._read[key][1]

    @staticmethod
    def _row(mask: Mask | None, call: AttentionCall, query: int) -> _Row:
        # Of several new queries the earlier ones see fewer keys.
        ahead = call.num_queries - 1 - query
        if mask is None:
            return _Row(0)
        keys = slice(0, call.num_keys - ahead)
        flags = torch.cat(
            [mask.allowed(head, slice(query, query + 1), keys) for head in range(mask.num_heads)]
        ).cpu()
        first = int(flags[0].to(torch.uint8).argmax())
        if bool(flags[:, first:].all()) and not bool(flags[:, :first].any()):
            return _Row(first)
        return _Row(0, flags)


class _Rows:
    """Vectors of heads, (heads, tokens, width), that become more."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values
        self.count = values.shape[1]

    def append(self, new: torch.Tensor) -> None:
        """Put vectors behind the others; what was given out before stays as it is."""
        stop = self.count + new.shape[1]
        if stop > self._values.shape[1]:
            heads, rows, width = self._values.shape
            larger = self._values.new_empty(heads, max(2 * rows, rows + _LEAST_ROWS, stop), width)
            larger[:, : self.count] = self._values[:, : self.count]
            self._values = larger
        self._values[:, self.count : stop] = new
        self.count = stop

    def first(self, count: int) -> torch.Tensor:
        """The first ones: a view."""
        return self._values[:, :count]


@dataclass
class _Layer:
    """One module's attention, which grows."""

    prompt: QueryKeyAttention
    #: Which heads are kept; None where all are.
    heads: tuple[int, ...] | None
    rows: list[_Row] = field(default_factory=list)
    #: What was added to the last query's logits, (heads or 1, keys), and how that goes on.
    bias: torch.Tensor | None = None
    bias_of: str = ""

    def __post_init__(self) -> None:
        self.queries, self.keys = _Rows(self.prompt.queries), _Rows(self.prompt.keys)
        self._mask: tuple[int, Mask | None] = (self.prompt.num_queries, self.prompt.mask)
        if self.prompt.bias is not None:
            length = self.prompt.num_queries
            self.bias = _bias_row(self.prompt.bias, length - 1, length)
            self.bias_of = {DistanceBias: "distance", DenseBias: "key"}.get(
                type(self.prompt.bias), ""
            )
            if length == 1:
                self.bias_of = "distance or key"

    def kept(self, num_heads: int) -> tuple[int, ...]:
        """Numbers of the heads that are kept, of so many."""
        return tuple(range(num_heads)) if self.heads is None else self.heads

    @property
    def num_tokens(self) -> int:
        """How many tokens were read."""
        return self.queries.count

    def append(
        self, call: AttentionCall, count: int, rows: Sequence[_Row], bias: Bias | None
    ) -> None:
        """Put the last `count` queries and keys of a call behind the others."""
        query, key = call.query, call.key
        if query is None or key is None:
            raise TypeError("a step has no queries and keys")
        query, key = query[0, :, -count:], key[0, :, -count:]
        if self.heads is not None:
            group = len(query) // len(key)
            query = query[list(self.heads)]
            key = key[sorted({head // group for head in self.heads})]
        self.queries.append(_moved(query, self.prompt.queries))
        self.keys.append(_moved(key, self.prompt.keys))
        # A cache of a sliding window holds the last keys alone.
        before = self.keys.count - call.num_keys
        self.rows += [self._row(row, before) for row in rows]
        self._append_bias(bias, call.num_queries, call.num_keys)

    def _row(self, row: _Row, before: int) -> _Row:
        flags = row.flags
        if flags is not None and len(flags) > 1 and self.heads is not None:
            flags = flags[list(self.heads)]
        return _Row(row.start + before, flags)

    def attention(self, num_tokens: int) -> QueryKeyAttention:
        """The attention over the first tokens."""
        more = num_tokens - self.prompt.num_queries
        if more <= 0:
            return self.prompt
        length, mask = self._mask
        if length != num_tokens:
            mask = _grown_mask(self.prompt.mask, self.rows[:more], self.prompt.num_queries)
            self._mask = (num_tokens, mask)
        return replace(
            self.prompt,
            queries=self.queries.first(num_tokens),
            keys=self.keys.first(num_tokens),
            mask=mask,
            bias=self._bias(num_tokens),
        )

    def _append_bias(self, bias: Bias | None, num_queries: int, num_keys: int) -> None:
        if bias is None and self.bias is None:
            return
        row = None if bias is None else _bias_row(bias, num_queries - 1, num_keys)
        if row is not None and len(row) > 1 and self.heads is not None:
            row = row[list(self.heads)]
        known = self.bias
        if row is None or known is None or row.shape[0] != known.shape[0]:
            raise _unreadable("what it adds to its logits changes from step to step")
        width = known.shape[1]
        fits = {
            "distance": torch.equal(row[:, -width:], known),
            "key": torch.equal(row[:, :width], known),
        }
        self.bias_of = next((kind for kind in fits if fits[kind] and kind in self.bias_of), "")
        if not self.bias_of or row.shape[1] != self.keys.count:
            raise _unreadable("what it adds to its logits changes from step to step")
        self.bias = row

    def _bias(self, num_tokens: int) -> Bias | None:
        row = self.bias
        if row is None:
            return None
        if self.bias_of == "key":
            return DenseBias(row[:, None, :num_tokens])
        row = row[:, -num_tokens:]
        # No query looks ahead.
        ahead = row.new_zeros(len(row), num_tokens - 1)
        return DistanceBias(torch.cat([row, ahead], dim=1), num_tokens)


def _bias_row(bias: Bias, query: int, num_keys: int) -> torch.Tensor:
    """What is added for one query, (heads or 1, keys)."""
    rows, columns = slice(query, query + 1), slice(0, num_keys)
    return torch.cat([bias.added(head, rows, columns) for head in range(bias.num_heads)])


def _moved(new: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return new.detach().to(like.device, like.dtype)


def _grown_mask(prompt: Mask | None, rows: Sequence[_Row], length: int) -> Mask | None:
    """The mask of a prompt and of the queries behind it, in the smallest form."""
    band = _grown_band(prompt, rows, length)
    if band is not None:
        return band
    num_tokens = length + len(rows)
    flags = [row.flags for row in rows if row.flags is not None]
    heads = max([1 if prompt is None else prompt.num_heads, *map(len, flags)])
    allowed = torch.zeros(heads, num_tokens, num_tokens, dtype=torch.bool)
    for head in range(heads):
        inside = slice(0, length)
        allowed[head, :length, :length] = (
            True if prompt is None else prompt.allowed(head % prompt.num_heads, inside, inside)
        )
    for query, row in enumerate(rows, length):
        if row.flags is None:
            allowed[:, query, row.start : query + 1] = True
        else:
            allowed[:, query, row.start : query + 1] = row.flags
    return compact_mask(allowed)


def _grown_band(prompt: Mask | None, rows: Sequence[_Row], length: int) -> BandMask | None:
    """The band that a prompt's mask and the rows behind it make together; None where they do not.

    >>> _grown_band(BandMask(None, 0), [_Row(0), _Row(1)], 3)
    BandMask(before=3, after=0, offset=0)
    """
    if length == 1 and prompt is None:
        prompt = BandMask(None, 0)
    if not isinstance(prompt, BandMask) or (prompt.after, prompt.offset) != (0, 0):
        return None
    if any(row.flags is not None for row in rows):
        return None
    cut = {query - row.start for query, row in enumerate(rows, length) if row.start > 0}
    if prompt.before is not None:
        cut.add(prompt.before)
    if not cut:
        return BandMask(None, 0)
    before = cut.pop()
    if cut or any(query > before for query, row in enumerate(rows, length) if row.start == 0):
        return None
    if prompt.before is None and length - 1 > before:
        return None
    return BandMask(before, 0)

"""Conversion of a record to a header and named arrays, and back.

The header has the texts and small values of a record: stacks, layers, tokens and notes. The arrays
have the numbers of the layers and images. A mask or bias that several layers share is written once.

Merged words are written as the attention between tokens. A difference is written as its two sides,
the attentions that are subtracted. Both are computed on demand after loading. A side that is also a
layer of the record is written once. For layers that are computed from other layers in another way,
such as replaced weights, all computed weights are written.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import (
    ComputedAttention,
    LayerAttention,
    QueryKeyAttention,
    StoredAttention,
    StoredWeights,
)
from attnviz.record.difference import DifferenceAttention
from attnviz.record.linear import LinearAttention, SelectiveAttention
from attnviz.record.masks import Bias, Mask, from_parts
from attnviz.record.notes import Note, NoteKind, kind_of
from attnviz.record.ranks import BlockRanks, IndexerRanks, SummaryRanks
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Tokens
from attnviz.record.units import UnitAttention, in_units

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord

#: Version of the file format. Files with another version cannot be loaded.
FORMAT = 1

_COMPUTED_KINDS: dict[str, type[ComputedAttention]] = {
    cls.kind: cls
    for cls in (LinearAttention, SelectiveAttention, IndexerRanks, BlockRanks, SummaryRanks)
}

# Maximum number of weights of a record that are computed for its file. They take half a gigabyte.
_MAX_COMPUTED = 1 << 27

_Arrays = dict[str, torch.Tensor]
_Header = dict[str, Any]


def record_to_arrays(record: AttentionRecord) -> tuple[_Header, _Arrays]:
    """Return the header of a record, which has JSON values, and its arrays by name.

    Raise ValueError if too many weights would have to be computed.
    """
    writer = _Writer()
    kinds = {note: kind for note in record.notes if (kind := kind_of(note))}
    header = {
        "format": FORMAT,
        "model": record.model,
        "notes": list(record.notes),
        "note_kinds": kinds,
        "classes": msgspec.to_builtins(record.classes),
        "stacks": [
            {
                "name": name,
                "normalized": stack.normalized,
                "signed": stack.signed,
                "measure": stack.measure,
                "changed": stack.changed,
                "query_tokens": msgspec.to_builtins(stack.query_tokens),
                "key_tokens": None
                if stack.key_tokens is stack.query_tokens
                else msgspec.to_builtins(stack.key_tokens),
                "layers": [
                    {"number": number} | writer.layer(stack.attention(number), f"{name}/{number}")
                    for number in stack.layers
                ],
            }
            for name, stack in record.stacks.items()
        ],
        "images": len(record.images),
        "shared": writer.shared,
    }
    for name, stack in record.stacks.items():
        for number in stack.layers:
            gates = stack.gates(number)
            if gates is not None:
                writer.arrays[f"{name}/{number}/gates"] = torch.from_numpy(gates)
    for index, image in enumerate(record.images):
        # Copy the image if it is read-only. torch.from_numpy warns about read-only arrays.
        writer.arrays[f"images/{index}"] = torch.from_numpy(np.require(image, requirements="W"))
    return header, writer.arrays


class RecordParts(TypedDict):
    """Arguments of `AttentionRecord`."""

    stacks: dict[str, AttentionStack]
    model: str
    notes: list[str]
    images: list[NDArray[np.uint8]]
    classes: list[Candidate]


def parts_from_arrays(header: _Header, arrays: _Arrays) -> RecordParts:
    """Return the arguments of a record from the result of `record_to_arrays`.

    Raise an exception of any type if the header is invalid or does not fit the arrays.
    """
    stacks: dict[str, AttentionStack] = {}
    reader = _Reader(header["shared"], arrays)
    for fields in header["stacks"]:
        layers = {
            int(layer["number"]): reader.layer(f"{fields['name']}/{layer['number']}", layer)
            for layer in fields["layers"]
        }
        stacks[fields["name"]] = AttentionStack(
            fields["name"],
            layers,
            # `Tokens` makes misleading characters visible, which a changed file could contain.
            msgspec.convert(fields["query_tokens"], Tokens),
            msgspec.convert(fields["key_tokens"], Tokens | None),
            normalized=bool(fields["normalized"]),
            signed=bool(fields["signed"]),
            measure=fields["measure"],
            changed=fields["changed"],
            gates={
                number: gates.float()
                for number in layers
                if (gates := arrays.get(f"{fields['name']}/{number}/gates")) is not None
            },
        )
    notes = msgspec.convert(header["notes"], list[str])
    kinds = msgspec.convert(header["note_kinds"], dict[str, NoteKind])
    return {
        "stacks": stacks,
        "model": header["model"],
        "notes": [Note(note, kinds.get(note, "")) for note in notes],
        "images": [arrays[f"images/{index}"].numpy() for index in range(int(header["images"]))],
        "classes": msgspec.convert(header["classes"], list[Candidate]),
    }


class _Writer:
    """Converter of layers to headers and arrays. Objects that layers share are written once.

    Attributes
    ----------
    arrays : dict
        Arrays of the written layers, by name.
    shared : dict
        JSON values of the written masks and biases, by name.
    """

    def __init__(self) -> None:
        self.arrays: _Arrays = {}
        self.shared: dict[str, _Header] = {}
        # Names under which layers, masks and biases have been written, by the id of the object.
        self._names: dict[int, str] = {}
        # Names under which the arrays `query_starts` and `key_starts` of `UnitAttention` have been
        # written, by the bytes of the array.
        self._starts: dict[bytes, str] = {}
        self._num_computed = 0

    def layer(self, attention: LayerAttention, prefix: str) -> _Header:
        """Return the header of a layer or of a side of a difference. Add its arrays to `arrays`.

        `prefix` is a unique name of the layer or side, such as ``"self/0"`` or ``"self/0/a"``. The
        names of its arrays begin with `prefix`. If the object `attention` has been written before,
        no arrays are added, and the header only refers to the earlier `prefix`.
        """
        if id(attention) in self._names:
            return {"kind": "the same", "as": self._names[id(attention)]}
        self._names[id(attention)] = prefix
        return self._form(attention, prefix)

    def _form(self, attention: LayerAttention, prefix: str) -> _Header:
        if not _has_form(attention):
            attention = StoredWeights(self._compute(attention, prefix))
        if isinstance(attention, StoredAttention):
            self.arrays |= {f"{prefix}/{name}": part for name, part in attention.parts.items()}
        match attention:
            case DifferenceAttention():
                return {
                    "kind": "difference",
                    "a": self.layer(attention.a, f"{prefix}/a"),
                    "b": self.layer(attention.b, f"{prefix}/b"),
                }
            case UnitAttention():
                return {
                    "kind": "merged words",
                    "query_starts": self._starts_name(attention.query_starts),
                    "key_starts": self._starts_name(attention.key_starts),
                    "base": self._form(attention.base, prefix),
                }
            case QueryKeyAttention():
                return {
                    "kind": "queries and keys",
                    "scale": attention.scale,
                    "softcap": attention.softcap,
                    "mask": self._part_name(attention.mask),
                    "bias": self._part_name(attention.bias),
                }
            case ComputedAttention():
                return {"kind": attention.kind, **attention.settings}
        return {"kind": "weights"}

    def _compute(self, attention: LayerAttention, prefix: str) -> torch.Tensor:
        """Return all weights of a layer, (heads, queries, keys), on the CPU.

        Raise ValueError if the weights that were computed for this record would be more than
        `_MAX_COMPUTED` in total.
        """
        self._num_computed += attention.num_heads * attention.num_queries * attention.num_keys
        if self._num_computed > _MAX_COMPUTED:
            raise ValueError(
                f"{prefix} can only be saved as computed weights, and these have more than "
                f"{4 * _MAX_COMPUTED / 1e9:.1f} GB. Save the original records, or select layers "
                "with record.only([...])."
            )
        return attention.block(range(attention.num_heads), slice(0, attention.num_queries)).cpu()

    def _part_name(self, part: Mask | Bias | None) -> str | None:
        if part is None:
            return None
        if id(part) not in self._names:
            name = self._names[id(part)] = f"shared/{len(self.shared)}"
            self.shared[name], tensors = part.to_parts()
            self.arrays |= {f"{name}/{own_name}": tensor for own_name, tensor in tensors.items()}
        return self._names[id(part)]

    def _starts_name(self, starts: NDArray[np.int64]) -> str:
        content = starts.tobytes()
        if content not in self._starts:
            self._starts[content] = f"shared/starts/{len(self._starts)}"
            self.arrays[self._starts[content]] = torch.from_numpy(starts)
        return self._starts[content]


def _has_form(attention: LayerAttention) -> bool:
    """Whether the file format has a form for a layer, so that no weights must be computed."""
    match attention:
        case DifferenceAttention():
            return _has_form(attention.a) and _has_form(attention.b)
        case UnitAttention():
            return _has_form(attention.base)
    return isinstance(attention, StoredAttention)


class _Reader:
    """Converter of headers and arrays to layers. Layers share objects as they did when saved.

    Parameters
    ----------
    shared : mapping
        JSON values of masks and biases, by name.
    arrays : dict
        All arrays of the record.
    """

    def __init__(self, shared: Mapping[str, _Header], arrays: _Arrays) -> None:
        self._arrays = arrays
        self._shared = {name: self._part(name, numbers) for name, numbers in shared.items()}
        self._known: dict[str, LayerAttention] = {}

    def _part(self, name: str, numbers: _Header) -> Mask | Bias:
        return from_parts(numbers, lambda own_name: self._arrays[f"{name}/{own_name}"])

    def layer(self, prefix: str, fields: _Header) -> LayerAttention:
        """Create the layer, or the side of a difference, that has the header `fields`.

        `prefix` is the name with which `_Writer.layer` wrote the layer or side.
        """
        if fields["kind"] == "the same":
            return self._known[fields["as"]]
        self._known[prefix] = self._form(prefix, fields)
        return self._known[prefix]

    def _form(self, prefix: str, fields: _Header) -> LayerAttention:
        match fields["kind"]:
            case "difference":
                side_a, side_b = (self.layer(f"{prefix}/{name}", fields[name]) for name in "ab")
                return DifferenceAttention(side_a, side_b)
            case "merged words":
                return in_units(
                    self._form(prefix, fields["base"]),
                    self._arrays[fields["query_starts"]].numpy(),
                    self._arrays[fields["key_starts"]].numpy(),
                )
            case "weights":
                return StoredWeights(self._three_axes(f"{prefix}/weights"))
            case "queries and keys":
                return self._queries_and_keys(prefix, fields)
            case kind if kind in _COMPUTED_KINDS:
                cls = _COMPUTED_KINDS[kind]
                names = [field.name for field in dataclasses.fields(cls) if field.name in fields]
                settings = {name: fields[name] for name in names}
                return cls(**settings, **self._parts(prefix))
        raise ValueError(f"{prefix} is a layer of an unknown kind, {fields['kind']!r}")

    def _queries_and_keys(self, prefix: str, fields: _Header) -> QueryKeyAttention:
        scale = float(fields["scale"])
        softcap = None if fields["softcap"] is None else float(fields["softcap"])
        if not math.isfinite(scale) or not (softcap is None or 0 < softcap < math.inf):
            raise ValueError(f"{prefix} has an invalid scale {scale} or soft cap {softcap}")
        queries, keys = self._three_axes(f"{prefix}/queries"), self._three_axes(f"{prefix}/keys")
        mask = None if fields["mask"] is None else self._shared[fields["mask"]]
        bias = None if fields["bias"] is None else self._shared[fields["bias"]]
        if not isinstance(mask, Mask | None) or not isinstance(bias, Bias | None):
            raise TypeError(f"{prefix} has a bias as its mask, or a mask as its bias")
        sinks = self._arrays.get(f"{prefix}/sinks")
        attention = QueryKeyAttention(queries, keys, scale, mask, bias, softcap, sinks)
        sizes = attention.num_heads, attention.num_queries, attention.num_keys
        if not all(part is None or part.fits(*sizes) for part in (mask, bias)):
            raise ValueError(f"{prefix}: its mask or bias does not fit {sizes[1]} x {sizes[2]}")
        return attention

    def _parts(self, prefix: str) -> dict[str, torch.Tensor]:
        return {
            name.removeprefix(f"{prefix}/"): array
            for name, array in self._arrays.items()
            if name.startswith(f"{prefix}/")
        }

    def _three_axes(self, name: str) -> torch.Tensor:
        array = self._arrays[name]
        if array.dim() != 3 or not array.is_floating_point():
            raise ValueError(
                f"{name} must be floating point with three axes; got {array.dtype} of shape "
                f"{tuple(array.shape)}"
            )
        return array

"""Conversion of a record to a header and named arrays, and back.

A mask or bias that several layers share is written once. A difference is written as its two sides,
the attentions that are subtracted, and is computed on demand after loading. A side that is also a
layer of the record is written once. If a layer or side is computed in a way that cannot be saved,
such as the alignment of two tokenizers, computed weights or differences are written instead.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import (
    DerivedAttention,
    LayerAttention,
    QueryKeyAttention,
    StoredWeights,
)
from attnviz.record.difference import DifferenceAttention
from attnviz.record.images import PatchGrid, check_image
from attnviz.record.masks import Bias, Mask, from_parts
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Prediction, Tokens, make_visible
from attnviz.record.words import MergedWeights

#: Version of the file format.
FORMAT = 3

# Maximum number of weights that are computed to be written to a file. They take half a gigabyte.
_MAX_COMPUTED = 1 << 27

# Parts of display texts in which `make_visible` must not replace spaces. The first is the number of
# a part of a character that `display_texts` adds, as in ``é 1/2``.
_PART = re.compile(
    r"( [1-4]/[1-4](?: (?=\S))?"
    # The others are from the texts of `ProjectedKeys`, as in ``the … sat (0–2)``, ``projection 0``.
    r"| … | \(\d+(?:–\d+)?\)$|(?<=^projection) (?=\d+$))"
)

_Arrays = dict[str, torch.Tensor]
_Header = dict[str, Any]


def record_to_arrays(record: AttentionRecord) -> tuple[_Header, _Arrays]:
    """Return the header (JSON values) and the arrays of a record."""
    arrays: _Arrays = {}
    shared = _SharedParts(arrays)
    header = {
        "format": FORMAT,
        "model": record.model,
        "notes": list(record.notes),
        "stacks": [
            {
                "name": stack.name,
                "normalized": stack.normalized,
                "signed": stack.signed,
                "measure": stack.measure,
                "query_tokens": _tokens_to_header(stack.query_tokens),
                "key_tokens": None
                if stack.key_tokens is stack.query_tokens
                else _tokens_to_header(stack.key_tokens),
                "layers": [
                    {"number": number}
                    | _layer_to_header(
                        stack.attention(number), f"{stack.name}/{number}", arrays, shared
                    )
                    for number in stack.layers
                ],
            }
            for stack in record.stacks.values()
        ],
        "images": len(record.images),
    }
    for index, image in enumerate(record.images):
        # Copy the image if it is read-only. torch.from_numpy warns about read-only arrays.
        arrays[f"images/{index}"] = torch.from_numpy(np.require(image, requirements="W"))
    header |= {"shared": shared.header}
    return header, arrays


def record_from_arrays(header: _Header, arrays: _Arrays) -> AttentionRecord:
    """Create a record from the result of `record_to_arrays`.

    Raise ArithmeticError, AttributeError, LookupError, TypeError or ValueError if the header is
    invalid or does not fit the arrays.
    """
    shared = {
        name: from_parts(numbers, partial(_array_of, arrays, name))
        for name, numbers in header["shared"].items()
    }
    stacks: dict[str, AttentionStack] = {}
    read = _ReadLayers(arrays, shared)
    for fields in header["stacks"]:
        layers: dict[int, LayerAttention] = {}
        for layer in fields["layers"]:
            number = int(layer["number"])
            if number in layers:
                raise ValueError(f"layer {number} of stack {fields['name']!r} occurs twice")
            layers[number] = read.layer(f"{fields['name']}/{layer['number']}", layer)
        if fields["name"] in stacks:
            raise ValueError(f"stack {fields['name']!r} occurs twice")
        stacks[fields["name"]] = AttentionStack(
            fields["name"],
            layers,
            _tokens_from_header(fields["query_tokens"]),
            None if fields["key_tokens"] is None else _tokens_from_header(fields["key_tokens"]),
            normalized=bool(fields["normalized"]),
            signed=bool(fields["signed"]),
            measure=fields["measure"],
        )
    texts = [header["model"], *header["notes"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"model and notes must be strings; got {texts!r}")
    images = [
        check_image(arrays[f"images/{index}"].numpy(), f"images/{index}")
        for index in range(int(header["images"]))
    ]
    return AttentionRecord(stacks, model=texts[0], notes=texts[1:], images=images)


class _SharedParts:
    """Writer of objects that several layers may share. Each object is written once.

    Attributes
    ----------
    header : dict
        JSON values of the written masks and biases, by name.
    layers : dict
        Names of the written layers, by the id of the layer object.
    computed : int
        Number of weights that were computed to be written so far.
    """

    def __init__(self, arrays: _Arrays) -> None:
        self.header: dict[str, _Header] = {}
        self.layers: dict[int, str] = {}
        self.computed = 0
        self._arrays = arrays
        self._names: dict[int, str] = {}

    def name(self, part: Mask | Bias | None) -> str | None:
        """Return the name of a mask or bias, or None for None.

        The first call with an object writes it.
        """
        if part is None:
            return None
        if id(part) not in self._names:
            name = self._names[id(part)] = f"shared/{len(self._names)}"
            numbers, tensors = part.to_parts()
            self.header[name] = numbers
            self._arrays |= {
                f"{name}/{tensor_name}": tensor for tensor_name, tensor in tensors.items()
            }
        return self._names[id(part)]

    def starts(self, starts: NDArray[np.int64]) -> str:
        """Return the name of an array with the first token of each word.

        The first call with an array writes it.
        """
        if id(starts) not in self._names:
            name = self._names[id(starts)] = f"shared/{len(self._names)}"
            self._arrays[name] = torch.from_numpy(starts.astype(np.int64))
        return self._names[id(starts)]


def _array_of(arrays: _Arrays, name: str, tensor_name: str) -> torch.Tensor:
    return arrays[f"{name}/{tensor_name}"]


def _layer_to_header(
    attention: LayerAttention, prefix: str, arrays: _Arrays, shared: _SharedParts
) -> _Header:
    """Return the header of a layer, or of a side of a difference. Add its arrays to `arrays`.

    If the same object is already written, the header only refers to it. `prefix` is the name of the
    layer.
    """
    if id(attention) in shared.layers:
        return {"kind": "the same", "as": shared.layers[id(attention)]}
    shared.layers[id(attention)] = prefix
    derived = isinstance(attention, DerivedAttention | DifferenceAttention)
    if derived and not _has_form(attention):
        return _computed_to_header(attention, prefix, arrays, shared)
    return _form_to_header(attention, prefix, arrays, shared)


def _has_form(attention: LayerAttention) -> bool:
    """Whether a layer can be written without computing its weights."""
    match attention:
        case DifferenceAttention():
            sides = attention.a, attention.b
            return all(_has_form(side) and not _of_difference(side) for side in sides)
        case MergedWeights():
            return _has_form(attention.base)
    return isinstance(attention, StoredWeights | QueryKeyAttention)


def _of_difference(attention: LayerAttention) -> bool:
    base = attention.base if isinstance(attention, MergedWeights) else attention
    return isinstance(base, DifferenceAttention)


def _computed_to_header(
    attention: LayerAttention, prefix: str, arrays: _Arrays, shared: _SharedParts
) -> _Header:
    """Compute the weights of a layer, add them to `arrays` and return the header of the layer.

    Raise ValueError if the record then has more than `_MAX_COMPUTED` computed weights.
    """
    heads, rows, columns = attention.num_heads, attention.num_queries, attention.num_keys
    shared.computed += heads * rows * columns
    if shared.computed > _MAX_COMPUTED:
        raise ValueError(
            f"{prefix} can only be saved as computed weights, because the tokens of two tokenizers "
            f"were aligned, and these have more than {4 * _MAX_COMPUTED / 1e9:.1f} GB. Save the "
            "original records and compare them again, or select layers with record.only([...])."
        )
    all_pairs = slice(0, rows), slice(0, columns)
    numbers = attention.block(range(heads), *all_pairs).cpu().numpy()
    arrays[f"{prefix}/weights"] = torch.from_numpy(numbers)
    return {"kind": "weights"}


def _form_to_header(
    attention: LayerAttention, prefix: str, arrays: _Arrays, shared: _SharedParts
) -> _Header:
    match attention:
        case DifferenceAttention():
            return {
                "kind": "difference",
                "a": _layer_to_header(attention.a, f"{prefix}/a", arrays, shared),
                "b": _layer_to_header(attention.b, f"{prefix}/b", arrays, shared),
            }
        case MergedWeights():
            return {
                "kind": "merged words",
                "query_starts": shared.starts(attention.query_starts),
                "key_starts": shared.starts(attention.key_starts),
                "base": _form_to_header(attention.base, prefix, arrays, shared),
            }
        case StoredWeights():
            arrays[f"{prefix}/weights"] = attention.values
            return {"kind": "weights"}
        case QueryKeyAttention():
            arrays[f"{prefix}/queries"] = attention.queries
            arrays[f"{prefix}/keys"] = attention.keys
            if attention.sinks is not None:
                arrays[f"{prefix}/sinks"] = attention.sinks
            return {
                "kind": "queries and keys",
                "scale": attention.scale,
                "softcap": attention.softcap,
                "mask": shared.name(attention.mask),
                "bias": shared.name(attention.bias),
            }
    raise TypeError(f"{prefix} is a {type(attention).__name__}, which has no saved form")


class _ReadLayers:
    """Reader of layers. It returns the same object for headers that refer to the same layer."""

    def __init__(self, arrays: _Arrays, shared: dict[str, Mask | Bias]) -> None:
        self._arrays = arrays
        self._shared = shared
        self._known: dict[str, LayerAttention] = {}

    def layer(self, prefix: str, fields: _Header) -> LayerAttention:
        """Create the layer, or the side of a difference, that has the header `fields`."""
        if fields["kind"] == "the same":
            return self._known[fields["as"]]
        attention = self._form(prefix, fields)
        self._known[prefix] = attention
        return attention

    def _form(self, prefix: str, fields: _Header) -> LayerAttention:
        if fields["kind"] == "difference":
            sides = fields["a"], fields["b"]
            # Reject a side that is itself a difference. `record_to_arrays` does not write it.
            for side in sides:
                if "difference" in (side["kind"], side.get("base", {}).get("kind")):
                    raise ValueError(f"{prefix} is a difference of differences")
            side_a, side_b = (
                self.layer(f"{prefix}/{name}", side) for name, side in zip("ab", sides, strict=True)
            )
            return DifferenceAttention(side_a, side_b)
        if fields["kind"] == "merged words":
            if fields["base"]["kind"] == "merged words":
                raise ValueError(f"{prefix} has words that are merged from words")
            return MergedWeights(
                self._form(prefix, fields["base"]),
                self._arrays[fields["query_starts"]].numpy(),
                self._arrays[fields["key_starts"]].numpy(),
            )
        return _tokens_layer_from_header(prefix, fields, self._arrays, self._shared)


def _tokens_layer_from_header(
    prefix: str, fields: _Header, arrays: _Arrays, shared: dict[str, Mask | Bias]
) -> QueryKeyAttention | StoredWeights:
    if fields["kind"] == "weights":
        return StoredWeights(_three_axes(arrays[f"{prefix}/weights"], f"{prefix}/weights"))
    if fields["kind"] != "queries and keys":
        raise ValueError(f"{prefix} is a layer of an unknown kind, {fields['kind']!r}")
    scale = float(fields["scale"])
    softcap = None if fields["softcap"] is None else float(fields["softcap"])
    if not math.isfinite(scale) or not (softcap is None or 0 < softcap < math.inf):
        raise ValueError(f"{prefix} has an invalid scale {scale} or soft cap {softcap}")
    mask = None if fields["mask"] is None else shared[fields["mask"]]
    bias = None if fields["bias"] is None else shared[fields["bias"]]
    if not isinstance(mask, Mask | None) or not isinstance(bias, Bias | None):
        raise TypeError(f"{prefix} has a bias as its mask, or a mask as its bias")
    attention = QueryKeyAttention(
        _three_axes(arrays[f"{prefix}/queries"], f"{prefix}/queries"),
        _three_axes(arrays[f"{prefix}/keys"], f"{prefix}/keys"),
        scale=scale,
        softcap=softcap,
        mask=mask,
        bias=bias,
        sinks=arrays.get(f"{prefix}/sinks"),
    )
    sizes = attention.num_heads, attention.num_queries, attention.num_keys
    if not all(part is None or part.fits(*sizes) for part in (mask, bias)):
        raise ValueError(f"{prefix}: its mask or bias does not fit {sizes[1]} x {sizes[2]}")
    return attention


def _three_axes(array: torch.Tensor, name: str) -> torch.Tensor:
    if array.dim() != 3 or not array.is_floating_point():
        raise ValueError(
            f"{name} must be floating point with three axes; got {array.dtype} of shape "
            f"{tuple(array.shape)}"
        )
    return array


def _tokens_to_header(tokens: Tokens) -> _Header:
    return {
        "text": tokens.text,
        "special": tokens.special,
        "sequence": tokens.sequence,
        "ids": tokens.ids,
        "words": tokens.words,
        "grids": [asdict(grid) for grid in tokens.grids],
        "predictions": [asdict(prediction) for prediction in tokens.predictions],
    }


def _tokens_from_header(fields: _Header) -> Tokens:
    # Apply make_visible() again, because a changed file could contain misleading characters.
    tokens = Tokens.of(
        fields["text"],
        special=fields["special"],
        sequence=fields["sequence"],
        ids=fields["ids"],
    )
    words = fields["words"]
    return replace(
        tokens,
        text=tuple(map(_visible_with_parts, fields["text"])),
        words=None if words is None else tuple(None if n is None else int(n) for n in words),
        grids=tuple(PatchGrid(**grid) for grid in fields["grids"]),
        predictions=tuple(map(_prediction_from_header, fields["predictions"])),
    )


def _prediction_from_header(fields: _Header) -> Prediction:
    row = fields["row"]
    return Prediction(
        query=int(fields["query"]),
        token=_candidate_from_header(fields["token"]),
        candidates=tuple(map(_candidate_from_header, fields["candidates"])),
        row=None if row is None else int(row),
    )


def _candidate_from_header(fields: _Header) -> Candidate:
    text = _visible_with_parts(fields["text"])
    return Candidate(text, int(fields["id"]), float(fields["probability"]))


def _visible_with_parts(text: str) -> str:
    """Apply `make_visible` to a display text, except to spaces that display texts may contain."""
    pieces = _PART.split(text)
    pieces[::2] = [make_visible(piece) if piece else "" for piece in pieces[::2]]
    return "".join(pieces) or make_visible("")

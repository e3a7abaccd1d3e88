"""A record as a header and named arrays, and back.

Each distinct mask and bias is written once, however many layers share it. What comes back goes
through the same checks as anything else that makes a record.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.images import PatchGrid, checked_image
from attnviz.kept import KeptHeads
from attnviz.masks import BandMask, Bias, DenseBias, DistanceBias, Mask, PackedMask
from attnviz.merged import MergedWeights
from attnviz.predictions import Candidate, Prediction
from attnviz.record import AttentionRecord, AttentionStack
from attnviz.tokens import Tokens, visible
from attnviz.weights import GivenWeights, LayerAttention, QueryKeyAttention
from attnviz.windows import WindowBias, WindowMask

__all__ = ["record_from_arrays", "record_to_arrays"]

_FORMAT = 1
_WINDOWS = ("query_windows", "key_windows")
_PLACES = (*_WINDOWS, "query_places", "key_places")
# As `display.display_text` writes it.
_PART = re.compile(
    r"( [1-4]/[1-4](?: (?=\S))?"
    # As `projected.ProjectedKeys` names a group of tokens, and a mixture of all.
    r"| … | \(\d+(?:–\d+)?\)$|(?<=^projection) (?=\d+$))"
)


def record_to_arrays(
    record: AttentionRecord,
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Describe a record.

    Parameters
    ----------
    record : AttentionRecord
        What to describe.

    Returns
    -------
    header : dict
        Everything but the arrays, fit for JSON.
    arrays : dict of str to Tensor
        By names that the header's structure implies.
    """
    arrays: dict[str, torch.Tensor] = {}
    shared = _Shared(arrays)
    header = {
        "format": _FORMAT,
        "model": record.model,
        "notes": list(record.notes),
        "stacks": [
            {
                "name": stack.name,
                "normalized": stack.normalized,
                "query_tokens": _tokens_to_header(stack.query_tokens),
                "key_tokens": None
                if stack.key_tokens is stack.query_tokens
                else _tokens_to_header(stack.key_tokens),
                "layers": [
                    _layer_to_header(stack, number, arrays, shared) for number in stack.layers
                ],
            }
            for stack in record.stacks.values()
        ],
        "images": len(record.images),
    }
    for index, image in enumerate(record.images):
        # A copy where the array is read-only: torch warns of such.
        arrays[f"images/{index}"] = torch.from_numpy(np.require(image, requirements="W"))
    return header | {"shared": shared.header}, arrays


def record_from_arrays(header: dict[str, Any], arrays: dict[str, torch.Tensor]) -> AttentionRecord:
    """Make the record again.

    Parameters
    ----------
    header, arrays
        What `record_to_arrays` gave.

    Returns
    -------
    AttentionRecord

    Raises
    ------
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError
        If header and arrays do not fit together.
    """
    if header.get("format") != _FORMAT:
        raise ValueError(
            f"its format is {header.get('format')!r}, this version of attnviz reads {_FORMAT}"
        )
    shared = {
        name: _shared_from_header(name, fields, arrays) for name, fields in header["shared"].items()
    }
    stacks: dict[str, AttentionStack] = {}
    for fields in header["stacks"]:
        layers: dict[int, LayerAttention] = {}
        for layer in fields["layers"]:
            number = int(layer["number"])
            if number in layers:
                raise ValueError(f"layer {number} of stack {fields['name']!r} is there twice")
            layers[number] = _layer_from_header(fields["name"], layer, arrays, shared)
        if fields["name"] in stacks:
            raise ValueError(f"stack {fields['name']!r} is there twice")
        stacks[fields["name"]] = AttentionStack(
            fields["name"],
            layers,
            _tokens_from_header(fields["query_tokens"]),
            None if fields["key_tokens"] is None else _tokens_from_header(fields["key_tokens"]),
            normalized=bool(fields["normalized"]),
        )
    texts = [header["model"], *header["notes"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"model and notes must be texts, got {texts!r}")
    # Files of the first days have none.
    images = [
        checked_image(arrays[f"images/{index}"].numpy(), f"images/{index}")
        for index in range(int(header.get("images", 0)))
    ]
    return AttentionRecord(stacks, model=texts[0], notes=texts[1:], images=images)


class _Shared:
    """Masks, biases and words by identity, so that each is written once."""

    def __init__(self, arrays: dict[str, torch.Tensor]) -> None:
        self.header: dict[str, dict[str, Any]] = {}
        self._arrays = arrays
        self._names: dict[int, str] = {}

    def name(self, part: Mask | Bias | None) -> str | None:
        if part is None:
            return None
        if id(part) not in self._names:
            name = f"shared/{len(self._names)}"
            self._names[id(part)] = name
            self.header[name] = self._describe(name, part)
        return self._names[id(part)]

    def starts(self, places: NDArray[np.int64]) -> str:
        if id(places) not in self._names:
            name = f"shared/{len(self._names)}"
            self._names[id(places)] = name
            self._arrays[name] = torch.from_numpy(places.astype(np.int64))
        return self._names[id(places)]

    def _describe(self, name: str, part: Mask | Bias) -> dict[str, Any]:
        match part:
            case BandMask(before, after, offset):
                return {"kind": "band", "before": before, "after": after, "offset": offset}
            case PackedMask(bits, num_keys):
                self._arrays[name] = bits
                return {"kind": "packed", "num_keys": num_keys}
            case DistanceBias(values, num_queries):
                self._arrays[name] = values
                return {"kind": "distance", "num_queries": num_queries}
            case DenseBias(values):
                self._arrays[name] = values
                return {"kind": "dense"}
            case WindowMask():
                self._arrays |= {f"{name}/{each}": getattr(part, each) for each in _WINDOWS}
                return {"kind": "windows"}
            case WindowBias(values):
                self._arrays |= {f"{name}/{each}": getattr(part, each) for each in _PLACES}
                self._arrays[name] = values
                return {"kind": "in windows"}


def _shared_from_header(
    name: str, fields: dict[str, Any], arrays: dict[str, torch.Tensor]
) -> Mask | Bias:
    match fields["kind"]:
        case "band":
            before, after, offset = fields["before"], fields["after"], fields["offset"]
            if not (_is_whole(before) and _is_whole(after) and isinstance(offset, int)):
                raise TypeError(f"{name} has ends that are no whole numbers")
            return BandMask(before, after, offset)
        case "packed":
            return PackedMask(arrays[name], fields["num_keys"])
        case "distance":
            return DistanceBias(arrays[name], fields["num_queries"])
        case "dense":
            return DenseBias(arrays[name])
        case "windows":
            return WindowMask(*(arrays[f"{name}/{each}"] for each in _WINDOWS))
        case "in windows":
            return WindowBias(arrays[name], *(arrays[f"{name}/{each}"] for each in _PLACES))
    raise ValueError(f"{name} is of an unknown kind, {fields['kind']!r}")


def _is_whole(number: object) -> bool:
    return number is None or isinstance(number, int)


def _layer_to_header(
    stack: AttentionStack, number: int, arrays: dict[str, torch.Tensor], shared: _Shared
) -> dict[str, Any]:
    prefix = f"{stack.name}/{number}"
    attention = stack.attention(number)
    if not isinstance(attention, MergedWeights):
        return {"number": number} | _attention_to_header(attention, prefix, arrays, shared)
    return {
        "number": number,
        "kind": "merged words",
        "query_starts": shared.starts(attention.query_starts),
        "key_starts": shared.starts(attention.key_starts),
        "base": _attention_to_header(attention.base, prefix, arrays, shared),
    }


def _attention_to_header(
    attention: LayerAttention, prefix: str, arrays: dict[str, torch.Tensor], shared: _Shared
) -> dict[str, Any]:
    if isinstance(attention, KeptHeads):
        return {
            "kind": "kept heads",
            "heads": list(attention.kept_heads),
            "num_heads": attention.num_heads,
            "num_key_heads": attention.num_key_heads,
            "base": _attention_to_header(attention.base, prefix, arrays, shared),
        }
    if isinstance(attention, GivenWeights):
        arrays[f"{prefix}/weights"] = attention.values
        return {"kind": "weights"}
    if not isinstance(attention, QueryKeyAttention):
        raise TypeError(f"{prefix} is a {type(attention).__name__}, which has no saved form")
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
        **({} if attention.key_heads is None else {"key_heads": list(attention.key_heads)}),
    }


def _layer_from_header(
    stack: str,
    fields: dict[str, Any],
    arrays: dict[str, torch.Tensor],
    shared: dict[str, Mask | Bias],
) -> LayerAttention:
    prefix = f"{stack}/{fields['number']}"
    if fields["kind"] != "merged words":
        return _attention_from_header(prefix, fields, arrays, shared)
    return MergedWeights(
        _attention_from_header(prefix, fields["base"], arrays, shared),
        arrays[fields["query_starts"]].numpy(),
        arrays[fields["key_starts"]].numpy(),
    )


def _attention_from_header(
    prefix: str,
    fields: dict[str, Any],
    arrays: dict[str, torch.Tensor],
    shared: dict[str, Mask | Bias],
) -> LayerAttention:
    if fields["kind"] == "kept heads":
        num_key_heads = fields["num_key_heads"]
        return KeptHeads(
            _tokens_attention_from_header(prefix, fields["base"], arrays, shared),
            tuple(map(int, fields["heads"])),
            int(fields["num_heads"]),
            None if num_key_heads is None else int(num_key_heads),
        )
    return _tokens_attention_from_header(prefix, fields, arrays, shared)


def _tokens_attention_from_header(
    prefix: str,
    fields: dict[str, Any],
    arrays: dict[str, torch.Tensor],
    shared: dict[str, Mask | Bias],
) -> QueryKeyAttention | GivenWeights:
    if fields["kind"] == "weights":
        return GivenWeights(_three_axes(arrays[f"{prefix}/weights"], f"{prefix}/weights"))
    queries, keys = arrays[f"{prefix}/queries"], arrays[f"{prefix}/keys"]
    scale = float(fields["scale"])
    softcap = None if fields["softcap"] is None else float(fields["softcap"])
    if not math.isfinite(scale) or not (softcap is None or 0 < softcap < math.inf):
        raise ValueError(f"{prefix} has the scale {scale} and the soft cap {softcap}")
    attention = QueryKeyAttention(
        _three_axes(queries, f"{prefix}/queries"),
        _three_axes(keys, f"{prefix}/keys"),
        scale=scale,
        softcap=softcap,
        mask=_mask(shared, fields["mask"]),
        bias=_bias(shared, fields["bias"]),
        sinks=arrays.get(f"{prefix}/sinks"),
        key_heads=None if fields.get("key_heads") is None else tuple(map(int, fields["key_heads"])),
    )
    _check_covers(attention, prefix)
    return attention


def _three_axes(array: torch.Tensor, name: str) -> torch.Tensor:
    if array.dim() != 3 or not array.is_floating_point():
        raise ValueError(f"{name} is {array.dtype} of shape {tuple(array.shape)}")
    return array


def _mask(shared: dict[str, Mask | Bias], name: str | None) -> Mask | None:
    part = None if name is None else shared[name]
    if part is None or isinstance(part, Mask):
        return part
    raise TypeError(f"{name} is a bias where a mask is needed")


def _bias(shared: dict[str, Mask | Bias], name: str | None) -> Bias | None:
    part = None if name is None else shared[name]
    if part is None or isinstance(part, Bias):
        return part
    raise TypeError(f"{name} is a mask where a bias is needed")


def _check_covers(attention: QueryKeyAttention, prefix: str) -> None:
    """Masks and biases must fit the queries and keys, or a row would read another's values."""
    heads, queries, keys = attention.num_heads, attention.num_queries, attention.num_keys
    mask, bias = attention.mask, attention.bias
    fits = True
    if isinstance(mask, PackedMask):
        bits = tuple(mask.bits.shape)
        fits &= mask.num_keys == keys and bits in {
            (some, queries, -(-keys // 8)) for some in (1, heads)
        }
    if isinstance(bias, DistanceBias):
        values = tuple(bias.values.shape)
        fits &= bias.num_queries == queries and values in {
            (some, queries + keys - 1) for some in (1, heads)
        }
    if isinstance(bias, DenseBias):
        fits &= tuple(bias.values.shape) in {
            (some, rows, keys) for some in (1, heads) for rows in (1, queries)
        }
    for part in (mask, bias):
        if isinstance(part, (WindowMask, WindowBias)):
            fits &= _covers(part.query_windows, queries) and _covers(part.key_windows, keys)
    if isinstance(bias, WindowBias):
        windows, some_heads, rows, columns = bias.values.shape
        fits &= some_heads in (1, heads) and bias.values.is_floating_point()
        fits &= _covers(bias.query_places, queries, rows) and _covers(
            bias.key_places, keys, columns
        )
        fits &= windows == 1 or _covers(bias.query_windows, queries, windows)
    if not fits:
        raise ValueError(f"{prefix}: its mask or bias does not fit {queries} x {keys}")


def _covers(numbers: torch.Tensor, count: int, stop: int | None = None) -> bool:
    """Whether there is a number for each token, and all lie under `stop`."""
    whole = numbers.dtype == torch.int64 and tuple(numbers.shape) == (count,)
    return whole and (stop is None or (int(numbers.min()) >= 0 and int(numbers.max()) < stop))


def _tokens_to_header(tokens: Tokens) -> dict[str, Any]:
    return {
        "text": tokens.text,
        "special": tokens.special,
        "sequence": tokens.sequence,
        "ids": tokens.ids,
        "words": tokens.words,
        "grids": [asdict(grid) for grid in tokens.grids],
        "predictions": [asdict(prediction) for prediction in tokens.predictions],
    }


def _tokens_from_header(fields: dict[str, Any]) -> Tokens:
    # Through visible() again: a file is data, and its text must not mislead a reader either.
    tokens = Tokens.of(
        fields["text"],
        special=fields["special"],
        sequence=fields["sequence"],
        ids=fields["ids"],
        # Files of the first days have none.
        words=fields.get("words"),
    )
    return replace(
        tokens,
        text=tuple(map(_with_parts, fields["text"])),
        grids=tuple(PatchGrid(**grid) for grid in fields.get("grids", [])),
        predictions=tuple(map(_prediction_from_header, fields.get("predictions", []))),
    )


def _prediction_from_header(fields: dict[str, Any]) -> Prediction:
    row = fields["row"]
    return Prediction(
        query=int(fields["query"]),
        token=_candidate_from_header(fields["token"]),
        candidates=tuple(map(_candidate_from_header, fields["candidates"])),
        row=None if row is None else int(row),
    )


def _candidate_from_header(fields: dict[str, Any]) -> Candidate:
    return Candidate(_with_parts(fields["text"]), int(fields["id"]), float(fields["probability"]))


def _with_parts(text: str) -> str:
    """Make a text visible but for the spaces around a part of a character, as in ``é 1/2``."""
    pieces = _PART.split(text)
    pieces[::2] = [visible(piece) if piece else "" for piece in pieces[::2]]
    return "".join(pieces) or visible("")

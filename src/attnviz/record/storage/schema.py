"""A record as a header and named arrays, and back.

Each distinct mask and bias is written once, however many layers share it. What comes back goes
through the same checks as anything else that makes a record.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from attnviz.record.attention import GivenWeights, LayerAttention, QueryKeyAttention
from attnviz.record.head_subset import KeptHeads
from attnviz.record.images import checked_image
from attnviz.record.masks import Bias, Mask
from attnviz.record.merged import MergedWeights
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.storage.schema_masks import SharedParts, check_covers, shared_from_header
from attnviz.record.storage.schema_tokens import tokens_from_header, tokens_to_header

__all__ = ["record_from_arrays", "record_to_arrays"]

_FORMAT = 1


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
    shared = SharedParts(arrays)
    header = {
        "format": _FORMAT,
        "model": record.model,
        "notes": list(record.notes),
        "stacks": [
            {
                "name": stack.name,
                "normalized": stack.normalized,
                "query_tokens": tokens_to_header(stack.query_tokens),
                "key_tokens": None
                if stack.key_tokens is stack.query_tokens
                else tokens_to_header(stack.key_tokens),
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
        name: shared_from_header(name, fields, arrays) for name, fields in header["shared"].items()
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
            tokens_from_header(fields["query_tokens"]),
            None if fields["key_tokens"] is None else tokens_from_header(fields["key_tokens"]),
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


def _layer_to_header(
    stack: AttentionStack, number: int, arrays: dict[str, torch.Tensor], shared: SharedParts
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
    attention: LayerAttention, prefix: str, arrays: dict[str, torch.Tensor], shared: SharedParts
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
    check_covers(attention, prefix)
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

"""Tiny models of any kind, and their own attention weights.

A random model attends almost uniformly, so any formula looks right. Queries and keys are scaled
until rows have clear maxima, and each comparison checks this.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from attnviz import AttentionRecord, extract
from attnviz.record.attention import QueryKeyAttention

__all__ = [
    "IDS",
    "SIZE",
    "Weights",
    "arguments_of",
    "assert_own",
    "built",
    "changed_queries",
    "extracted",
    "own_fields",
    "own_modules",
    "picture",
    "sharpen",
    "with_patch",
]

Weights = NDArray[np.float32]

SIZE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}

IDS = torch.tensor([[7, 31, 12, 99, 5, 210, 44, 8, 61, 17]])

# Names of modules that make queries and keys, separately or together with values.
_SHARPENED = set(
    "q k query key q_proj k_proj qkv qkv_proj query_key_value Wqkv in_proj query_proj key_proj "
    "q_b_proj kv_b_proj c_attn".split()
)


_EAGER_FUNCTION = "eager_attention_forward"


def built(name: str, config: Any, *, factor: float = 8.0, implementation: str | None = None) -> Any:
    """Return a sharpened model of a transformers class. Every call returns an equal model."""
    torch.manual_seed(0)
    maker = getattr(transformers, name)
    if isinstance(config, Mapping):
        config = maker.config_class(**config)
    model = maker._from_config(config, attn_implementation=implementation)
    sharpen(model, factor)
    return model.eval()


def arguments_of(kind: str) -> dict[str, torch.Tensor]:
    """Return the inputs of a model of a kind of `make_model`."""
    if kind == "vit":
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(1, 3, 32, 32, generator=generator)}
    if kind in ("bart", "t5", "bigbird_pegasus"):
        return {"input_ids": IDS, "decoder_input_ids": IDS[:, :6]}
    return {"input_ids": IDS}


def sharpen(model: Any, factor: float, inside: str = "") -> None:
    """Multiply query and key projections by `factor` if their path contains `inside`."""
    with torch.no_grad():
        for path, module in model.named_modules():
            name, weight = path.rpartition(".")[2], getattr(module, "weight", None)
            if inside in path and name in _SHARPENED and weight is not None:
                # GPT-2 has one projection for queries, keys and values, which stores its inputs as
                # rows.
                part = weight[:, : weight.shape[1] // 3 * 2] if name == "c_attn" else weight
                part.mul_(factor)


def _run(model: Any, arguments: Mapping[str, Any], **options: Any) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(**arguments, **options)


def _eager(model: Any) -> Any:
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    return eager.eval()


def own_fields(model: Any, arguments: Mapping[str, Any]) -> dict[str, list[Weights]]:
    """Return the attentions in the output of an eager copy: by field, one array per layer.

    Arrays are (examples or windows, heads, queries, keys). Layers without weights are left out.
    """
    outputs = _run(_eager(model), arguments, output_attentions=True)
    return {
        field: [layer.float().numpy() for layer in layers if layer is not None]
        for field, layers in outputs.items()
        if field.endswith("attentions") and layers
    }


def own_modules(model: Any, arguments: Mapping[str, Any]) -> dict[str, list[Weights]]:
    """Return the weights of the model's eager function: by module, one array per run.

    This includes weights of towers that are not in the output.
    """
    eager = _eager(model)
    names = {id(module): name for name, module in eager.named_modules()}
    by_module: dict[str, list[Weights]] = {}
    files = {sys.modules[type(module).__module__] for module in eager.modules()}
    functions = [
        (file, name) for file in files for name in vars(file) if name.endswith(_EAGER_FUNCTION)
    ]

    def noting(own: Callable[..., Any]) -> Callable[..., Any]:
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            output, weights = own(module, *args, **kwargs)
            by_module.setdefault(names[id(module)], []).append(weights.float().numpy())
            return output, weights

        return noted

    with ExitStack() as stack:
        for file, name in functions:
            stack.enter_context(mock.patch.object(file, name, noting(getattr(file, name))))
        _run(eager, arguments)
    return by_module


def extracted(model: Any, arguments: Mapping[str, Any], **options: Any) -> AttentionRecord:
    """Extract a record, and check that the model's output is the same before and after."""
    before = _run(model, arguments)
    record: AttentionRecord = extract(model, dict(arguments), progress=False, **options)
    after = _run(model, arguments)
    assert all(
        torch.equal(after[field], value)
        for field, value in before.items()
        if isinstance(value, torch.Tensor)
    )
    return record


def assert_own(
    record: AttentionRecord, stack: str, own: Mapping[int, Weights], peak: float = 0.3
) -> None:
    """Compare a stack with the model's own weights: every layer, head, query and key.

    `own` maps numbers of layers to arrays (heads, queries, keys).
    """
    stack_ = record.stacks[stack]
    assert stack_.layers == tuple(own)
    # Sharp rows show a wrong formula, unlike almost uniform ones.
    assert np.mean([weights.max(-1).mean() for weights in own.values()]) > peak
    for number, expected in own.items():
        weights = stack_.weights(layer=number)
        assert weights.shape == expected.shape
        assert np.abs(weights - expected).max() < 1e-4, (stack, number)


def picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return a random image, (height, width, 3), with different patches."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def with_patch(image: NDArray[np.uint8], corner: tuple[int, int], size: int) -> NDArray[np.uint8]:
    """Return the image with other colours in one square."""
    other = image.copy()
    square = (slice(corner[0], corner[0] + size), slice(corner[1], corner[1] + size))
    other[square] = 255 - other[square]
    return other


def changed_queries(
    model: Any, processor: Any, pictures: tuple[Any, Any], stack: str, layer: int
) -> set[int]:
    """Return the tokens whose query vectors differ between two images."""
    queries = []
    for inputs in pictures:
        changed_stack = extract(model, inputs, processor=processor, progress=False).stacks[stack]
        attention = changed_stack.attention(layer)
        assert isinstance(attention, QueryKeyAttention)
        queries.append(attention.queries.numpy())
    # Results of the same numbers are equal to the last bit.
    return set(np.flatnonzero((queries[0] != queries[1]).any(axis=(0, 2))).tolist())

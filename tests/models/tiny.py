"""Functions that make tiny models, and return the attention weights that the models compute.

A random model attends almost uniformly, so a wrong formula could look right. Models are therefore
sharpened: their queries and keys are scaled, so that rows have clear maxima.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from attnviz import AttentionRecord, extract
from attnviz.record.attention import QueryKeyAttention
from model_types.reference import module_calls

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


def built(name: str, config: Any, *, factor: float = 8.0, implementation: str | None = None) -> Any:
    """Return a sharpened model of the class `name`. Equal calls return equal models."""
    torch.manual_seed(0)
    maker = getattr(transformers, name)
    if isinstance(config, Mapping):
        config = maker.config_class(**config)
    model = maker._from_config(config, attn_implementation=implementation)
    sharpen(model, factor)
    return model.eval()


def arguments_of(kind: str) -> dict[str, torch.Tensor]:
    """Return inputs with one example for `make_model(kind)`."""
    if kind == "vit":
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(1, 3, 32, 32, generator=generator)}
    if kind in ("bart", "t5", "bigbird_pegasus"):
        return {"input_ids": IDS, "decoder_input_ids": IDS[:, :6]}
    return {"input_ids": IDS}


def sharpen(model: Any, factor: float, inside: str = "") -> None:
    """Scale projections by `factor`: those in `_SHARPENED` whose path contains `inside`."""
    with torch.no_grad():
        for path, module in model.named_modules():
            name, weight = path.rpartition(".")[2], getattr(module, "weight", None)
            if inside in path and name in _SHARPENED and weight is not None:
                # GPT-2's weight is (inputs, outputs), with outputs q, k and v. Scale only q and k.
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


def reference(model: Any, arguments: Mapping[str, Any]) -> dict[str, list[Weights]]:
    """Return the weights that the model itself returns with eager attention.

    The result has, for each stack ("self", "encoder", "cross", ...), an array (examples, heads,
    queries, keys) for each layer.
    """
    outputs = _run(_eager(model), arguments, output_attentions=True)
    only_images = "pixel_values" in arguments and "input_ids" not in arguments
    fields = {
        "vision" if only_images else "self": "attentions",
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    return {
        stack: [layer.float().numpy() for layer in outputs[field] if layer is not None]
        for stack, field in fields.items()
        if outputs.get(field)
    }


def own_modules(
    model: Any, arguments: Mapping[str, Any], parts: Mapping[str, str]
) -> dict[str, list[Weights]]:
    """Return the weights that attention modules compute with eager attention.

    The result has the same form as the result of `reference`. `parts` has a string for each stack,
    such as "vision_tower", which occurs only in the paths of the modules of this stack.
    """
    calls = module_calls(_eager(model), arguments)
    return {
        stack: [weights[0].float().numpy() for path, weights in calls.items() if part in path]
        for stack, part in parts.items()
    }


def extracted(model: Any, arguments: Mapping[str, Any], **options: Any) -> AttentionRecord:
    """Return the extracted record, and assert that the outputs of the model do not change."""
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
    record: AttentionRecord,
    own: Mapping[str, Sequence[Weights]],
    peak: float = 0.3,
    example: int = 0,
) -> None:
    """Compare the weights of a record with those of an example in `own`.

    `own` is the result of `reference` or `own_modules`. The largest weight of a row must be larger
    than `peak` on average, because almost uniform rows would hide a wrong formula.
    """
    assert own
    for name, layers in own.items():
        stack = record.stacks[name]
        assert stack.layers == tuple(range(len(layers)))
        mean = np.mean([layer[example].max(-1).mean() for layer in layers])
        assert mean > peak, name
        for number, layer in enumerate(layers):
            weights = stack.weights(layer=number)
            assert weights.shape == layer[example].shape
            assert np.abs(weights - layer[example]).max() < 1e-4, (name, number)


def picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return an image (height, width, 3) of random uint8 pixels."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def with_patch(image: NDArray[np.uint8], corner: tuple[int, int], size: int) -> NDArray[np.uint8]:
    """Return a copy of the image with inverted colours in a square.

    `corner` is the row and column of the upper left pixel of the square, and `size` is its width.
    """
    other = image.copy()
    square = (slice(corner[0], corner[0] + size), slice(corner[1], corner[1] + size))
    other[square] = 255 - other[square]
    return other


def changed_queries(
    model: Any, processor: Any, pictures: tuple[Any, Any], stack: str, layer: int
) -> set[int]:
    """Return the positions of the tokens whose queries in `layer` differ between two inputs."""
    queries = []
    for inputs in pictures:
        changed_stack = extract(model, inputs, processor=processor, progress=False).stacks[stack]
        attention = changed_stack.attention(layer)
        assert isinstance(attention, QueryKeyAttention)
        queries.append(attention.queries.numpy())
    # Queries that do not depend on the changed pixels are equal bit for bit, without a tolerance.
    return set(np.flatnonzero((queries[0] != queries[1]).any(axis=(0, 2))).tolist())

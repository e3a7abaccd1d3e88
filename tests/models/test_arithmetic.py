"""The checks of an extraction accept the arithmetic of kernels of devices.

Each kernel is simulated with the rounding and the order of summation that it has on a GPU. The
simulation runs on a CPU, in float32 between the roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from models.make_models import make_model
from models.tiny import arguments_of

Tensor = torch.Tensor
IDS = torch.randint(3, 400, (1, 60), generator=torch.Generator().manual_seed(1))


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """Round float32 numbers to `bits` explicit bits of the mantissa (TF32: 10, bfloat16: 7)."""
    dropped = 23 - bits
    if not dropped:
        return tensor.float()
    numbers = tensor.float().contiguous().view(torch.int32)
    half = (1 << (dropped - 1)) - 1 + (numbers >> dropped & 1)
    return (numbers + half & -(1 << dropped)).view(torch.float32)


def product(left: Tensor, right: Tensor, bits: int = 23, *, step: int = 0) -> Tensor:
    """Multiply matrices of rounded numbers.

    If `step` is not 0, sum the terms in groups of this size, from the last to the first, and round
    the sum to float16 after each group, as products with a reduced-precision reduction do.
    """
    left, right = rounded(left, bits), rounded(right, bits)
    if not step:
        return left @ right
    total = torch.zeros(())
    for start in reversed(range(0, left.shape[-1], step)):
        terms = slice(start, start + step)
        total = (total + left[..., terms] @ right[..., terms, :]).half().float()
    return total


def exact(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, multiply: Callable[..., Tensor]
) -> Tensor:
    """Compute all logits, then the softmax, then the product with the values."""
    weights = torch.softmax(multiply(query, key.mT) + mask, dim=-1)
    return multiply(weights.to(value.dtype), value)


def fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, multiply: Callable[..., Tensor]
) -> Tensor:
    """Compute blocks of keys with an online softmax, as flash attention does.

    Exponentials are powers of two, and are rounded to the dtype of the values.
    """
    shape = query.shape[:-1]
    top, total = torch.full(shape, -1e30), torch.zeros(shape)
    output = torch.zeros(*shape, value.shape[-1])
    for start in range(0, key.shape[-2], 16):
        block = slice(start, start + 16)
        logits = multiply(query, key[..., block, :].mT) + mask[..., block]
        logits = logits * math.log2(math.e)
        largest = torch.maximum(top, logits.amax(dim=-1))
        exponentials = torch.exp2(logits - largest[..., None])
        factor = torch.exp2(top - largest)
        total = total * factor + exponentials.sum(dim=-1)
        part = multiply(exponentials.to(value.dtype), value[..., block, :])
        output, top = output * factor[..., None] + part, largest
    return output / total[..., None]


def kernel(
    compute: Callable[..., Tensor], bits: int = 23, *, step: int = 0, split: bool = False
) -> Any:
    """Return an attention function of transformers that computes as a kernel does.

    If `split` is True, both queries and keys are multiplied by the root of the scale in their own
    dtype, as in torch's own formula.
    """

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, None]:
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
        scale = options.get("scaling", query.shape[-1] ** -0.5)
        count = query.shape[-2]
        added = torch.full((count, count), -torch.inf).triu(1) if mask is None else mask.float()
        if split:
            query, key, scale = query * scale**0.5, key * scale**0.5, 1.0
        output = compute(
            query.float() * scale, key, value, added, partial(product, bits=bits, step=step)
        )
        return output.to(query.dtype).transpose(1, 2), None

    return attention


KERNELS: dict[str, tuple[Any, list[torch.dtype]]] = {
    "TF32": (kernel(exact, 10), [torch.float32]),
    "TF32, fused (memory-efficient)": (kernel(fused, 10), [torch.float32]),
    "bfloat16 products of float32": (kernel(exact, 7), [torch.float32]),
    "math": (kernel(exact, split=True), [torch.float16, torch.bfloat16]),
    "fused (flash, cuDNN)": (kernel(fused), [torch.float16, torch.bfloat16]),
    "float16 accumulation": (kernel(exact, step=16), [torch.float16]),
}


def model_of(size: float, dtype: torch.dtype) -> Any:
    """Return a model whose logits are `size` times those of random weights."""
    model = make_model("llama", hidden_size=192, max_position_embeddings=128)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= size
            # Values of some dimensions are far larger than others, as in trained models.
            layer.self_attn.v_proj.weight[::7] *= 20
    return model.to(dtype)


@pytest.fixture
def precision() -> Iterator[Callable[[str], None]]:
    """Function that sets how precisely torch may multiply float32 matrices, until the test ends."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("size", [0.1, 1, 10, 40])
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in KERNELS for dtype in KERNELS[name][1]]
)
def test_kernels_of_devices_pass_the_check(
    name: str,
    dtype: torch.dtype,
    size: float,
    register: Any,
    precision: Callable[[str], None],
) -> None:
    model = model_of(size, dtype)
    model.set_attn_implementation(register("simulated", KERNELS[name][0]))
    precision("medium" if "bfloat16 products" in name else "high")
    record = extract(model, IDS)
    assert any("compared with its output" in note for note in record.notes)


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in KERNELS for dtype in KERNELS[name][1]]
)
def test_an_ignored_mask_is_larger_than_the_rounding_of_a_kernel(
    name: str, dtype: torch.dtype, register: Any, precision: Callable[[str], None]
) -> None:
    function = KERNELS[name][0]

    def wrong(module: Any, query: Any, key: Any, value: Any, _: Any, **options: Any) -> Any:
        return function(module, query, key, value, torch.zeros(1, key.shape[-2]), **options)

    model = model_of(1, dtype)
    model.set_attn_implementation(register("wrong", wrong))
    precision("medium" if "bfloat16 products" in name else "high")
    with pytest.raises(NotImplementedError, match="its output differs"):
        extract(model, IDS)


class RoundedProducts(TorchDispatchMode):
    """Mode in which all matrix products round their inputs, as with TF32.

    The products of attnviz round their inputs, too.
    """

    _PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})

    def __init__(self, bits: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bits = bits
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name.removeprefix("aten::") in self._PRODUCTS:
            self.count += 1
            args = (
                *args[:-2],
                *(rounded(factor.detach(), self._bits).to(factor.dtype) for factor in args[-2:]),
            )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("bits", "name"), [(10, "high"), (7, "medium")])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "t5", "bloom", "bart", "vit"])
def test_models_and_checks_with_rounded_products(
    kind: str, bits: int, name: str, precision: Callable[[str], None]
) -> None:
    model = make_model(kind, implementation="eager")
    precision(name)
    with torch.no_grad(), RoundedProducts(bits) as products:
        record = extract(model, arguments_of(kind))
    assert products.count
    kinds = {
        type(stack.attention(layer)) for stack in record.stacks.values() for layer in stack.layers
    }
    assert kinds == {QueryKeyAttention}

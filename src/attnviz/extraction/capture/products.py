"""Products of queries and keys, whichever torch function computed them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Product", "product_of"]

_EQUATION = re.compile(r"^([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)$")


@dataclass(frozen=True)
class Product:
    """``alpha * queries @ keys^T + added``.

    Attributes
    ----------
    queries : Tensor
        (..., queries, head_dim).
    keys : Tensor
        (..., keys, head_dim).
    alpha : float
        Factor of the product.
    added : Tensor or None
        What was added in the same step.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    alpha: float = 1.0
    added: torch.Tensor | None = None


def product_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """Read a product from a torch function's arguments.

    Parameters
    ----------
    name : str
        The function's: ``matmul``, ``bmm``, ``baddbmm``, ``einsum``, ...
    args, kwargs
        What it was called with.

    Returns
    -------
    Product or None
        None where it is no product of two stacks of vectors.

    Examples
    --------
    >>> q, k = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    >>> product_of("einsum", ("hid,hjd->hij", q, k), {}).keys.shape
    torch.Size([2, 5, 4])
    """
    if name == "einsum":
        return _of_einsum(args)
    if name == "baddbmm":
        given = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | dict(kwargs)
        beta, left, right = given.get("beta", 1), given["batch1"], given["batch2"]
        # With beta 0 what is added isn't even read: it may hold anything.
        added = None if beta == 0 else given["input"] * beta
        return Product(left, right.transpose(-1, -2), float(given.get("alpha", 1)), added)
    operands = [*args, *kwargs.values()]
    if len(operands) != 2 or not all(isinstance(each, torch.Tensor) for each in operands):
        return None
    left, right = operands
    if min(left.dim(), right.dim()) < 3:
        return None
    return Product(left, right.transpose(-1, -2))


def _of_einsum(args: Sequence[Any]) -> Product | None:
    operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
    equation = _EQUATION.match(str(args[0]).replace(" ", ""))
    if equation is None or len(operands) != 2:
        return None
    left, right, result = equation.groups()
    if len(set(result)) != len(result) or len(result) < 3:
        return None
    query, key = result[-2], result[-1]
    operand = dict(zip((left, right), operands, strict=True))
    summed = (set(left) & set(right)) - set(result)
    # The last two letters of the result are queries and keys; one letter is summed over.
    if len(summed) != 1 or left == right:
        return None
    of_query = next((each for each in (left, right) if query in each and key not in each), None)
    of_key = next((each for each in (left, right) if key in each and query not in each), None)
    if of_query is None or of_key is None:
        return None
    (dimension,) = summed
    queries = _ordered(operand[of_query], of_query, result[:-2], query + dimension)
    keys = _ordered(operand[of_key], of_key, result[:-2], key + dimension)
    return None if queries is None or keys is None else Product(queries, keys)


def _ordered(tensor: torch.Tensor, letters: str, batch: str, last: str) -> torch.Tensor | None:
    """Put a tensor's axes into the order of the result's, 1 where it has none of an axis."""
    if set(letters) - set(batch) - set(last):
        return None
    present = [letter for letter in batch + last if letter in letters]
    ordered = tensor.permute([letters.index(letter) for letter in present])
    for place, letter in enumerate(batch + last):
        if letter not in letters:
            ordered = ordered.unsqueeze(place)
    return ordered

"""Functions that run a model's own `generate`, and compare records with the result."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz import Tokens

IDS = torch.tensor([[7, 31, 12, 99, 5, 210, 44, 8]])


def own_steps(model: Any, count: int, ids: torch.Tensor | None = IDS, /, **options: Any) -> Any:
    """Return the output of `model.generate`, including the weights and logits of each step.

    By default, `count` tokens are generated greedily. `options` are further arguments of
    `generate`. They must contain the inputs if `ids` is None.
    """
    inputs = {} if ids is None else {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    eager = copy.deepcopy(model).eval()
    eager.set_attn_implementation("eager")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eager.generate(
            **inputs,
            **({"max_new_tokens": count, "do_sample": False, "num_beams": 1} | options),
            return_dict_in_generate=True,
            output_attentions=True,
            output_logits=True,
        )


def stitched(steps: Any, layer: int, num_queries: int, num_keys: int | None) -> NDArray[np.float64]:
    """Join the weights of a layer in all steps to one array (heads, queries, keys).

    `num_keys` is the number of keys of cross-attention, or None for self-attention. A step may lack
    the weights on its first keys, because a cache with a sliding window drops these keys.
    Such weights are 0 in the result.
    """
    blocks = [step[layer][0].double().numpy() for step in steps]
    rows = np.zeros((blocks[0].shape[0], num_queries, num_keys or num_queries))
    start = 0
    for block in blocks:
        _, count, width = block.shape
        last = start + count if num_keys is None else num_keys
        rows[:, start : start + count, last - width : last] = block
        start += count
    assert start == num_queries
    return rows


def assert_predictions(tokens: Tokens, own: Any, prefix: int) -> None:
    """Compare the predictions in `tokens` with `own`, a result of `own_steps`.

    The first prediction is that of the token at position `prefix`.
    """
    came = own.sequences[0, prefix:].tolist()
    assert [prediction.token.id for prediction in tokens.predictions] == came
    for step, (prediction, logits) in enumerate(zip(tokens.predictions, own.logits, strict=True)):
        probabilities = torch.softmax(logits[0].double(), dim=-1)
        assert prediction.query == prefix - 1 + step
        assert prediction.row in (prefix + step, None)
        assert prediction.token.probability == pytest.approx(
            float(probabilities[came[step]]), rel=1e-3
        )
        best = probabilities.topk(5)
        candidate_probabilities = [candidate.probability for candidate in prediction.candidates]
        assert candidate_probabilities == pytest.approx(best.values.tolist(), rel=1e-3)
        assert candidate_probabilities == sorted(candidate_probabilities, reverse=True)
        for candidate in prediction.candidates:
            expected = float(probabilities[candidate.id])
            assert candidate.probability == pytest.approx(expected, rel=1e-3)

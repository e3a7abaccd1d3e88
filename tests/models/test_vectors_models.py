"""Logits from the replies to "vectors" requests give the model's own weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.extraction import extract
from attnviz.record.record import AttentionRecord
from attnviz.server.server import RecordServer
from models.make_models import make_model
from models.tiny import arguments_of, reference
from unit.complete_replies import row_arrays

# Features of attention in each kind of model. "grouped": query heads share key heads.
KINDS = {
    "bert": set(),
    "gpt2": set(),
    "llama": {"grouped"},
    "mistral": {"grouped"},
    "gemma2": {"grouped", "softcap"},
    "gpt_oss": {"grouped", "sink"},
    "t5": {"bias"},
    "bart": set(),
    "vit": set(),
}


def row_of(
    server: RecordServer, num_keys: int, **location: Any
) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Send the request "vectors". Return the header of the reply, and its arrays by name."""
    reply = server.reply("vectors", {**location, "keys": [0, num_keys]})
    return dict(reply.header), row_arrays(reply, num_keys)


def largest_differences(
    record: AttentionRecord, own: dict[str, list[Any]]
) -> tuple[float, float, set[str]]:
    """Compute logits and weights from the queries and keys in all replies.

    Return the largest difference of weights from `own`, the largest difference from the logits and
    weights in the replies, and the features in `KINDS` that the record has.
    """
    server = RecordServer(record)
    weight_error = sum_error = 0.0
    features: set[str] = set()
    for name, layer, weights in (
        (name, layer, weights)
        for name, layers in own.items()
        for layer, weights in enumerate(layers)
    ):
        _, heads, num_queries, num_keys = weights.shape
        for head, token in product(range(heads), range(num_queries)):
            header, parts = row_of(
                server, num_keys, stack=name, layer=layer, head=head, token=token
            )
            logits = (parts["query"] * parts["keys"] * header["scale"]).sum(1)
            if (cap := header["softcap"]) is not None:
                logits = cap * np.tanh(logits / cap)
            logits = logits + parts["bias"]
            allowed = parts["allowed"] == 1
            computed = np.where(allowed, np.exp(logits - header["log_sum_exp"]), 0.0)
            sum_error = max(
                sum_error,
                np.abs(logits - parts["logits"])[allowed].max(),
                np.abs(computed - parts["weights"]).max(),
            )
            weight_error = max(weight_error, np.abs(computed - weights[0, head, token]).max())
            present = {
                "bias": header["has_bias"],
                "softcap": cap is not None,
                "sink": header["sink"],
                "grouped": header["num_key_heads"] < header["num_heads"],
            }
            features |= {feature for feature, is_present in present.items() if is_present}
    return weight_error, sum_error, features


@pytest.mark.parametrize("kind", KINDS)
def test_cells_add_up_to_the_models_own_weights(kind: str) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    weight_error, sum_error, features = largest_differences(
        extract(model, arguments), reference(model, arguments)
    )
    assert features == KINDS[kind]
    assert max(weight_error, sum_error) < 1e-4

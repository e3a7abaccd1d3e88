"""Rows of `vectors` replies: products of queries and keys add up to the model's own weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnviz.extraction import extract
from attnviz.record.record import AttentionRecord
from attnviz.server.server import RecordServer
from models.make_models import make_model, reference
from models.tiny import arguments_of

TOLERANCE = 1e-4
# Parts of the attention formula that a kind of model has besides plain queries and keys.
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
EAGER_ONLY = {"gemma2", "gpt_oss"}


def row_of(server: RecordServer, num_keys: int, **location: Any) -> tuple[dict[str, Any], Any]:
    reply = server.reply("vectors", {**location, "keys": [0, num_keys]})
    assert reply.data is not None
    floats = np.frombuffer(reply.data, "<f4").astype(np.float64)
    ends = np.cumsum([np.prod(part["shape"], dtype=int) for part in reply.header["parts"]])
    pieces = np.split(floats, ends[:-1])
    names = [part["name"] for part in reply.header["parts"]]
    return dict(reply.header), {
        name: piece.reshape(part["shape"])
        for name, piece, part in zip(names, pieces, reply.header["parts"], strict=True)
    }


def largest_differences(
    record: AttentionRecord, own: dict[str, list[Any]]
) -> tuple[float, float, set[str]]:
    """Return the error of weights, the error of sums of terms, and the features of layers."""
    server = RecordServer(record)
    weight_error = sum_error = 0.0
    features: set[str] = set()
    for name, layers in own.items():
        stack = record.stack(name)
        for layer, weights in zip(stack.layers, layers, strict=True):
            _, heads, num_queries, num_keys = weights.shape
            for head in range(heads):
                for token in range(num_queries):
                    header, parts = row_of(
                        server, num_keys, stack=name, layer=layer, head=head, token=token
                    )
                    sums = (parts["query"] * parts["keys"] * header["scale"]).sum(1)
                    cap = header["softcap"]
                    logits = sums if cap is None else cap * np.tanh(sums / cap)
                    logits = logits + parts["bias"]
                    allowed = parts["allowed"] == 1
                    added = np.where(allowed, np.exp(logits - header["log_sum_exp"]), 0.0)
                    sum_error = max(
                        sum_error,
                        np.abs(logits - parts["logits"])[allowed].max(),
                        np.abs(added - parts["weights"]).max(),
                    )
                    expected = weights[0, head, token]
                    weight_error = max(weight_error, np.abs(added - expected).max())
                    features |= {"bias"} if header["has_bias"] else set()
                    features |= {"softcap"} if cap is not None else set()
                    features |= {"sink"} if header["sink"] else set()
                    features |= (
                        {"grouped"} if header["num_key_heads"] < header["num_heads"] else set()
                    )
    return weight_error, sum_error, features


@pytest.mark.parametrize("kind", KINDS)
def test_cells_add_up_to_the_models_own_weights(kind: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation("eager" if kind in EAGER_ONLY else "sdpa")
    arguments = arguments_of(kind)

    own = reference(model, arguments)
    record = extract(model, arguments)

    weight_error, sum_error, features = largest_differences(record, own)
    print(f"{kind}: weights {weight_error:.1e}, sums {sum_error:.1e}")  # noqa: T201
    assert features == KINDS[kind]
    assert weight_error < TOLERANCE
    assert sum_error < TOLERANCE


def test_a_model_with_only_weights_names_the_views_that_can_show_it() -> None:
    from attnviz.views.neuron import NeuronView

    own = reference(make_model("bert"), arguments_of("bert"))["self"]
    record = AttentionRecord.from_weights(own, [f"t{i}" for i in range(10)])
    with pytest.raises(ValueError, match=r"attnviz\.extract.*HeadView, ModelView or MatrixView"):
        NeuronView(record)

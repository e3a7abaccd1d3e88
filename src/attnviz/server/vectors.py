"""Replies that show how the weights of one row are computed from queries and keys.

A row has the weights of one query on all keys. A reply has the query vector and, for some keys, the
key vectors, the bias, the mask, the logits and the weights.
``js/src/client/requests/vectors.ts`` reads the replies. In exported pages,
``js/src/client/attention.ts`` computes the same results.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

import numpy as np
import torch

from attnviz.record.stack import AttentionStack
from attnviz.server.protocol import Reply, check_reply_size

#: Maximum number of strongest keys in the header of a reply. They are the keys with the largest
#: weights among all keys of the row.
NUM_STRONGEST = 5

_FLOAT_BYTES = 4


class SinkOfRow(TypedDict):
    """Attention sink of a head: a learned logit that takes a share of the weight of each query.

    `weight` is this share for one query.
    """

    logit: float
    weight: float


class RowHeader(TypedDict):
    """Properties of one row: the weights of a query on all keys, not only on requested keys.

    A logit is ``scale * q . k``, bounded by the soft cap, plus the bias.

    Attributes
    ----------
    softcap : float or None
        Soft cap c, which replaces a scaled product x by ``c tanh(x / c)``. None if the layer has no
        soft cap.
    sink : SinkOfRow or None
        Sink of the head, or None if it has no sink.
    log_sum_exp : float or None
        Logarithm of the sum of exp(logit) over all allowed keys and the sink. None if no key is
        allowed and the head has no sink.
    head, num_heads : int
        Index of the head in the layer (`head`), and number of heads of the layer (`num_heads`).
    key_head, num_key_heads : int
        Index of the key head whose keys this head uses (`key_head`), and number of key heads of the
        layer (`num_key_heads`). With grouped-query attention, several heads share a key head.
    num_allowed : int
        Number of keys that the mask allows for this query.
    num_left_out : int
        Number of keys to which the query could attend, but which the model did not choose. Omitted
        if it is 0.
    lost : float
        Total weight that these keys would have if all keys were chosen. Omitted without such keys.
    strongest : list
        Position and weight of up to five keys with the largest weights, the largest first. Keys
        with weight 0 are left out.
    error, logit_error : float
        Largest absolute error of a weight (`error`) and of a logit (`logit_error`) in the layer. In
        a live view, both are 0. In an exported page, they can be larger, because queries and keys
        can be rounded.
    gate : float
        Mean gate of the head at this query: the factor that multiplies its output, averaged over
        dimensions. Omitted if the head has no gate, or if it is not known.
    measured : int
        Number of queries per head for which the errors were measured. Omitted if all queries were
        used, or if nothing was rounded.
    """

    scale: float
    softcap: float | None
    has_bias: bool
    sink: SinkOfRow | None
    log_sum_exp: float | None
    head: int
    num_heads: int
    key_head: int
    num_key_heads: int
    num_allowed: int
    num_left_out: NotRequired[int]
    lost: NotRequired[float]
    strongest: list[tuple[int, float]]
    error: float
    logit_error: float
    measured: NotRequired[int]
    gate: NotRequired[float]


class VectorsHeader(RowHeader):
    """Header of a reply with a query vector and the requested key vectors in its buffer.

    The buffer has float32 arrays, one after the other: the query vector, (head_dim,), the key
    vectors, (keys, head_dim), and four arrays with one number per key: the bias, 1 if the mask
    allows the key, 0 if the key is masked or -1 if the model did not choose it, the logit (minus
    infinity if the key is not allowed), and the weight.

    Attributes
    ----------
    weight_in_range : float
        Sum of the weights of the query on the requested keys.
    """

    weight_in_range: float


def encode_row_vectors(
    stack: AttentionStack, *, layer: int, head: int, token: int, keys: slice
) -> Reply:
    """Return a reply with a `VectorsHeader` about one query and the requested keys.

    `token` is the position of the query. The arrays of the buffer are float32 in little endian.
    Raise ValueError if the layer has only weights, if the buffer does not fit into a reply, or if
    the query vector or a weight of the query has NaN or infinite numbers.
    """
    attention = stack.attention(layer).vectors
    if attention is None:
        raise ValueError(
            f"stack {stack.name!r}, layer {layer}, has no queries and keys: the record was created "
            "from weights, its tokens are merged into words, or it is a difference"
        )
    head = stack.head_number(layer, head)
    token = stack.query_tokens.position(token)
    count, head_dim = keys.stop - keys.start, attention.queries.shape[2]
    size = _FLOAT_BYTES * (head_dim * (count + 1) + 4 * count)
    check_reply_size(f"vectors of {count} keys", size, "Request fewer keys.")
    row = slice(token, token + 1)
    with torch.no_grad():
        logits = attention.logits([head], row)[0, 0].cpu()
        allowed = attention.allowed([head], row)[0, 0]
        left_out = attention.left_out([head], row)[0, 0]
        bias = torch.zeros(attention.num_keys)
        if attention.bias is not None:
            bias = attention.bias.added(head, row, slice(0, attention.num_keys))[0].cpu().float()
        arrays = [
            attention.queries[head, token].float().cpu().numpy(),
            attention.keys[attention.key_head(head), keys].float().cpu().numpy(),
            bias[keys].numpy(),
            (allowed[keys].float() - left_out[keys].float()).numpy(),
            logits[keys].numpy(),
        ]
        sink = None if attention.sinks is None else float(attention.sinks[head].float())
        exact = logits.double()
        if sink is not None:
            exact = torch.cat([exact, torch.tensor([sink], dtype=torch.float64)])
        log_sum_exp = float(torch.logsumexp(exact, dim=0))
    weights = attention.block([head], row)[0, 0].cpu().numpy()
    arrays.append(weights[keys])
    if not (np.isfinite(arrays[0]).all() and np.isfinite(weights).all()):
        raise ValueError(
            f"layer {layer}, head {head}, query {token}: some numbers are NaN or infinite, "
            "because queries or keys of the model are"
        )
    strongest = np.argsort(-weights, kind="stable")[:NUM_STRONGEST]
    header: VectorsHeader = {
        "scale": float(attention.scale),
        "softcap": None if attention.softcap is None else float(attention.softcap),
        "has_bias": attention.bias is not None,
        "sink": None
        if sink is None
        else {"logit": sink, "weight": float(np.exp(sink - log_sum_exp))},
        "log_sum_exp": log_sum_exp if np.isfinite(log_sum_exp) else None,
        "head": head,
        "num_heads": attention.num_heads,
        "key_head": attention.key_head(head),
        "num_key_heads": attention.num_key_heads,
        "num_allowed": int(allowed.sum()),
        "strongest": [(int(key), float(weights[key])) for key in strongest if weights[key] > 0],
        "weight_in_range": float(weights[keys].sum(dtype=np.float64)),
        "error": 0.0,
        "logit_error": 0.0,
    }
    gates = stack.gates(layer)
    if gates is not None and np.isfinite(gates[head, token]):
        header["gate"] = float(gates[head, token])
    if num_left_out := int(left_out.sum()):
        lost = attention.lost_weight([head], row)
        header |= {"num_left_out": num_left_out, "lost": float(lost[0, 0])}
    data = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    return Reply(header, data)

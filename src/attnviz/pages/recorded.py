"""Replies of a kernel that an exported page contains.

A view in a notebook sends requests to the kernel, and gets replies that consist of a header (a JSON
object) and bytes. A page of the embedding view or of the atlas has no kernel, and contains recorded
replies. Each recorded reply is stored with the name of a request and some arguments. The reply
answers every request that has this name and these arguments, even if the request has further
arguments. A recorded reply can also have one header for each head of a layer. In that case the
argument ``head`` of the request chooses the header and the bytes of one head.
``js/src/client/page/recorded.ts`` looks up the replies.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.pages.packing import packed
from attnviz.server.codec import compressed_json


def recorded(
    request: str,
    arguments: Mapping[str, Any],
    header: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    data: NDArray[np.uint8] | None = None,
    *,
    planes: int = 1,
) -> dict[str, Any]:
    """Return a recorded reply as JSON values.

    Parameters
    ----------
    request, arguments : str, mapping
        Name and arguments that a request must have to get this reply.
    header : mapping or sequence of mappings
        Header of the reply, or one header per head.
    data : ndarray, optional
        Bytes of the reply. With one header per head, the axes are (planes, heads, ...), or (heads,
        ...) if `planes` is 1. The reply for a head is the concatenation of ``data[plane, head]``
        for all planes. A plane has similar bytes of all heads side by side, because such bytes
        compress better.
    planes : int, default 1
        Number of planes in `data`. Numbers above 1 need one header per head.
    """
    reply: dict[str, Any] = {"request": request, "arguments": arguments, "header": header}
    if not isinstance(header, Mapping):
        # Fields that are equal for all heads are stored once.
        first = header[0]
        common = [name for name in first if all(own[name] == first[name] for own in header)]
        reply["common"] = {name: first[name] for name in common}
        reply["header"] = [
            {name: own[name] for name in own if name not in common} for own in header
        ]
    if data is not None:
        reply["data"] = packed(data.tobytes())
        if planes > 1:
            reply["planes"] = planes
    return reply


def recorded_json(request: str, arguments: Mapping[str, Any], content: Any) -> dict[str, Any]:
    """Return a recorded reply whose bytes are `content` as JSON, deflated."""
    data = base64.b64encode(compressed_json(content)).decode("ascii")
    header = {"parts": 1}
    return {"request": request, "arguments": arguments, "header": header, "compressed": data}


def recorded_weights(
    request: str,
    arguments: Mapping[str, Any],
    header: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    weights: NDArray[np.floating],
) -> dict[str, Any]:
    """Return a recorded reply with mean weights of the heads of a layer, (heads, ...).

    Each weight is stored as one byte, which the page decodes to a float32 number. If the weight is
    NaN or infinite, the byte is 0, which the page decodes to NaN. Otherwise, the byte is ``1 +
    round(254 * sqrt(weight / maximum))``, where ``maximum`` is the largest finite weight of the
    head.
    """
    flat = weights.reshape(len(weights), -1)
    finite = np.isfinite(flat)
    values = np.where(finite, np.clip(flat, 0.0, None), 0.0)
    maxima = values.max(axis=1, initial=0.0)
    shares = np.sqrt(values / np.where(maxima > 0, maxima, 1.0)[:, None])
    codes = np.where(finite, 1 + np.rint(254 * shares), 0).astype(np.uint8)
    # Eight digits of a maximum are enough, because the decoded weights are float32 numbers, which
    # are less exact.
    exact = [float(f"{maximum:.8g}") for maximum in maxima]
    return recorded(request, arguments, header, codes) | {"maxima": exact}

"""Encoding of weights for the browser, as bytes and a header with their shape and encoding.

A weight is encoded as one byte or as a float32 number. The one byte is called the code of the
weight. A code is relative to a maximum, which is usually the largest possible weight. Weights can
also be signed numbers, such as differences. ``js/src/client/codec.ts`` decodes the bytes. The tests
in Python and in TypeScript use the same examples, which are in ``tests/fixtures/codec.json``.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.server.protocol import Reply, check_reply_size

Precision = Literal["uint8", "float32"]
Encoding = Literal["uint8-sqrt", "int8-sqrt", "float32", "float32-deflated"]

#: Code of the largest possible weight.
TOP_CODE = 255
#: Code of the largest possible absolute value of signed numbers.
TOP_SIGNED_CODE = 127
# Factor by which weights may exceed the largest possible weight, because of rounding in the softmax
# or in bfloat16.
_ROUNDING = 1.005
# Float32 weights are deflated only if at least this share of them is zero. If fewer are zero,
# deflating hardly reduces their size. Weights with a causal mask have about 50 % zeros.
_DEFLATED_ZEROS = 0.25
# Float32 weights are deflated only if their total size in bytes is at least this.
_DEFLATED_FROM = 4096

# Largest errors of a decoded weight, as shares of the maximum. `UINT8_SQRT_ERROR` is for codes from
# 0 to 255, and `INT8_SQRT_ERROR` for codes of signed numbers from -127 to 127. A code is
# proportional to the square root of the weight. Therefore small weights, which are the most
# frequent, have the smallest errors. The error is largest halfway between the two highest codes.
UINT8_SQRT_ERROR = (TOP_CODE**2 - (TOP_CODE - 0.5) ** 2) / TOP_CODE**2
INT8_SQRT_ERROR = (TOP_SIGNED_CODE**2 - (TOP_SIGNED_CODE - 0.5) ** 2) / TOP_SIGNED_CODE**2


def compressed_json(content: Any) -> bytes:
    """Return `content` as JSON, compressed with zlib."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"))


class EncodedHeader(TypedDict):
    """Header of a reply with encoded weights in its buffer.

    Attributes
    ----------
    shape : list of int
        Number of matrices, of their rows and of their columns. A matrix belongs to one head, or to
        the mean of several heads. The buffer is in row-major order.
    encoding : {"uint8-sqrt", "int8-sqrt", "float32", "float32-deflated"}
        Bytes of a weight w, with m for `maximum`. "uint8-sqrt": one byte, ``round(255 sqrt(w /
        m))``. "int8-sqrt": one signed byte, ``sign(w) round(127 sqrt(abs(w) / m))``. "float32":
        four bytes. "float32-deflated": the same four bytes in another order, compressed with zlib.
        The first bytes of all weights are followed by the second bytes of all weights, and so on.
    maximum : float
        Upper bound of the weights, or of their absolute values if they are signed. It is usually 1
        for normalized weights. For numbers other than weights, such as the strongest keys, it is
        the upper bound of the weights from which they are computed.
    error : float
        Largest absolute error of a decoded weight, or an upper bound of it. For other numbers, it
        is that of the weights from which they are computed.
    """

    shape: tuple[int, int, int]
    encoding: Encoding
    maximum: float
    error: float


def not_finite_error(label: str, which: str) -> ValueError:
    """Create the error for weights that are NaN or infinite.

    In the message, `label` names all weights, and `which` names those that are NaN or infinite.
    """
    return ValueError(
        f"{label}: some weights are NaN or infinite ({which}). The model's queries or keys are NaN "
        "or infinite, or the record was changed. Run the model in float32, or leave the layer out "
        "with include_layers=[...]."
    )


def check_weights(
    weights: NDArray[np.float32], maximum: float = 1.0, *, signed: bool = False, label: str
) -> None:
    """Raise ValueError if a weight is NaN, infinite, too large, or negative without `signed`.

    Parameters
    ----------
    weights : ndarray
        Weights to check, float32, (heads, rows, columns).
    maximum : float, default 1.0
        Largest possible weight. If `signed`, largest possible absolute value.
    signed : bool, default False
        Whether weights may be negative.
    label : str
        Name of the weights in error messages.

    Examples
    --------
    >>> check_weights(np.array([[[-1.0]]], np.float32), label="these")
    Traceback (most recent call last):
    ValueError: these: some weights are negative. Attention weights must not be negative.
    """
    # If a weight is NaN, both numbers are NaN.
    smallest, largest = weights.min(initial=0.0), weights.max(initial=0.0)
    if not (np.isfinite(smallest) and np.isfinite(largest)):
        head = int(np.argwhere(~np.isfinite(weights))[0][0])
        raise not_finite_error(label, f"the first at index {head} of the requested heads")
    if smallest < 0 and not signed:
        raise ValueError(
            f"{label}: some weights are negative. Attention weights must not be negative."
        )
    largest = max(largest, -smallest)
    if largest > maximum * _ROUNDING:
        raise ValueError(
            f"{label}: some numbers have the absolute value {largest:.4g}, which exceeds the "
            f"maximum {maximum:.4g} of the stack. If the record was changed, create it again. For "
            "weights above 1, create it with normalized=False."
        )


def encode(
    weights: NDArray[np.float32],
    precision: Precision,
    maximum: float = 1.0,
    *,
    signed: bool = False,
    label: str = "weights",
) -> Reply:
    r"""Encode weights, and return a reply with an `EncodedHeader`.

    Parameters
    ----------
    weights : ndarray
        Weights to encode, float32, (heads, rows, columns). A weight may exceed `maximum` only by
        rounding.
    precision : {"uint8", "float32"}
        "uint8" encodes each weight as one byte. "float32" keeps the exact weights.
    maximum : float, default 1.0
        Largest possible weight. If `signed`, largest possible absolute value.
    signed : bool, default False
        Whether weights may be negative.
    label : str
        Name of the weights in error messages.

    Raises
    ------
    ValueError
        If a weight is NaN, infinite or larger than `maximum`. If a weight is negative and `signed`
        is False.

    Examples
    --------
    >>> encode(np.array([[[0.0, 0.25, 1.0]]], np.float32), "uint8").data
    b'\x00\x80\xff'
    >>> encode(np.array([[[0.0, -0.25, 1.0]]], np.float32), "uint8", signed=True).data
    b'\x00\xc0\x7f'
    """
    check_weights(weights, maximum, signed=signed, label=label)
    error = 0.0
    encoding: Encoding = "float32"
    if precision == "float32":
        exact = np.ascontiguousarray(weights, dtype="<f4")
        data = exact.tobytes()
        zeros = exact.size - np.count_nonzero(exact)
        if exact.nbytes >= _DEFLATED_FROM and zeros >= _DEFLATED_ZEROS * exact.size:
            encoding = "float32-deflated"
            planes = np.ascontiguousarray(exact.reshape(-1, 1).view(np.uint8).T)
            data = zlib.compress(planes.tobytes(), 1)
    else:
        encoding = "int8-sqrt" if signed else "uint8-sqrt"
        codes, error = encode_bytes(weights, maximum, signed=signed)
        data = codes.tobytes()
    header: EncodedHeader = {
        "shape": weights.shape,
        "encoding": encoding,
        "maximum": maximum,
        "error": error,
    }
    return Reply(header, data)


def encode_numbers(numbers: NDArray[Any], maximum: float) -> Reply:
    """Return a reply with other numbers than weights, (matrices, rows, columns), as float32.

    `maximum` is that of the weights from which they are computed. Raise ValueError if the numbers
    do not fit into a reply.
    """
    check_reply_size("the numbers", 4 * numbers.size, "Request fewer rows or keys.")
    header = EncodedHeader(shape=numbers.shape, encoding="float32", maximum=maximum, error=0.0)
    return Reply(header, numbers.astype("<f4").tobytes())


def encode_bytes(
    weights: NDArray[np.float32], maximum: float, *, signed: bool = False
) -> tuple[NDArray[np.uint8], float]:
    """Encode each weight as one byte (see `EncodedHeader`). Return the bytes and their error bound.

    The caller must check the weights with `check_weights`.

    >>> encode_bytes(np.array([0.0, 0.25, 1.0], np.float32), 1.0)[0]
    array([  0, 128, 255], dtype=uint8)
    """
    error = (INT8_SQRT_ERROR if signed else UINT8_SQRT_ERROR) * maximum
    if maximum <= 0:
        return np.zeros(weights.shape, np.uint8), error
    # Use `out=`, which is faster because new arrays would not be in the processor's cache.
    sizes = np.abs(weights) if signed else weights
    roots = np.clip(sizes if maximum == 1 else sizes / maximum, 0.0, 1.0)
    np.sqrt(roots, out=roots)
    roots *= TOP_SIGNED_CODE if signed else TOP_CODE
    np.rint(roots, out=roots)
    if signed:
        signs: NDArray[np.uint8] = np.copysign(roots, weights).astype(np.int8).view(np.uint8)
        return signs, error
    codes: NDArray[np.uint8] = roots.astype(np.uint8)
    return codes, error


def decode_bytes(
    codes: NDArray[np.uint8], maximum: float, *, signed: bool = False
) -> NDArray[np.float64]:
    """Decode the numbers that `encode_bytes` encoded."""
    roots = codes.view(np.int8) / TOP_SIGNED_CODE if signed else codes / TOP_CODE
    numbers: NDArray[np.float64] = maximum * np.copysign(roots**2, roots)
    return numbers


def decode(reply: Reply) -> NDArray[np.float32]:
    """Decode the weights of a reply with an `EncodedHeader`.

    Returns
    -------
    ndarray
        float32, (heads, rows, columns).
    """
    header, data = reply.header, reply.data or b""
    if header["encoding"] == "float32":
        values: NDArray[Any] = np.frombuffer(data, "<f4")
    elif header["encoding"] == "float32-deflated":
        planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(4, -1)
        values = np.ascontiguousarray(planes.T).view("<f4")
    else:
        codes, signed = np.frombuffer(data, np.uint8), header["encoding"] == "int8-sqrt"
        values = decode_bytes(codes, header["maximum"], signed=signed)
    return values.reshape(header["shape"]).astype(np.float32)

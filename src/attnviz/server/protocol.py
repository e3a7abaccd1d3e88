"""Base of the request protocol: requests are dataclasses, and replies have a limited size.

A request arrives as a name and JSON arguments, and is converted to the dataclass with this name.
The fields of the dataclass are the arguments. ``scripts/protocol.py`` writes the TypeScript types
of requests and replies to ``js/src/client/protocol.ts``.
"""

from __future__ import annotations

import reprlib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

import msgspec

from attnviz.record.stack import AttentionStack

#: Maximum size of the buffer of a reply in bytes. Databricks limits widget messages to 5 MB, and
#: other programs that show notebooks are slow with large messages. Sending one megabyte takes about
#: 40 ms. After this time, other messages can be sent before the next reply.
MAX_REPLY_BYTES = 1_000_000


Range = tuple[int, int]

_Server = TypeVar("_Server")
_AnyServer_contra = TypeVar("_AnyServer_contra", contravariant=True)
_Class = TypeVar("_Class")


@dataclass(frozen=True)
class Reply:
    """Reply to a request: a header with JSON values, and optionally a buffer of bytes."""

    header: Mapping[str, Any]
    data: bytes | None = None


class PartHeader(TypedDict):
    """Header of a reply with one part of some data in its buffer.

    Data that are too large for one reply are divided into parts, which are requested separately.

    Attributes
    ----------
    parts : int
        Number of parts of the data.
    """

    parts: int


class Request(Protocol[_AnyServer_contra]):
    """Interface of a request, which is a frozen dataclass. Its fields are the arguments."""

    def answer(self, server: _AnyServer_contra) -> Reply:
        """Return the reply."""
        ...


class Requests(Generic[_Server]):
    """Registry of the requests that a class of servers answers.

    Parameters
    ----------
    hint : str
        Last sentence of the error message for a request with an unknown name.

    Attributes
    ----------
    classes : dict
        Dataclass of each request. The keys are the names of the requests.
    headers : dict
        Types that the header of the reply can have. The keys are the names of the requests.
    live : list of str
        Names of the requests that only a kernel answers. An exported page answers all others.
    """

    def __init__(self, hint: str) -> None:
        self._hint = hint
        self.classes: dict[str, type[Request[_Server]]] = {}
        self.headers: dict[str, tuple[type, ...]] = {}
        self.live: list[str] = []

    def add(self, name: str, *headers: type, live: bool = False) -> Callable[[_Class], _Class]:
        """Return a class decorator that registers the dataclass of a request as `name`.

        `headers` are the types that the header of the reply can have. If `live`, an exported page
        does not answer the request.
        """

        def register(request: _Class) -> _Class:
            self.classes[name] = typing.cast("type[Request[_Server]]", request)
            self.headers[name] = headers
            self.live += [name] * live
            return request

        return register

    def request(self, name: str, arguments: Mapping[str, Any]) -> Request[_Server]:
        """Create the dataclass of the request `name`, with `arguments` as fields.

        Raise ValueError if an argument is invalid or the name is unknown.
        """
        if name not in self.classes:
            raise ValueError(f"request {reprlib.repr(name)} is unknown. {self._hint}")
        return parse_dataclass(self.classes[name], arguments, f"request {name!r}")


def parse_dataclass(kind: type[_Class], arguments: Mapping[str, Any], name: str = "") -> _Class:
    """Create a dataclass from JSON arguments.

    Arguments without a field are ignored. Raise ValueError if an argument is missing or has the
    wrong type. `name` is the name of `arguments` in the message.
    """
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        # The message of msgspec is, for example, "Expected `int`, got `str` - at `$.layer`". Remove
        # the "$.", which does not help readers.
        message = str(error).replace("`$.", "`").replace("`$[", "`[")
        raise ValueError(f"{name}: {message}" if name else message) from None


def range_slice(name: str, value: Range, size: int) -> slice:
    """Convert a half-open range of queries or keys to a slice.

    Raise ValueError if the range is empty or not within ``range(size)``.
    """
    start, stop = value
    if not 0 <= start < stop <= size:
        raise ValueError(f"{name}=[{start}, {stop}] must satisfy 0 <= start < stop <= {size}")
    return slice(start, stop)


def check_heads(stack: AttentionStack, layer: int, heads: Sequence[int]) -> tuple[int, list[int]]:
    """Return the layer and its heads as non-negative numbers. Negative numbers count from the end.

    Raise ValueError if `heads` is empty or has duplicates, and IndexError if the layer or a head
    does not exist.
    """
    layer_number = stack.layer_number(layer)
    if not heads:
        raise ValueError("heads is empty. Pass at least one head.")
    # Each head is looked up once, because a request may repeat a head a million times.
    head_numbers = [stack.head_number(layer_number, head) for head in dict.fromkeys(heads)]
    if len(set(head_numbers)) < len(heads):
        raise ValueError(f"heads={reprlib.repr(list(heads))} must not contain duplicates")
    return layer_number, head_numbers


def check_reply_size(what: str, size: int, hint: str) -> None:
    """Raise ValueError if `size`, in bytes, exceeds `MAX_REPLY_BYTES`.

    In the error message, `what` names the content, and `hint` says how to request less.
    """
    if size > MAX_REPLY_BYTES:
        raise ValueError(
            f"{what} have {size} bytes, more than the {MAX_REPLY_BYTES} of a reply. {hint}"
        )

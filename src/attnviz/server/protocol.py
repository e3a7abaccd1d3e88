"""Requests as dataclasses: validation of their arguments, and limits on replies.

``scripts/protocol.py`` writes their TypeScript types to ``js/src/client/protocol.ts``.
"""

from __future__ import annotations

import operator
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import Steps

__all__ = [
    "MAX_REPLY_BYTES",
    "MOST_ENTRIES",
    "PartHeader",
    "Range",
    "Reply",
    "Request",
    "Requests",
    "checked",
    "heads_of",
    "part_of",
    "refuse_large",
    "span",
]

#: Maximum size of a reply. Databricks limits widget messages to 5 MB, and other hosts slow down
#: well below that. One megabyte takes about 40 ms, and other messages are sent in between.
MAX_REPLY_BYTES = 1_000_000

#: Maximum length of a list in a request: more than the number of heads of any model.
MOST_ENTRIES = 100_000

Range = tuple[int, int]

_Server = TypeVar("_Server")
_AnyServer_contra = TypeVar("_AnyServer_contra", contravariant=True)
_Class = TypeVar("_Class")


@dataclass(frozen=True)
class Reply:
    """Reply to a request: a header of JSON values and at most one buffer."""

    header: Mapping[str, Any]
    data: bytes | None = None


class PartHeader(TypedDict):
    """Header of a reply that is sent in parts.

    Attributes
    ----------
    parts : int
        Number of parts.
    """

    parts: int


class Request(Protocol[_AnyServer_contra]):
    """Interface of a request: a frozen dataclass whose fields are the arguments."""

    def answer(self, server: _AnyServer_contra) -> Reply | Steps[Reply]:
        """Return the reply, or a generator that computes it in steps."""
        ...


class Requests(Generic[_Server]):
    """Registry of the requests of a server class, by name.

    Attributes
    ----------
    classes, headers : dict
        Dataclass of each request, and the possible types of its reply's header.
    """

    def __init__(self) -> None:
        self.classes: dict[str, type[Request[_Server]]] = {}
        self.headers: dict[str, tuple[type, ...]] = {}

    def add(self, name: str, *headers: type) -> Callable[[_Class], _Class]:
        """Return a class decorator that registers a request under `name`."""

        def taken(request: _Class) -> _Class:
            self.classes[name] = typing.cast("type[Request[_Server]]", request)
            self.headers[name] = headers
            return request

        return taken

    def request(self, name: str, arguments: Mapping[str, Any]) -> Request[_Server]:
        """Return a request after checking the types of its arguments."""
        return checked(self.classes[name], arguments)


def checked(request: type[_Class], arguments: Mapping[str, Any], within: str = "") -> _Class:
    """Create a dataclass from JSON arguments. Ignore arguments that it has no field for."""
    if not isinstance(arguments, Mapping):
        raise TypeError(f"{within[:-1] or 'arguments'}={reprlib.repr(arguments)} must be a mapping")
    values: dict[str, Any] = {}
    hints = _hints(request)  # type: ignore[arg-type]  # a class is hashable
    for each in fields(request):  # type: ignore[arg-type]  # a dataclass, as every request is
        name = within + each.name
        if each.name in arguments:
            values[each.name] = _value(name, hints[each.name], arguments[each.name])
        elif each.default is MISSING:
            raise ValueError(f"{name!r} is missing")
    return request(**values)


@cache
def _hints(request: type) -> dict[str, Any]:
    return typing.get_type_hints(request)


def _value(name: str, kind: Any, given: Any) -> Any:
    """Return an argument converted to its declared type."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _one_of(name, options, given)
    if origin is Literal:
        for option in options:
            if type(option) is type(given) and option == given:
                return given
        raise ValueError(f"{name}={reprlib.repr(given)} must be {_either(map(_written, options))}")
    if origin is tuple:
        return _values(name, options, given)
    if is_dataclass(kind) and isinstance(kind, type):
        return checked(kind, given, f"{name}.")
    return _plain(name, kind, given)


def _one_of(name: str, options: tuple[Any, ...], given: Any) -> Any:
    reasons = []
    for option in options:
        if option is type(None):
            if given is None:
                return None
            continue
        try:
            return _value(name, option, given)
        except (TypeError, ValueError) as error:
            reasons.append(error)
    raise reasons[-1]


def _values(name: str, options: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise TypeError(f"{name}={reprlib.repr(given)} must be a list")
    values = tuple(given)
    if len(values) > MOST_ENTRIES:
        raise ValueError(
            f"{name} has {len(values):,} entries, but at most {MOST_ENTRIES:,} are allowed"
        )
    if options == (int, Ellipsis) and all(type(each) is int for each in values):
        # Fast path for long lists, such as heads.
        return values
    if options[-1] is Ellipsis:
        return tuple(_value(name, options[0], each) for each in values)
    if len(values) != len(options):
        raise ValueError(f"{name}={reprlib.repr(list(values))} must be {len(options)} values")
    return tuple(_value(name, *each) for each in zip(options, values, strict=True))


def _plain(name: str, kind: Any, given: Any) -> Any:
    if kind is int:
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise TypeError(f"{name}={reprlib.repr(given)} must be a whole number")
        return operator.index(given)
    origin = typing.get_origin(kind) or kind
    words = {str: "a string", bool: "true or false"}
    if not isinstance(given, origin):
        wanted = words.get(kind, "a mapping")
        raise TypeError(f"{name}={reprlib.repr(given)} must be {wanted}")
    return given


def _written(option: Any) -> str:
    return f'"{option}"' if isinstance(option, str) else str(option)


def _either(options: typing.Iterable[str]) -> str:
    *first, last = options
    return f"{', '.join(first)} or {last}" if first else last


def span(name: str, given: Range, size: int) -> slice:
    """Return a range of queries or keys as a slice. Raise ValueError if it is out of bounds."""
    start, stop = given
    if not 0 <= start < stop <= size:
        raise ValueError(f"{name}=[{start}, {stop}] must satisfy 0 <= start < stop <= {size}")
    return slice(start, stop)


def heads_of(stack: AttentionStack, layer: int, heads: Sequence[int]) -> tuple[int, list[int]]:
    """Return the numbers of a layer and its heads.

    Raise ValueError if `heads` is empty or has duplicates.
    """
    number = stack.layer_number(layer)
    if not heads:
        raise ValueError("heads is empty. Pass at least one head.")
    found = [stack.head_number(number, head) for head in heads]
    if len(set(found)) < len(found):
        raise ValueError(f"heads={reprlib.repr(list(heads))} must not contain duplicates")
    return number, found


def refuse_large(what: str, size: int, hint: str) -> None:
    """Raise ValueError if an answer of `size` bytes exceeds a reply."""
    if size > MAX_REPLY_BYTES:
        raise ValueError(
            f"{what} have {size} bytes, more than the {MAX_REPLY_BYTES} of a reply. {hint}"
        )


def part_of(content: bytes, part: int, of: str) -> tuple[bytes, int]:
    """Return part number `part` (from 0) of `content`, and the number of parts."""
    parts = max(1, -(-len(content) // MAX_REPLY_BYTES))
    if not 0 <= part < parts:
        raise ValueError(f"part={part} of {of} must be from 0 to {parts - 1}")
    return content[part * MAX_REPLY_BYTES : (part + 1) * MAX_REPLY_BYTES], parts

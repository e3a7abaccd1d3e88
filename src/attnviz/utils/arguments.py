"""Validation of arguments (numbers, names, slices, paths) and formatting of values in messages."""

from __future__ import annotations

import difflib
import inspect
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

#: Maximum number of items in an argument that is a list of numbers, such as layers or heads. Models
#: have far fewer layers and heads.
MAX_NUMBERS = 100_000

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 24
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 400


def short_repr(value: Any) -> str:
    """Return ``repr(value)`` for an error message, shortened if it is long.

    >>> short_repr([0, 5]), len(short_repr(list(range(10**6)))) < 200
    ('[0, 5]', True)
    """
    try:
        return _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - __repr__ of a foreign object may raise anything
        return f"<{type(value).__name__}>"


def function_name(function: Any) -> str:
    """Return the name of a function, or "the function" for a lambda or a partial.

    >>> function_name(short_repr), function_name(lambda x: x)
    ('short_repr', 'the function')
    """
    name = str(getattr(function, "__name__", ""))
    return name if name.isidentifier() else "the function"


def given_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of `arguments` whose values differ from the defaults of `function`.

    Parameters without a default are left out. If a name is not a parameter of `function`, its
    default is taken to be None. A function can pass its own arguments as ``locals()``, if it does
    so in its first statement. Later, ``locals()`` would also contain local variables.

    >>> given_arguments(whole_number, {"minimum": None, "maximum": 5, "hint": ""})
    {'maximum': 5}
    """
    parameters = inspect.signature(function).parameters
    given = {}
    for name, value in arguments.items():
        default = parameters[name].default if name in parameters else None
        if default is inspect.Parameter.empty:
            continue
        # Compare a value only with a default of the same type. The comparison of an array would
        # return an array instead of a bool, but no default is an array.
        if value is not default and not (type(value) is type(default) and value == default):
            given[name] = value
    return given


def refuse_arguments(arguments: Iterable[str], reason: str) -> None:
    """Raise TypeError if `arguments` is not empty.

    `arguments` are the names of arguments that the caller passed although they have no effect.
    `reason` is the sentence in the message that explains why, without a full stop.
    """
    names = ", ".join(arguments)
    if names:
        raise TypeError(f"{reason}. Omit {names}.")


def did_you_mean(
    name: str, names: Iterable[str], other_names: Mapping[str, str] | None = None
) -> str:
    """Return a hint for the end of an error message about the unknown `name`.

    `other_names` maps names that other libraries use to the names in attnviz. If it contains
    `name`, the hint is the name in attnviz. Otherwise, the hint is the most similar of `names`. If
    no name is similar, the result is "".

    >>> did_you_mean("head", ["heads", "layer"]), did_you_mean("x", ["heads", "layer"])
    ("; did you mean 'heads'?", '')
    """
    meant = (other_names or {}).get(name)
    near = [meant] if meant else difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def whole_number(
    name: str, value: Any, minimum: int | None = None, maximum: int | None = None, *, hint: str = ""
) -> int:
    """Return `value` as an int. Check that it is a whole number from `minimum` to `maximum`.

    If `minimum` or `maximum` is None, this limit is not checked. Raise TypeError if `value` is not
    a whole number, or ValueError if it is out of range. `name` is the name of the argument. The
    message ends with `hint`.

    >>> whole_number("queries", 64, 1)
    64
    >>> whole_number("queries", 0, 1, hint="the number of queries to measure")
    Traceback (most recent call last):
    ValueError: queries=0 must be at least 1, the number of queries to measure
    """
    hint = f", {hint}" if hint else ""
    number = _as_int(value)
    if number is None:
        raise TypeError(f"{name}={short_repr(value)} must be a whole number{hint}")
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        bounds = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise ValueError(f"{name}={short_repr(number)} must be {bounds}{hint}")
    return number


def as_integer(name: str, value: Any) -> int:
    """Return a whole number or a bool, also of numpy or torch, as an int.

    Raise TypeError if `value` is something else, or ValueError if it does not fit in 64 bits.
    `name` is its name in the message.

    >>> as_integer("ids[0]", True)
    1
    """
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    number = int(value) if isinstance(value, bool) else _as_int(value)
    if number is None:
        raise TypeError(f"{name}={short_repr(value)} must be a whole number")
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{name}={short_repr(value)} must fit in 64 bits")
    return number


def set_fields(instance: object, **values: Any) -> None:
    """Set attributes of a frozen dataclass, in its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def whole_numbers(name: str, value: Any, *, hint: str = "such as [0, 5]") -> tuple[int, ...]:
    """Return `value` as a tuple of ints.

    Raise TypeError if it is not a list or other iterable of whole numbers, or ValueError if it has
    more than `MAX_NUMBERS` items. The message contains `hint`.

    >>> whole_numbers("layers", range(3))
    (0, 1, 2)
    """
    message = f"{name}={short_repr(value)} must be a list of whole numbers, {hint}"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(message)
    numbers = []
    # Read at most one number more than allowed, because the iterable may be infinite.
    for item in islice(iter(value), MAX_NUMBERS + 1):
        number = _as_int(item)
        if number is None:
            raise TypeError(f"{message}; {short_repr(item)} is not one")
        numbers.append(number)
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(
            f"{name}={short_repr(value)} has more than {MAX_NUMBERS:,} numbers, {hint}"
        )
    return tuple(numbers)


def as_list(value: Any) -> Any:
    """Convert a single whole number to a list. Return other values unchanged.

    Other values are not checked. Pass the result to `whole_numbers`.

    >>> as_list(3), as_list([0, 3])
    ([3], [0, 3])
    """
    number = _as_int(value)
    return value if number is None else [number]


def resolve_negative(number: Any, numbers: Sequence[int]) -> Any:
    """Replace a negative number by the element of `numbers` that it selects from the end.

    A negative number out of range and all other values are returned unchanged. The caller checks
    whether they are valid.

    >>> [resolve_negative(number, [0, 4, 8]) for number in (-1, 4, -9)]
    [8, 4, -9]
    """
    index = _as_int(number)
    if index is None or not -len(numbers) <= index < 0:
        return number
    return numbers[index]


def existing_number(name: str, value: Any, valid: Sequence[int], owner: str) -> int:
    """Return the item of `valid` that is equal to `value`.

    If no item is equal to a negative `value`, it selects an item from the end, as in Python. Raise
    IndexError if `value` selects no item. `name` is the name of the argument. In the message,
    `owner` precedes the list of the items of `valid`.

    >>> existing_number("layer", -1, [0, 4, 8], "stack 'self' has layers")
    8
    >>> existing_number("layer", 5, [0, 4, 8], "stack 'self' has layers")
    Traceback (most recent call last):
    IndexError: layer=5: stack 'self' has layers 0, 4, 8
    """
    return _existing(name, value, [value], valid, owner)[0]


def existing_numbers(name: str, values: Any, valid: Sequence[int], owner: str) -> tuple[int, ...]:
    """Return the items of `valid` that one number or a list of numbers selects.

    `existing_number` describes the selection and the arguments. Raise IndexError if `values` is
    empty, or an item does not exist.
    """
    return _existing(name, values, whole_numbers(name, as_list(values)), valid, owner)


def _existing(
    name: str, given: Any, values: Sequence[Any], valid: Sequence[int], owner: str
) -> tuple[int, ...]:
    numbers = [value if value in valid else resolve_negative(value, valid) for value in values]
    if not numbers or any(number not in valid for number in numbers):
        raise IndexError(f"{name}={short_repr(given)}: {owner} {format_numbers(valid)}")
    return tuple(map(int, numbers))


def existing_name(name: str, value: Any, valid: Iterable[str], owner: str) -> str:
    """Return `value`, or raise KeyError if it is not in `valid`.

    `name` and `owner` are parts of the message, as in `existing_number`.

    >>> existing_name("stack", "vision", ["self", "cross"], "this record has")
    Traceback (most recent call last):
    KeyError: "stack='vision': this record has 'self', 'cross'"
    """
    names = tuple(valid)
    if value not in names:
        raise KeyError(f"{name}={short_repr(value)}: {owner} {', '.join(map(short_repr, names))}")
    return str(value)


def _as_int(value: Any) -> int | None:
    """Return `value` as an int, or None if it is not a whole number, such as a bool or a float."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def resolve_slice(argument: str, value: slice | None, size: int) -> slice:
    """Convert a slice of an axis of length `size` to one with non-negative start and stop.

    None selects the whole axis. Raise TypeError if `value` is not a slice, or ValueError if it has
    a step other than 1.
    """
    if value is None:
        return slice(0, size)
    if not isinstance(value, slice):
        raise TypeError(f"{argument} must be a slice such as slice(0, 64); got {value!r}")
    start, stop, step = value.indices(size)
    if step != 1:
        raise ValueError(
            f"{argument}={value!r} has a step. Pass a slice without a step and index the result."
        )
    return slice(start, max(start, stop))


def format_numbers(numbers: Sequence[int]) -> str:
    """Return numbers as text. At least three consecutive numbers become ``first to last``.

    >>> format_numbers([0, 1, 2, 4, 5]), format_numbers([0, 4, 8])
    ('0 to 2, 4, 5', '0, 4, 8')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(word for each in words for word in each)


def format_named(name: str, numbers: Sequence[int]) -> str:
    """Return a name, in the plural for several numbers, followed by the numbers.

    >>> format_named("head", [3]), format_named("layer", [0, 1, 2])
    ('head 3', 'layers 0 to 2')
    """
    return f"{name}{'s' if len(numbers) > 1 else ''} {format_numbers(numbers)}"


def encodable(text: str) -> str:
    r"""Return `text` with ``?`` in place of lone surrogates, which UTF-8 cannot encode.

    >>> encodable("é\ud800")
    'é?'
    """
    return text.encode("utf-8", "replace").decode()


def check_encodable(argument: str, text: Any) -> None:
    """Raise TypeError if `text` is not a string, or ValueError if UTF-8 cannot encode it.

    `argument` is its name in the message.
    """
    if not isinstance(text, str):
        raise TypeError(f"{argument}={short_repr(text)} must be a string")
    if encodable(text) != text:
        raise ValueError(
            f"{argument}={short_repr(text)} has a lone surrogate, which UTF-8 cannot encode. "
            'Replace it, for example with text.encode("utf-8", "replace").decode().'
        )


def as_path(argument: str, value: Any, kind: str) -> Path:
    """Convert a string or path-like object to a path, with ``~`` replaced by the home folder.

    `argument` is the name of the argument, and `kind` is ``"folder"`` or ``"file"``. Both are used
    in messages only. Raise TypeError if `value` is not a path, or ValueError if it is empty, has a
    null character, or cannot be encoded for the file system.

    >>> as_path("spool", "long/0", "folder").as_posix()
    'long/0'
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(
            f"{argument} must be the path of a {kind}, a string or a pathlib.Path; got "
            f"{type(value).__name__}"
        )
    text = os.fspath(value)
    if not text:
        # Reject "", which pathlib would convert to the working directory.
        raise ValueError(f"{argument}='' is empty. Pass the path of a {kind}.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        check_encodable(argument, text)
        raise
    if "\0" in text:
        raise ValueError(f"{argument}={text!r} has a null character, unlike any name of a {kind}")
    return Path(text).expanduser()

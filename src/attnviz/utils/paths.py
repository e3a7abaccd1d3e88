"""Paths as arguments: what no file can be called is refused by the argument's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["as_path"]


def as_path(argument: str, given: Any, kind: str) -> Path:
    """Read the path that somebody gave.

    Parameters
    ----------
    argument : str
        The argument's name.
    given : path-like
        What was given for it.
    kind : str
        What lies there: ``"folder"``, ``"file"``, ...

    Returns
    -------
    Path
        With the home folder in the place of ``~``.

    Raises
    ------
    TypeError
        If it is no path.
    ValueError
        If it is empty, or nothing can have such a name.

    Examples
    --------
    >>> as_path("spool", "long/0", "folder").as_posix()
    'long/0'
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise TypeError(
            f"{argument} must be the path of a {kind}, a text or a pathlib.Path; got "
            f"{type(given).__name__}"
        )
    said = os.fspath(given)
    if not said:
        # pathlib takes it for the working directory.
        raise ValueError(f"{argument}='' is no name of a {kind}; give one")
    try:
        encoded = os.fsencode(said)
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument}={said!r} cannot be the name of a {kind}: {error}") from error
    if b"\0" in encoded:
        raise ValueError(
            f"{argument}={said!r} cannot be the name of a {kind}: it has a null character"
        )
    try:
        return Path(said).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{argument}={said!r}: no home folder is known for {Path(said).parts[0]!r}; write the "
            f"path in full, or ./ before a {kind} of that name"
        ) from error

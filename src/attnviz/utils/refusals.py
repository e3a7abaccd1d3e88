"""Short tracebacks in notebooks for calls that attnviz refuses.

A message about an argument is lost below a hundred lines of attnviz's own code. In IPython, a
refusal therefore has only the traceback of the user's code. All other errors keep their traceback,
and so do refusals outside of IPython, where a traceback takes a few lines.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from attnviz.utils.host import ipython

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RAISE = dis.opmap["RAISE_VARARGS"]


def short_refusals(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a public function, so that its refusals have short tracebacks in IPython.

    Examples
    --------
    >>> @short_refusals
    ... def half(number):
    ...     return number / 2
    >>> half(3)
    1.5
    """

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # IPython does not show frames with this variable.
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if ipython() is None or not is_refusal(error):
                raise
            cause = error.__cause__
            reason = str(cause).strip().partition("\n")[0] if cause else ""
            if reason and reason not in str(error):
                error.add_note(f"({type(cause).__name__}: {reason})")
            refusal = error.with_traceback(None)
        # Outside of the block, because IPython would show the traceback of the handled error, too.
        refusal.__cause__ = refusal.__context__ = None
        try:
            raise refusal
        finally:
            # Otherwise the error and this frame would keep each other, and the arguments, alive.
            del refusal

    return called


def is_refusal(error: Exception) -> bool:
    """Whether a raise statement of attnviz, or a trait of a view, has raised an error.

    Errors of other statements are faults of attnviz or of another library.
    """
    raised = error.__traceback__
    if raised is None:
        return False
    while raised.tb_next is not None:
        raised = raised.tb_next
    package = str(raised.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "traitlets" or (package == "attnviz" and _is_raised(raised))


def _is_raised(raised: TracebackType) -> bool:
    return raised.tb_frame.f_code.co_code[raised.tb_lasti] == _RAISE

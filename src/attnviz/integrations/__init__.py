"""Experiment trackers: a view, or attention during training, goes into the run that is under way.

Nothing here imports a tracker: who has a run has loaded its package.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

# The names are in `__init__.pyi`, with the modules that define them.
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

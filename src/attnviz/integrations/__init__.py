"""Experiment trackers: log a view, or attention during training, to a run.

This package imports no tracker: the package of an active run is already loaded.
"""

from __future__ import annotations

import lazy_loader

# `__init__.pyi` lists the public names and their modules.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

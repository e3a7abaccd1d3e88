"""Experiment trackers: a view, or attention during training, goes into the run that is under way.

Nothing here imports a tracker: who has a run has loaded its package.
"""

from __future__ import annotations

import lazy_loader

# The names are in `__init__.pyi`, with the modules that define them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

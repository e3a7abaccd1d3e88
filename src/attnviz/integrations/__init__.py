"""Integrations with experiment trackers, such as MLflow and Weights & Biases.

A run is an object with which a tracker records one experiment. `log` logs a view to a run.
`AttentionCallback` logs attention during training. This package does not import the packages of
trackers. If a run is active, the user's code has already imported the package of its tracker.
"""

from __future__ import annotations

import lazy_loader

# `__init__.pyi` lists the public names and the modules that define them. A module is imported when
# one of its names is used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

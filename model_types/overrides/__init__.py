"""Exceptions of single model types to the general rules, as data.

Keys of an entry:

config : changes to the tiny configuration, with a dict for each part. The entry of the model type
    of a part applies to the part, too
class : the class to build instead of the base model
inputs : arguments that are added or replaced. None removes one
left_out : fields of the output that are called attentions and contain no attention weights
sharpen : False if sharpening only increases rounding errors
skip : the reason why the type is not built
heads : an entry for single classes, by their names

An input is written as its kind and shape: ("normal", 1, 3), ("ids", 1, 9), ("small", 1, 9) for
numbers below 4, ("ones", 1, 9), ("zeros", 1, 9), ("true", 1, 9), or ("exactly", values).
"""

from __future__ import annotations

from typing import Any

from model_types.overrides.audio import AUDIO
from model_types.overrides.both import BOTH
from model_types.overrides.text import TEXT
from model_types.overrides.vision import VISION

__all__ = ["OVERRIDES"]

OVERRIDES: dict[str, dict[str, Any]] = {**TEXT, **VISION, **AUDIO, **BOTH}

"""Data for model types that the general rules in `sizes` and `inputs` do not fit.

Keys of an entry:

config : settings of the tiny configuration, with a dict for each part. If a part is a model type
    itself, the entry of this type also applies
class : class to build instead of the base model
inputs : arguments of the model to add or replace. None removes an argument
left_out : fields of the output with "attentions" in their name that contain no attention weights
sharpen : False if sharpening would only increase rounding errors
skip : reason why the model type is not built
heads : entries for single classes by name

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

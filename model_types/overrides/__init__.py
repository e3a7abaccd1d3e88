"""Data for model types that the general rules in `sizes` and `inputs` do not fit.

Keys of an entry:

config : settings of the tiny configuration. A part, such as "text_config", has a dict of settings.
    If the model type of the part has an entry here, the "config" of that entry also applies
class : class to build instead of the base model
inputs : arguments of the model to add or replace. None removes an argument
left_out : fields of the output with "attentions" in their name that are not compared, because they
    contain no attention weights, or only a part of the weights
sharpen : False if sharpening would only increase rounding errors
skip : reason why the model type is not built
heads : entries with these keys for single classes, by the name of the class

An input is a tuple of its kind and shape: ("normal", 1, 3) for normal random numbers, ("ids", 1, 9)
for random token ids, ("small", 1, 9) for random integers below 4, or ("ones", 1, 9), and also
"zeros", "true" and "false". Two kinds have no shape: ("exactly", values) for a tensor with these
values, and ("positions", batch, patches, columns, width) for patches of Pix2Struct, in an image
with `columns` columns of patches. Inputs that are not tuples are passed unchanged.
"""

from __future__ import annotations

from typing import Any

from model_types.overrides.audio import AUDIO
from model_types.overrides.both import BOTH
from model_types.overrides.text import TEXT
from model_types.overrides.vision import VISION

__all__ = ["OVERRIDES"]

OVERRIDES: dict[str, dict[str, Any]] = {**TEXT, **VISION, **AUDIO, **BOTH}

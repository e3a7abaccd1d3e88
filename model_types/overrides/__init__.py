"""Settings and inputs of model types that the general rules in `sizes` and `inputs` do not fit.

`OVERRIDES` has an entry for each of these model types. An entry can have these keys:

config : settings of the tiny configuration. The settings of a part, which is a configuration in
    another configuration, such as "text_config", are a dict. If the model type of the part has an
    entry here, the "config" of that entry is also used
class : name of the class to build instead of the base model
inputs : arguments of the model to add or replace. None removes an argument
left_out : names of output fields that are not compared, although "attentions" is in their names.
    They have no attention weights, or only some of the weights
sharpen : False if scaling up queries and keys (see `model_types.sharpen`) would only increase
    rounding errors
skip : reason why no model of this type is built
heads : entries with these keys for single classes, by the name of the class

A tensor in "inputs" is described by a tuple with its kind and its shape:

("normal", 1, 3) : random numbers from a normal distribution
("ids", 1, 9) : random token ids
("small", 1, 9) : random integers from 0 to 3
("ones", 1, 9), ("zeros", 1, 9) : ones or zeros
("true", 1, 9), ("false", 1, 9) : booleans
("exactly", values) : these values. The tuple has no shape
("positions", batch, patches, columns, width) : patches for Pix2Struct, (batch, patches, width), of
    an image with `columns` columns of patches

Values that are not tuples are passed to the model unchanged.
"""

from __future__ import annotations

from typing import Any

from model_types.overrides.audio import AUDIO
from model_types.overrides.both import BOTH
from model_types.overrides.text import TEXT
from model_types.overrides.vision import VISION

__all__ = ["OVERRIDES"]

OVERRIDES: dict[str, dict[str, Any]] = {**TEXT, **VISION, **AUDIO, **BOTH}

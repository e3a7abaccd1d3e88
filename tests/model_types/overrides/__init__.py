"""What single model types need beyond the general rules, as data.

For each: ``config`` (changes to the tiny configuration, a dict in it for a part), ``class`` (where
the base model isn't the one to build), ``inputs`` (arguments beside those found, or in place of
them; None leaves one out), ``left_out`` (fields of the output that are called attentions and are
no weights of queries for keys), ``sharpen`` (False where that only blows up rounding), ``skip``
(why it isn't built) and ``heads`` (the same for single classes, by their names).

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

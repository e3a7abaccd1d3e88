"""Colors of the views, for pictures and pages that Python draws.

They are in the file ``colors.json``, which ``js/src/ui/colors`` reads, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLORS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())

#: Palettes of the light and the dark theme. ``js/src/ui/colors/palette.ts`` describes their colors.
LIGHT, DARK = _COLORS["palettes"]["light"], _COLORS["palettes"]["dark"]
#: Color stops for weights in the light theme, from weak to strong.
WEIGHT_STOPS: list[str] = _COLORS["weightStops"]["light"]


def rgb_of(color: str) -> NDArray[np.float64]:
    """Return red, green and blue of a color, each from 0 to 255.

    >>> rgb_of("#1b6ab3")
    array([ 27., 106., 179.])
    """
    return np.array([*bytes.fromhex(color.removeprefix("#"))], np.float64)

"""Public names of `attnviz.embedding` and the modules that define them.

`attnviz/embedding/__init__.py` reads this file. A public name is listed only here.
"""

from .placement import Placed as Placed
from .placement import Placing as Placing
from .placement import Plots as Plots
from .placement import place as place
from .placement import principal_components as principal_components
from .placement import problems as problems
from .trust import HeadTrust as HeadTrust
from .trust import measure_trust as measure_trust

__all__: list[str]

"""Public names of attnviz.integrations, and the modules that define them.

`attnviz/integrations/__init__.py` reads this file, which is the only list of these names.
"""

from .callback import AttentionCallback as AttentionCallback
from .log import log as log

__all__: list[str]

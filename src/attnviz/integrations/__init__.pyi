"""The public names of attnviz.integrations, and the modules that they are loaded from.

`attnviz/integrations/__init__.py` reads this file: a public name stands here, and nowhere else.
"""

from .callback import AttentionCallback as AttentionCallback
from .log import log as log

__all__: list[str]

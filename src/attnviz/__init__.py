"""attnviz: see how a transformer attends, token by token, head by head.

>>> import attnviz as av
>>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
>>> av.show_head_view(model, "the cat sat", tokenizer=tokenizer)         # doctest: +SKIP

Names load when they are first used: ``import attnviz`` by itself brings neither torch nor
transformers.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.1.0"

# The names are in `__init__.pyi`, with the modules that define them.
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


# What BertViz calls its functions.
_OTHER_NAMES = {f"{view}_view": f"show_{view}_view" for view in ("head", "model", "neuron")}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    from attnviz.utils.arguments import did_you_mean

    meant = did_you_mean(name, __all__, _OTHER_NAMES)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

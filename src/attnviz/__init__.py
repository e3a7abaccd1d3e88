"""attnviz: see how a transformer attends, token by token, head by head.

>>> import attnviz as av
>>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
>>> av.show_head_view(model, "the cat sat", tokenizer=tokenizer)         # doctest: +SKIP

See the attention of one text
    `show_head_view`: lines from each token to those it attends to. `show_matrix_view`: the weights
    of a head. `show_model_view`: all heads at once. `show_neuron_view`: queries, keys and their
    products. `show_dashboard`: several of these views, linked.
Compare two texts, models or checkpoints
    `compare`, `show_compare_view`.
See many texts
    `extract_corpus` and `show_embedding_view`; `head_statistics` and `show_atlas_view`.
Ask whether the attention matters
    `intervene` with `Ablate`, `Knockout`, `HideTokens` or `SetWeights`; `head_effects`,
    `token_effects`, `attribute`, `erasure_curve`, `sufficient_tokens`, `permutation_effect`.
Get the numbers
    `extract` gives an `AttentionRecord`: ``record.stack().weights(layer=3, head=1)`` is an array
    (queries, keys), ``record.to_pandas()`` a table. `analysis` has scores of heads and more.
Keep and share
    ``view.save("view.html")`` or ``.svg``, ``.png``, ``.pdf``; ``record.save`` and `load`;
    `integrations` for experiment trackers; `options` for what a notebook stores.

``help(av.show_head_view)`` lists all arguments and traits of a view. Names are loaded on first use:
``import attnviz`` alone imports neither torch nor transformers.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.1.0"

# The file `__init__.pyi` lists the names with the modules that define them.
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


# BertViz's names of these functions.
_OTHER_NAMES = {f"{view}_view": f"show_{view}_view" for view in ("head", "model", "neuron")}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    from attnviz.utils.arguments import did_you_mean

    meant = did_you_mean(name, __all__, _OTHER_NAMES)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

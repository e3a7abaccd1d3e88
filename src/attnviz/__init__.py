"""attnviz: visualisation and analysis of the attention of transformers.

>>> import attnviz as av
>>> model, tokenizer = av.demos.load("decoder")                          # doctest: +SKIP
>>> av.show_head_view(model, "the cat sat", tokenizer=tokenizer)         # doctest: +SKIP

Show the attention of one text
    `show_head_view` draws a line from each token to the tokens that it attends to.
    `show_matrix_view` shows the weights of one head as a heat map. `show_model_view` shows small
    maps of all heads. `show_neuron_view` shows queries, keys and their products. `show_dashboard`
    shows several of these views, which share their settings.
Compare texts, models or checkpoints
    `compare` returns a comparison, and `show_compare_view` shows it.
Show many texts
    `extract_corpus` reads a sample of texts, whose queries and keys `show_embedding_view` plots.
    `head_statistics` measures all heads over many texts, and `show_atlas_view` shows the result.
Measure whether the attention has an effect on the output
    `intervene` runs the model with changed attention: `Ablate`, `Knockout`, `HideTokens` or
    `SetWeights`. See also `head_effects`, `token_effects`, `attribute`, `erasure_curve`,
    `sufficient_tokens` and `permutation_effect`. `left_out` measures what each head loses if the
    key-value cache is cut.
Get the numbers
    `extract` returns an `AttentionRecord`. If `record` is its result,
    ``record.stack().weights(layer=3, head=1)`` is an array (queries, keys), and
    ``record.to_pandas()`` is a table. The module `analysis` computes scores of heads and other
    measures.
Save and share
    ``view.save("view.html")`` saves a view as HTML, SVG, PNG or PDF. ``record.save`` and `load`
    save and load a record. The package `integrations` logs views to experiment trackers. `options`
    determines what a notebook stores in addition to a view, such as a picture.

``help(av.show_head_view)`` lists all arguments and traits of this view. Each name is imported when
it is first used. Therefore ``import attnviz`` alone imports neither torch nor transformers.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.1.0"

# `__init__.pyi` lists the public names and the modules that define them. A module is imported when
# one of its names is used.
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    from attnviz.utils.arguments import did_you_mean

    meant = did_you_mean(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

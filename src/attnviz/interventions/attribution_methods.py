"""Registry of attribution methods. Each method is one entry.

An attribution is one number for each query-key pair. Most methods estimate the pair's effect on the
answer, which is a number in the model's output. A are the weights of a head, V its values, O = A V
its outputs, and G the gradient of the answer with respect to O. What a method needs, besides the
weights, is computed before its formula:

``"weights"``
    Nothing else.
``"value norms"``
    The norm of the vector that the value of each key adds to the residual stream.
``"gradient"``
    V, O, and G from one backward pass.
``"mean gradient"``
    V, O, and the mean of G while all weights of a layer are scaled from 0 to their values.
``"direct gradient"``
    V, O, and a G that passes only through the residual stream, without later layers.

`attnviz.attribute`, its errors, the sentences below a picture, the table in
``docs/does-it-matter.md`` and a test are made from the entries. A new method is one more entry of
`_BUILT_IN`, and a line in the docstring of `attnviz.attribute`. Users register theirs with
`attribution_method`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

import torch

from attnviz.interventions.attributed import (
    FormulaAttribution,
    GradientAttribution,
    MixedLayers,
    NormAttribution,
    uniform_share_of_first,
)
from attnviz.record.attention import LayerAttention
from attnviz.utils.arguments import short_repr

Needs = Literal["weights", "value norms", "gradient", "mean gradient", "direct gradient"]
_Formula = TypeVar("_Formula", bound=Callable[..., torch.Tensor])


@dataclass(frozen=True)
class AttributionMethod:
    """A way to compute one number for each query-key pair, as an entry of `ATTRIBUTION_METHODS`.

    Attributes
    ----------
    name : str
        Name of the method.
    needs : {"weights", "value norms", "gradient", "mean gradient", "direct gradient"}
        What is computed before the attributions. See `attribution_method`. The methods that need a
        gradient have an answer.
    layer : callable
        Function that returns the attributions of a layer from its attention and from what the
        method needs.
    definition : str
        The number of a pair, in a few words.
    meaning : str
        Meaning of the number, and effects that it ignores.
    check : str
        Test that could show that the numbers are misleading.
    source : str
        Paper that introduced the method, such as ``"Hao et al. 2021 (arXiv 2004.11207)"``.
    note : str
        Sentences about the numbers for the caption of a picture. By default they are made from
        `definition`.
    measure : str
        Name of the numbers in captions, and `AttentionStack.measure`. By default `name`.
    signed : bool
        Whether numbers can be negative. Positive numbers then support the answer.
    normalized : bool
        Whether the numbers of a query sum to 1 if its weights do.
    mixed : callable or None
        Function that returns one matrix from the attributions of all layers up to a layer. None if
        each layer has a matrix for each head.
    baseline : callable or None
        Function that returns the number of the last query and the first key for uniform causal
        attention, from the numbers of tokens and layers. Only for methods with `mixed`.

    Examples
    --------
    >>> ATTRIBUTION_METHODS["rollout"].has_answer, ATTRIBUTION_METHODS["gradient"].has_answer
    (False, True)
    """

    name: str
    needs: Needs
    layer: Callable[[LayerAttention, Any], LayerAttention]
    definition: str = ""
    meaning: str = ""
    check: str = ""
    source: str = ""
    note: str = ""
    measure: str = ""
    signed: bool = True
    normalized: bool = False
    mixed: Callable[[tuple[LayerAttention, ...]], LayerAttention] | None = None
    baseline: Callable[[int, int], float] | None = None

    @property
    def has_answer(self) -> bool:
        """Whether the numbers depend on an answer."""
        return self.needs.endswith("gradient")

    @property
    def sentences(self) -> str:
        """Sentences about the numbers for the caption of a picture."""
        if self.note:
            return self.note
        check = " An estimate, not an effect. Use intervene to measure the effect."
        return f"Number of a pair: {self.definition or self.name}.{check * self.has_answer}"


_methods: dict[str, AttributionMethod] = {}

#: All attribution methods by name. The decorator `attribution_method` adds an entry.
ATTRIBUTION_METHODS: Mapping[str, AttributionMethod] = MappingProxyType(_methods)


def attribution_method(
    name: str, *, needs: Needs, **properties: Any
) -> Callable[[_Formula], _Formula]:
    """Register a formula as an attribution method.

    After the registration, ``attnviz.attribute(model, inputs, method=name)`` computes it. The
    formula computes the numbers of some queries (rows) and some keys of a head, whenever a view
    requests them. Its arguments are float32 tensors, and so is its result, (rows, keys).

    Parameters
    ----------
    name : str
        Name of the method. A method that was registered with the same name is replaced, except one
        of attnviz.
    needs : {"weights", "value norms", "gradient", "mean gradient", "direct gradient"}
        ``"weights"``: the formula has the argument ``weights``, (rows, keys).
        ``"value norms"``: ``weights`` and ``norms``. The norm of the vector that a key adds to the
        residual stream for a weight of 1 is (rows, keys), or (1, keys) if it is the same for all
        queries.
        ``"gradient"``, ``"mean gradient"`` or ``"direct gradient"``: ``weights``, ``values``,
        ``outputs`` and ``gradients``. The values of the head are (keys, dimensions). Its outputs,
        and the gradients of the answer with respect to them, are (rows, dimensions). For a mean
        gradient, the weights of a layer are scaled from 0 to their values in as many steps as
        `attnviz.attribute` is asked for. A direct gradient does not pass through later layers.
    **properties
        Other attributes of `AttributionMethod`, such as ``definition=`` or ``signed=False``.

    Returns
    -------
    callable
        Decorator that returns the function itself.

    Raises
    ------
    TypeError, ValueError
        If a property does not exist, or `name` or `needs` is invalid.

    Examples
    --------
    >>> import attnviz as av
    >>> @attribution_method("squared weight", needs="weights", signed=False)
    ... def squared_weight(weights):
    ...     return weights**2
    >>> model, tokenizer = av.demos.load("decoder")
    >>> record = av.attribute(model, "a b", method="squared weight", tokenizer=tokenizer)
    >>> record.stack().measure
    'squared weight'
    """
    if needs not in get_args(Needs):
        raise ValueError(f"needs={short_repr(needs)} must be one of {get_args(Needs)}")
    if not name or any(name == entry.name for entry in _BUILT_IN):
        raise ValueError(f"attribution_method({short_repr(name)}): attnviz has this method")

    def register(formula: _Formula) -> _Formula:
        layer = partial(FormulaAttribution, formula=formula)
        _methods[name] = AttributionMethod(name, needs, layer, **properties)
        return formula

    return register


def named(name: Any) -> AttributionMethod:
    """Return an attribution method. Raise ValueError if `name` is unknown."""
    if name not in ATTRIBUTION_METHODS:
        valid = ", ".join(map(repr, ATTRIBUTION_METHODS))
        raise ValueError(
            f"method={short_repr(name)} must be one of {valid}, or registered with "
            "attnviz.interventions.attribution_method"
        )
    return ATTRIBUTION_METHODS[name]


_BUILT_IN = (
    AttributionMethod(
        "gradient",
        "gradient",
        GradientAttribution,
        definition="weight times the gradient by the weight",
        meaning="estimates the loss by a cut after the softmax",
        check="`Knockout(..., renormalize=False)` of the pair",
        note="A gradient, not an effect: the loss of the answer, to first order, if the weight "
        "were cut after the softmax. Use intervene to measure the effect.",
        measure="gradient x attention",
    ),
    AttributionMethod(
        "knockout gradient",
        "gradient",
        partial(GradientAttribution, at="logits"),
        definition="gradient by the logit of the pair, divided by 1 − weight",
        meaning="estimates the loss by a cut before the softmax",
        check="`Knockout` of the pair",
        note="A gradient, not an effect: the loss of the answer, to first order, if the pair were "
        "cut before the softmax. Use intervene to measure the effect.",
    ),
    AttributionMethod(
        "integrated gradients",
        "mean gradient",
        GradientAttribution,
        definition="weight times the mean gradient while the layer's weights grow from 0",
        meaning="adds up to the loss without the layer",
        check="`Ablate` of the layer; a note says how exactly the numbers add up to its effect",
        source="Hao et al. 2021 (arXiv 2004.11207)",
        note="The loss of the answer while all weights of a layer shrink to 0, divided among the "
        "weights (Hao et al. 2021).",
    ),
    AttributionMethod(
        "value norm",
        "value norms",
        NormAttribution,
        definition="weight times the length of the projected value",
        meaning="how much the pair adds to the stream, for any answer",
        check="`Knockout` of the pair: the answer may ignore what the pair adds",
        source="Kobayashi et al. 2020 (arXiv 2004.10102)",
        note="The weight times the norm of what the key's value adds (Kobayashi et al. 2020). It "
        "contains nothing about the answer.",
        signed=False,
    ),
    AttributionMethod(
        "direct",
        "direct gradient",
        GradientAttribution,
        definition="what the pair adds to the answer without later layers (direct logit "
        "attribution)",
        meaning="ignores that later layers read it. Models whose layers do not simply add to a "
        "stream (BERT, Gemma 2) are refused",
        check="`Ablate` of the head, which measures the total effect",
        note="What the pair adds to the answer without passing later layers, with a constant scale "
        "of the last norm. Later layers also read it, so that its total effect differs. Ablate the "
        "head to measure the total effect.",
        measure="direct attribution",
    ),
    AttributionMethod(
        "relevance",
        "gradient",
        GradientAttribution,
        definition="positive gradient times weight, multiplied through the layers",
        meaning="parts of the input that speak for the answer; one matrix per layer",
        check="`erasure_curve` of the tokens",
        source="Chefer et al. 2021 (arXiv 2103.15679)",
        note="Support for the answer, multiplied through the layers and averaged over heads "
        "(Chefer et al. 2021): each layer is mixed with all earlier layers. It ignores values, "
        "feed-forward layers and evidence against the answer.",
        signed=False,
        mixed=partial(MixedLayers, own=1.0, positive=True),
    ),
    AttributionMethod(
        "rollout",
        "weights",
        lambda layer, _: layer,
        definition="weights multiplied through the layers",
        meaning="parts of the input that a token contains, if there were only attention; one "
        "matrix per layer, for any answer",
        check="the number for uniform attention, which a note gives",
        source="Abnar and Zuidema 2020 (arXiv 2005.00928)",
        note="Attention multiplied through the layers and averaged over heads (Abnar and Zuidema "
        "2020): each layer is mixed with all earlier layers. It ignores values, feed-forward "
        "layers and signs, and contains nothing about the answer.",
        signed=False,
        normalized=True,
        mixed=partial(MixedLayers, own=0.5),
        baseline=uniform_share_of_first,
    ),
)
_methods.update({entry.name: entry for entry in _BUILT_IN})

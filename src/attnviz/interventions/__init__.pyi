"""Public names of `attnviz.interventions` that `attnviz` itself does not export."""

from .attribution_methods import ATTRIBUTION_METHODS as ATTRIBUTION_METHODS
from .attribution_methods import AttributionMethod as AttributionMethod
from .attribution_methods import attribution_method as attribution_method
from .effect import Effect as Effect
from .erasure import ErasureCurve as ErasureCurve
from .erasure import SufficientTokens as SufficientTokens
from .head_effects import HeadEffects as HeadEffects
from .intervene import ChangedRecord as ChangedRecord
from .left_out import LeftOut as LeftOut
from .permutation import PermutationEffect as PermutationEffect
from .token_effects import TokenEffects as TokenEffects

__all__: list[str]

"""Public names of `attnviz.analysis` and the modules that define them.

`attnviz/analysis/__init__.py` reads this file. A public name is listed only here.
"""

from . import heads as heads
from . import patterns as patterns
from .agreement import kendall_tau as kendall_tau
from .distinct import DistinctHead as DistinctHead
from .distinct import distinct_head as distinct_head
from .heads import all_head_scores as all_head_scores
from .heads import head_scores as head_scores
from .heads import measures_of as measures_of
from .heads import sink_patches as sink_patches
from .heads import uniform_scores as uniform_scores
from .measures import MEASURES as MEASURES
from .measures import Measure as Measure
from .measures import TokenFacts as TokenFacts
from .passages import PassageShares as PassageShares
from .passages import passage_shares as passage_shares
from .patterns import first_token as first_token
from .patterns import induction as induction
from .patterns import mass_on as mass_on
from .patterns import next_token as next_token
from .patterns import previous_token as previous_token
from .patterns import repeated_induction as repeated_induction
from .patterns import same_token as same_token
from .patterns import self_token as self_token

__all__: list[str]

"""Public names of attnviz and the modules that define them.

`attnviz/__init__.py` reads this file and loads a name on first use.
"""

from . import analysis as analysis
from . import demos as demos
from . import integrations as integrations
from .analysis.measures import measure as measure
from .atlas.show import show_atlas_view as show_atlas_view
from .atlas.view import AtlasView as AtlasView
from .comparison.compare import compare as compare
from .comparison.comparison import Comparison as Comparison
from .corpus.corpus import Corpus as Corpus
from .corpus.extract import extract_corpus as extract_corpus
from .corpus.head_statistics import head_statistics as head_statistics
from .corpus.statistics import HeadStatistics as HeadStatistics
from .embedding.show import show_embedding_view as show_embedding_view
from .embedding.view import EmbeddingView as EmbeddingView
from .extraction import extract as extract
from .interventions.attribute import attribute as attribute
from .interventions.changes import Ablate as Ablate
from .interventions.changes import HideTokens as HideTokens
from .interventions.changes import Knockout as Knockout
from .interventions.changes import SetWeights as SetWeights
from .interventions.erasure import erasure_curve as erasure_curve
from .interventions.erasure import sufficient_tokens as sufficient_tokens
from .interventions.head_effects import head_effects as head_effects
from .interventions.intervene import intervene as intervene
from .interventions.left_out import Window as Window
from .interventions.left_out import left_out as left_out
from .interventions.permutation import permutation_effect as permutation_effect
from .interventions.token_effects import token_effects as token_effects
from .record.record import AttentionRecord as AttentionRecord
from .record.record import load as load
from .record.stack import AttentionStack as AttentionStack
from .record.tokens import Tokens as Tokens
from .utils.options import options as options
from .views.compare import CompareView as CompareView
from .views.dashboard import Dashboard as Dashboard
from .views.head import HeadView as HeadView
from .views.matrix import MatrixView as MatrixView
from .views.model import ModelView as ModelView
from .views.neuron import NeuronView as NeuronView
from .views.show import show_compare_view as show_compare_view
from .views.show import show_dashboard as show_dashboard
from .views.show import show_head_view as show_head_view
from .views.show import show_matrix_view as show_matrix_view
from .views.show import show_model_view as show_model_view
from .views.show import show_neuron_view as show_neuron_view

__version__: str
__all__: list[str]

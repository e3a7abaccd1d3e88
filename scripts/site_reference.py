"""Pages of the API reference, with the public names on each page.

The pages contain only names, from whose docstrings mkdocstrings writes the documentation. A test
compares these names with the exports of the package.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("api")


@dataclass(frozen=True)
class Section:
    """Page of the API reference.

    Attributes
    ----------
    title : str
        Title of the page.
    says : str
        Description of the page.
    names : tuple of str
        Public names that the page documents.
    shared : tuple of str
        Private base classes of several public classes, documented at the end of the page.
    inherited : bool
        Whether to document inherited members of the classes.
    """

    title: str
    says: str
    names: tuple[str, ...]
    shared: tuple[str, ...] = ()
    inherited: bool = True


REFERENCE = {
    "show": Section(
        "Showing views",
        "One call from a model and a text to a view.",
        (
            "attnviz.show_head_view",
            "attnviz.show_matrix_view",
            "attnviz.show_model_view",
            "attnviz.show_neuron_view",
            "attnviz.show_dashboard",
            "attnviz.show_compare_view",
            "attnviz.show_embedding_view",
            "attnviz.show_atlas_view",
        ),
    ),
    "views": Section(
        "Views and their traits",
        "The widgets. The end of the page has what several views share: the methods `save`, "
        "`to_html`, `to_iframe`, `snapshot`, and traits such as `layer`, `heads` and `token`.",
        (
            "attnviz.HeadView",
            "attnviz.MatrixView",
            "attnviz.ModelView",
            "attnviz.NeuronView",
            "attnviz.Dashboard",
            "attnviz.CompareView",
            "attnviz.EmbeddingView",
            "attnviz.AtlasView",
            "attnviz.options",
        ),
        shared=(
            "attnviz.views.base.View",
            "attnviz.views.position.PositionedView",
            "attnviz.views.record_view.RecordView",
            "attnviz.views.head_order.HeadOrder",
            "attnviz.views.token_windows.TokenWindows",
            "attnviz.views.image_maps.ImageMaps",
            "attnviz.views.generated_token.GeneratedToken",
            "attnviz.views.effects.TokenScores",
            "attnviz.views.what_if.WhatIf",
        ),
        inherited=False,
    ),
    "record": Section(
        "Extraction and records",
        "A model and its inputs become a record, which any view shows and any analysis reads.",
        (
            "attnviz.extract",
            "attnviz.load",
            "attnviz.AttentionRecord",
            "attnviz.AttentionStack",
            "attnviz.Tokens",
            "attnviz.record.Prediction",
            "attnviz.record.Candidate",
            "attnviz.record.PatchGrid",
        ),
    ),
    "corpus": Section(
        "Many texts",
        "A corpus, statistics of heads over its texts, and the roles that follow.",
        (
            "attnviz.extract_corpus",
            "attnviz.Corpus",
            "attnviz.head_statistics",
            "attnviz.HeadStatistics",
            "attnviz.corpus.StackStatistics",
            "attnviz.corpus.Role",
            "attnviz.corpus.Roles",
            "attnviz.corpus.Edge",
            "attnviz.corpus.RayEngine",
        ),
    ),
    "interventions": Section(
        "Does it matter?",
        "The model runs again with its attention changed.",
        (
            "attnviz.intervene",
            "attnviz.Knockout",
            "attnviz.Ablate",
            "attnviz.SetWeights",
            "attnviz.HideTokens",
            "attnviz.interventions.ChangedRecord",
            "attnviz.interventions.Effect",
            "attnviz.attribute",
            "attnviz.interventions.attribution_method",
            "attnviz.interventions.ATTRIBUTION_METHODS",
            "attnviz.interventions.AttributionMethod",
            "attnviz.head_effects",
            "attnviz.interventions.HeadEffects",
            "attnviz.token_effects",
            "attnviz.interventions.TokenEffects",
            "attnviz.erasure_curve",
            "attnviz.interventions.ErasureCurve",
            "attnviz.sufficient_tokens",
            "attnviz.interventions.SufficientTokens",
            "attnviz.permutation_effect",
            "attnviz.interventions.PermutationEffect",
            "attnviz.left_out",
            "attnviz.Window",
            "attnviz.interventions.LeftOut",
        ),
    ),
    "comparison": Section(
        "Comparison",
        "Two texts, models or checkpoints, and what differs between them.",
        ("attnviz.compare", "attnviz.Comparison", "attnviz.comparison.Alignment"),
    ),
    "analysis": Section(
        "Analysis",
        "Numbers from records and from arrays of weights.",
        (
            "attnviz.analysis",
            "attnviz.analysis.heads",
            "attnviz.measure",
            "attnviz.analysis.MEASURES",
            "attnviz.analysis.Measure",
            "attnviz.analysis.TokenFacts",
            "attnviz.analysis.head_scores",
            "attnviz.analysis.all_head_scores",
            "attnviz.analysis.uniform_scores",
            "attnviz.analysis.passage_shares",
            "attnviz.analysis.PassageShares",
            "attnviz.analysis.sink_patches",
            "attnviz.analysis.measures_of",
            "attnviz.analysis.distinct_head",
            "attnviz.analysis.DistinctHead",
            "attnviz.analysis.patterns",
            "attnviz.analysis.previous_token",
            "attnviz.analysis.next_token",
            "attnviz.analysis.self_token",
            "attnviz.analysis.first_token",
            "attnviz.analysis.same_token",
            "attnviz.analysis.induction",
            "attnviz.analysis.repeated_induction",
            "attnviz.analysis.mass_on",
            "attnviz.analysis.kendall_tau",
            "attnviz.embedding.measure_trust",
            "attnviz.embedding.HeadTrust",
            "attnviz.embedding.principal_components",
            "attnviz.embedding.place",
            "attnviz.embedding.problems",
            "attnviz.embedding.Placed",
            "attnviz.embedding.Placing",
            "attnviz.embedding.Plots",
        ),
    ),
    "demos": Section(
        "Demo models",
        "Tiny trained models that come with the package.",
        (
            "attnviz.demos",
            "attnviz.demos.NAMES",
            "attnviz.demos.CHECKPOINTS",
            "attnviz.demos.load",
            "attnviz.demos.example",
            "attnviz.demos.sentences",
            "attnviz.demos.checkpoints",
        ),
    ),
    "integrations": Section(
        "Experiment trackers",
        "Views in runs of Comet, MLflow, Weights & Biases and others.",
        (
            "attnviz.integrations",
            "attnviz.integrations.log",
            "attnviz.integrations.AttentionCallback",
        ),
    ),
}


def first_paragraph(name: str) -> str:
    """Return the first paragraph of the docstring of a name, or an empty string for a constant."""
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    if isinstance(value, (tuple, list, dict, str)):
        return ""
    paragraph = (inspect.getdoc(value) or "").split("\n\n", 1)[0]
    return " ".join(paragraph.replace("``", "`").split())


def write_reference(sources: Path) -> None:
    """Write the pages of the reference and their index into `sources`."""
    folder = sources / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# API reference", "", "All public names of attnviz. Names load when first used.", ""]
    for page, section in REFERENCE.items():
        lines += [f"## [{section.title}]({page}.md)", "", section.says, ""]
        lines += ["| Name | |", "|---|---|"]
        for name in section.names:
            short = name.removeprefix("attnviz.")
            lines.append(f"| [`{short}`][{name}] | {first_paragraph(name)} |".replace("&", "&amp;"))
        lines.append("")
        (folder / f"{page}.md").write_text(_page(section), encoding="utf-8")
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def _page(section: Section) -> str:
    parts = [f"# {section.title}\n\n{section.says}\n"]
    for name in section.names:
        # Do not document the members of a module, which have their own entries.
        module = inspect.ismodule(_value(name))
        options = {"members": False} if module else {"inherited_members": section.inherited}
        parts.append(_entry(name, options))
    if section.shared:
        parts.append("## What several views share\n")
        parts += [_entry(name, {"inherited_members": False}) for name in section.shared]
    return "\n".join(parts)


def _value(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _entry(name: str, options: dict[str, bool]) -> str:
    lines = [f"::: {name}", "    options:"]
    lines += [f"      {option}: {str(value).lower()}" for option, value in options.items()]
    return "\n".join([*lines, ""])

"""Content of the replies of an atlas: its description, statistics, edges and texts.

An edge is one query and one key of a text with their weight. The statistics keep some edges of each
head, and the tokens near these edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from attnviz.atlas.description import (
    AtlasDescription,
    AtlasEdgeColumns,
    AtlasEdges,
    AtlasRole,
    AtlasStack,
    AtlasTable,
    AtlasTexts,
    AtlasTokens,
)
from attnviz.corpus.edges import EdgeColumns, NearTokens
from attnviz.corpus.measuring import unit_and_definition
from attnviz.corpus.roles import Role
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.server.description import SiblingStack

# Significant digits of statistics, and of the weights of edges. The weights have fewer digits,
# because a reply has many of them.
_DIGITS, _WEIGHT_DIGITS = 5, 4


def describe_atlas(
    statistics: HeadStatistics, sent: Mapping[str, StackStatistics] | None = None
) -> AtlasDescription:
    """Return the description of an atlas: model, texts, stacks, and the names of all statistics.

    `sent` is passed only for an exported page. It has the statistics of each stack, by the name of
    the stack, with only the edges that are on the page.
    """
    return {
        "model": statistics.model,
        "texts": int(statistics.texts),
        "tokens": int(statistics.tokens),
        "num_skipped": int(statistics.num_skipped),
        "notes": list(statistics.notes),
        "stacks": [
            _describe_stack(stack, stack if sent is None else sent[stack.name])
            for stack in map(statistics.stack, statistics.stack_names)
        ],
        "siblings": sibling_stacks(statistics),
    }


def sibling_stacks(statistics: HeadStatistics) -> list[list[SiblingStack]]:
    """Group the stacks of linear layers with the causal self-attention of the same model."""
    group: list[SiblingStack] = [
        {"name": stack.name, "linear": stack.linear}
        for stack in map(statistics.stack, statistics.stack_names)
        if stack.linear or (stack.causal and stack.one_text)
    ]
    return [group] if len({stack["linear"] for stack in group}) > 1 else []


def _describe_stack(stack: StackStatistics, sent: StackStatistics) -> AtlasStack:
    roles = stack.roles()
    return {
        "name": stack.name,
        "layers": list(stack.layers),
        "heads_per_layer": list(stack.heads_per_layer),
        "causal": bool(stack.causal),
        "same_tokens": bool(stack.one_text),
        "linear": stack.linear,
        "statistics": [
            {
                "name": name,
                "unit": unit_and_definition(name)[0],
                "definition": unit_and_definition(name)[1],
                "baseline": stack.baseline(name) is not None,
            }
            for name in stack.score_names
        ],
        "roles": [{"name": name, "definition": words} for name, words in roles.definitions.items()],
        "margin": roles.margin,
        "level": roles.level,
        "offsets": list(stack.offset_labels),
        "strongest": max_edges_per_head(sent, sampled=False),
        "sampled": max_edges_per_head(sent, sampled=True),
        "strongest_in_all": max_edges_per_head(stack, sampled=False),
        "sampled_in_all": max_edges_per_head(stack, sampled=True),
    }


def max_edges_per_head(stack: StackStatistics, *, sampled: bool) -> int:
    """Return the maximum over all heads of the number of edges of a head.

    `sampled` selects the sampled edges. Otherwise the strongest edges are counted.
    """
    counts = [
        np.bincount(stack.edge_columns(layer, sampled=sampled).head).max(initial=0)
        for layer in stack.layers
    ]
    return int(max(counts, default=0))


def table_of(stack: StackStatistics) -> AtlasTable:
    """Return the statistics and the roles of all heads of a stack."""
    names, roles = stack.score_names, stack.roles()
    index_of = {name: index for index, name in enumerate(roles.definitions)}
    baselines = [stack.baseline(name) for name in names]
    return {
        "means": [_rows(stack.mean(name)) for name in names],
        "standard_errors": [_rows(stack.standard_error(name)) for name in names],
        "baselines": [[] if baseline is None else _rows(baseline) for baseline in baselines],
        "texts": [[layer.tolist() for layer in stack.counts(name)] for name in names],
        "roles": [
            [
                [_role(role, index_of[role.name]) for role in roles.of(layer, head)]
                for head in range(stack.num_heads(layer))
            ]
            for layer in stack.layers
        ],
    }


def _role(role: Role, index: int) -> AtlasRole:
    return {
        "role": index,
        "score": _number(role.score) or 0.0,
        "standard_error": _number(role.standard_error) or 0.0,
        "baseline": _number(role.baseline) or 0.0,
        "difference": _number(role.difference) or 0.0,
        "low": _number(role.low) or 0.0,
        "high": _number(role.high) or 0.0,
        "p": _number(role.p_value) or 0.0,
        "texts": int(role.texts),
    }


def edges_of(stack: StackStatistics, layer: int) -> AtlasEdges:
    """Return the strongest and the sampled edges of all heads of a layer."""
    return {
        "strongest": _columns(stack.edge_columns(layer)),
        "sampled": _columns(stack.edge_columns(layer, sampled=True)),
    }


def _columns(edges: EdgeColumns) -> AtlasEdgeColumns:
    return {
        "head": edges.head.tolist(),
        "weight": [float(f"{weight:.{_WEIGHT_DIGITS}g}") for weight in edges.weight.tolist()],
        "text": edges.text.tolist(),
        "query": edges.query.tolist(),
        "key": edges.key.tolist(),
    }


def texts_of(stack: StackStatistics) -> AtlasTexts:
    """Return the tokens near the edges of a stack, for each text that has an edge."""
    numbers = np.unique(np.concatenate([side.text for side in stack.kept_tokens]))
    sides = [_tokens(side, numbers) for side in stack.kept_tokens]
    return {
        "numbers": numbers.tolist(),
        "vocabulary": list(stack.words),
        "queries": sides[0],
        "keys": None if stack.one_text else sides[-1],
    }


def _tokens(side: NearTokens, numbers: NDArray[np.int64]) -> AtlasTokens:
    starts = np.searchsorted(side.text, numbers[1:])

    def by_text(values: NDArray[np.int32]) -> list[list[int]]:
        return [of_text.tolist() for of_text in np.split(values, starts)] if len(numbers) else []

    return {"positions": by_text(side.position), "tokens": by_text(side.codes)}


def _rows(layers: Iterable[NDArray[np.float64]]) -> list[list[float | None]]:
    """Return rounded numbers by layer and head. NaN and infinity become None."""
    return [[_number(value) for value in layer.tolist()] for layer in layers]


def _number(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None

"""Types of the replies of an atlas: statistics, roles, offsets, edges and tokens.

Layers and heads have the model's numbers. Large replies are JSON in UTF-8, compressed with zlib and
sent in parts. ``js/src/client/protocol.ts`` has the same types. Tests of both languages read
``tests/fixtures/atlas.json``.
"""

from __future__ import annotations

from typing import TypedDict

__all__ = [
    "AtlasClasses",
    "AtlasDescription",
    "AtlasEdges",
    "AtlasRole",
    "AtlasRoleKind",
    "AtlasStack",
    "AtlasStatistic",
    "AtlasTable",
    "AtlasTexts",
    "AtlasTokens",
    "ClassesHeader",
    "EdgeColumns",
    "OffsetsHeader",
]


class AtlasStatistic(TypedDict):
    """Description of a statistic.

    Attributes
    ----------
    unit : str
        Unit, such as "share" (0 to 1) or "nats". "" for none.
    definition : str
        Definition in one sentence.
    baseline : bool
        Whether the statistic has a baseline (``docs/heads.md``).
    """

    name: str
    unit: str
    definition: str
    baseline: bool


class AtlasRoleKind(TypedDict):
    """Role that heads are tested for, with its definition in one sentence."""

    name: str
    definition: str


class AtlasClasses(TypedDict):
    """System of classes of tokens: its name and its classes, which are numbered from 0."""

    name: str
    values: list[str]


class AtlasStack(TypedDict):
    """Description of a stack.

    Attributes
    ----------
    heads_per_layer : list of int
        Number of heads of each layer.
    causal : bool
        Whether no query attends to a later key.
    same_tokens : bool
        Whether queries and keys are the same tokens.
    statistics : list of AtlasStatistic
        Statistics, in the order of `AtlasTable.means`.
    roles : list of AtlasRoleKind
        Tested roles. `AtlasRole.role` is an index into this list.
    margin : float
        Minimum difference between the score of a role and its baseline.
    level : float
        False discovery rate over all heads and roles.
    offsets : list of str
        Labels of the bins of offsets: "-64" to "64", "first", "rest".
    classes : list of AtlasClasses
        Systems of classes: the kind of token first, then the columns.
    strongest, sampled : int
        Largest number of strongest and of sampled edges of a head.
    strongest_in_all, sampled_in_all : int
        Numbers of edges in the statistics. A page may have fewer.
    """

    name: str
    layers: list[int]
    heads_per_layer: list[int]
    causal: bool
    same_tokens: bool
    statistics: list[AtlasStatistic]
    roles: list[AtlasRoleKind]
    margin: float
    level: float
    offsets: list[str]
    classes: list[AtlasClasses]
    strongest: int
    sampled: int
    strongest_in_all: int
    sampled_in_all: int


class AtlasDescription(TypedDict):
    """Description of the statistics of an atlas.

    Attributes
    ----------
    texts, tokens : int
        Number of texts that were read, and of their tokens.
    num_skipped : int
        Number of texts that were left out: empty, or too long for the model.
    """

    model: str
    texts: int
    tokens: int
    num_skipped: int
    notes: list[str]
    stacks: list[AtlasStack]


class AtlasRole(TypedDict):
    """Role of a head, with the evidence.

    Attributes
    ----------
    role : int
        Index into `AtlasStack.roles`.
    score, standard_error : float
        Mean of the score over texts, and its standard error.
    baseline, difference : float
        Mean of the baseline, and the mean difference between score and baseline.
    low, high : float
        95% confidence interval of the difference.
    p : float
        P value, corrected for the number of heads and roles.
    texts : int
        Number of texts in which the score is defined.
    """

    role: int
    score: float
    standard_error: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float
    texts: int


class AtlasTable(TypedDict):
    """Statistics and roles of every head of a stack.

    Attributes
    ----------
    means, standard_errors : list
        Mean over texts and its standard error, by statistic, layer and head. null if undefined.
    baselines : list
        Mean baseline, by statistic, layer and head. An empty list for a statistic without one.
    texts : list
        Number of texts of each mean, by statistic, layer and head.
    roles : list
        Roles by layer and head, the strongest first. An empty list for a head without a role.
    """

    means: list[list[list[float | None]]]
    standard_errors: list[list[list[float | None]]]
    baselines: list[list[list[float | None]]]
    texts: list[list[list[int]]]
    roles: list[list[list[AtlasRole]]]


class OffsetsHeader(TypedDict):
    """Header of a reply with the mean weight of each head of a layer by offset of key from query.

    The data is float32, (heads, bins), with NaN if no pair has the offset.
    """

    bins: int


class ClassesHeader(TypedDict):
    """Header of the mean weights of a head by class of query and class of key.

    The data is float32, (classes, classes), with a row for each class of query. A row is NaN if no
    query has its class.
    """

    classes: int


class AtlasTokens(TypedDict):
    """Kept tokens of one side, by text in the order of `AtlasTexts.numbers`.

    Attributes
    ----------
    positions : list of list of int
        Positions in the text, ascending.
    tokens : list of list of int
        Indices into `AtlasTexts.vocabulary`.
    classes : list of list of list of int
        Class by system of classes, text and token. -1 for none.
    """

    positions: list[list[int]]
    tokens: list[list[int]]
    classes: list[list[list[int]]]


class AtlasTexts(TypedDict):
    """Tokens near the queries and keys of all edges, by text.

    Attributes
    ----------
    numbers : list of int
        Numbers of the texts, ascending.
    vocabulary : list of str
        Distinct tokens.
    keys : AtlasTokens or None
        Tokens of the keys. null if they are the same tokens as the queries.
    """

    numbers: list[int]
    vocabulary: list[str]
    queries: AtlasTokens
    keys: AtlasTokens | None


class EdgeColumns(TypedDict):
    """Edges of the heads of a layer, with one list for each attribute of an edge.

    Attributes
    ----------
    head : list of int
        Indices of the heads in the layer, ascending.
    text : list of int
        Numbers of the texts.
    query, key : list of int
        Positions in the text.
    """

    head: list[int]
    weight: list[float]
    text: list[int]
    query: list[int]
    key: list[int]


class AtlasEdges(TypedDict):
    """Edges of the heads of a layer.

    Attributes
    ----------
    strongest : EdgeColumns
        Edges with the largest weights of all texts, descending within a head.
    sampled : EdgeColumns
        Uniform sample of queries, each with a key drawn in proportion to its weight. Shares of
        these edges estimate shares of the attention.
    """

    strongest: EdgeColumns
    sampled: EdgeColumns

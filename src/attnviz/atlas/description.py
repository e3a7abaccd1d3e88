"""What an atlas of heads sends to a browser: statistics, roles, offsets, edges and their texts.

Numbers of layers and heads are the model's own. Large answers are deflated UTF-8 of JSON, in parts.
``js/src/client/protocol.ts`` has the same types, ``tests/fixtures/atlas.json`` is read by both.
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
    """What one number of each head is.

    Attributes
    ----------
    unit : str
        "share" (0 to 1), "bits", ...; "" where it has none.
    definition : str
        One sentence.
    baseline : bool
        Whether there is a mean by chance to compare it with (``docs/heads.md``).
    """

    name: str
    unit: str
    definition: str
    baseline: bool


class AtlasRoleKind(TypedDict):
    """A role that heads are tested for, and what it means in one sentence."""

    name: str
    definition: str


class AtlasClasses(TypedDict):
    """A system of classes of tokens: its name and its values, which are numbered from 0."""

    name: str
    values: list[str]


class AtlasStack(TypedDict):
    """A stack of layers, and what is known of its heads.

    Attributes
    ----------
    heads_per_layer : list of int
        How many heads each layer has.
    causal : bool
        Whether no query attends to a later key.
    same_tokens : bool
        Whether queries and keys are the same tokens.
    statistics : list of AtlasStatistic
        In the order of `AtlasTable.means`.
    roles : list of AtlasRoleKind
        All that heads were tested for; `AtlasRole.role` counts them.
    margin : float
        By how much a role's score must exceed its baseline.
    level : float
        The false discovery rate over all heads and roles.
    offsets : list of str
        A label for each bin of a head's offsets: "-64" to "64", "first", "rest".
    classes : list of AtlasClasses
        The kind of token first, then the columns that were given.
    strongest, sampled : int
        Edges that are at hand of a head at most.
    strongest_in_all, sampled_in_all : int
        The same before a page left some out.
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
    """What an atlas is of.

    Attributes
    ----------
    texts, tokens : int
        How many were read.
    left_out : int
        Texts that could not be read, being empty or too long.
    """

    model: str
    texts: int
    tokens: int
    left_out: int
    notes: list[str]
    stacks: list[AtlasStack]


class AtlasRole(TypedDict):
    """A role that a head has, with the evidence.

    Attributes
    ----------
    role : int
        Index in `AtlasStack.roles`.
    score, error : float
        Mean over texts and its standard error.
    baseline, difference : float
        Mean score of the baseline, and by how much the head's score exceeds it.
    low, high : float
        95% confidence interval of the difference.
    p : float
        Corrected for the number of heads and roles.
    texts : int
        In how many texts it could be scored.
    """

    role: int
    score: float
    error: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float
    texts: int


class AtlasTable(TypedDict):
    """Numbers of every head of a stack.

    Attributes
    ----------
    means, errors : list
        By statistic, layer and head: the mean over texts and its standard error; null where it is
        not defined.
    baselines : list
        Likewise; an empty list where a statistic has no baseline.
    texts : list
        By statistic, layer and head: how many texts the mean is of.
    roles : list
        By layer and head, the strongest first; an empty list where a head has none.
    """

    means: list[list[list[float | None]]]
    errors: list[list[list[float | None]]]
    baselines: list[list[list[float | None]]]
    texts: list[list[list[int]]]
    roles: list[list[list[AtlasRole]]]


class OffsetsHeader(TypedDict):
    """What a reply says of the mean weights of a layer's heads by offset of key from query.

    float32, (heads, bins); NaN where no pair has the offset.
    """

    bins: int


class ClassesHeader(TypedDict):
    """What a reply says of a head's mean weights by class of query and class of key.

    float32, (classes, classes), each row of one class of query; NaN where no query has this class.
    """

    classes: int


class AtlasTokens(TypedDict):
    """Tokens of one side that are kept, text by text, in the order of `AtlasTexts.numbers`.

    Attributes
    ----------
    positions : list of list of int
        Ascending, as the text has them.
    tokens : list of list of int
        Entries of the vocabulary.
    classes : list of list of list of int
        By system of classes, text and token; -1 where it is not known.
    """

    positions: list[list[int]]
    tokens: list[list[int]]
    classes: list[list[list[int]]]


class AtlasTexts(TypedDict):
    """What is kept of the texts that edges are in: the tokens around their queries and keys.

    Attributes
    ----------
    numbers : list of int
        Of the texts, ascending, as they were given.
    vocabulary : list of str
        Each different token once.
    keys : AtlasTokens or None
        null: the same tokens as the queries.
    """

    numbers: list[int]
    vocabulary: list[str]
    queries: AtlasTokens
    keys: AtlasTokens | None


class EdgeColumns(TypedDict):
    """Edges of a layer's heads, one after the other.

    Attributes
    ----------
    head : list of int
        Index of the head in the layer, ascending.
    text : list of int
        Number of the text.
    query, key : list of int
        Positions in that text.
    """

    head: list[int]
    weight: list[float]
    text: list[int]
    query: list[int]
    key: list[int]


class AtlasEdges(TypedDict):
    """Edges of a layer's heads.

    Attributes
    ----------
    strongest : EdgeColumns
        The largest weights of all texts, descending within a head.
    sampled : EdgeColumns
        A uniform sample of queries, and of each a key in proportion to its weight: a share of these
        edges estimates a share of attention.
    """

    strongest: EdgeColumns
    sampled: EdgeColumns

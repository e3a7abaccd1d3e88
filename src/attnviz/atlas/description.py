"""Types of the replies of an atlas: statistics, roles, offsets, edges and tokens.

Layers and heads are identified by their numbers in the model. Large replies are JSON that is
compressed with zlib and sent in parts. ``js/src/client/protocol.ts`` is generated from these types.
Tests in Python and in TypeScript read the same example, ``tests/fixtures/atlas.json``.
"""

from __future__ import annotations

from typing import TypedDict

from attnviz.server.description import SiblingStack


class AtlasStatistic(TypedDict):
    """Statistic that is computed for each head, such as the score of "induction" or the entropy.

    Attributes
    ----------
    unit : str
        Unit, such as "share" (a number from 0 to 1) or "nats".
    definition : str
        Definition in one sentence.
    baseline : bool
        Whether the statistic has a baseline: its expected value by chance, for example if the
        weights of each query were shuffled among its keys (``docs/heads.md``).
    """

    name: str
    unit: str
    definition: str
    baseline: bool


class AtlasRoleKind(TypedDict):
    """Role, such as "induction", for which all heads are tested. `definition` is a sentence."""

    name: str
    definition: str


class AtlasStack(TypedDict):
    """Description of a stack of an atlas: its heads, and the statistics of these heads.

    Attributes
    ----------
    layers : list of int
        Numbers of the layers in the model.
    heads_per_layer : list of int
        Number of heads of each layer, in the order of `layers`.
    causal : bool
        Whether the attention is causal: no query attends to later keys.
    same_tokens : bool
        Whether queries and keys are the same tokens.
    linear : bool
        Whether the layers are linear. Then weights are shares of the absolute weights of a query.
    statistics : list of AtlasStatistic
        Statistics that are computed for each head.
    roles : list of AtlasRoleKind
        Roles for which the heads are tested. `AtlasRole.role` is an index into this list.
    margin : float
        A head has a role only if its score exceeds the baseline significantly by more than this
        number.
    level : float
        Maximum expected share of false roles among the roles of all heads (false discovery rate).
    offsets : list of str
        Labels of the offsets for which the mean weights of each head are known. An offset is the
        position of the key minus the position of the query. The labels are "-64" to "64", "first"
        (the first key of the text) and "rest" (all other keys). In cross-attention, only "first"
        and "rest" have mean weights.
    strongest, sampled : int
        Maximum number of strongest edges (`strongest`) and of sampled edges (`sampled`) that a head
        of this stack has. In an exported page, only edges that are on the page are counted.
    strongest_in_all, sampled_in_all : int
        `strongest` and `sampled` of the complete statistics, which can have more edges than an
        exported page.
    """

    name: str
    layers: list[int]
    heads_per_layer: list[int]
    causal: bool
    same_tokens: bool
    linear: bool
    statistics: list[AtlasStatistic]
    roles: list[AtlasRoleKind]
    margin: float
    level: float
    offsets: list[str]
    strongest: int
    sampled: int
    strongest_in_all: int
    sampled_in_all: int


class AtlasDescription(TypedDict):
    """Description of an atlas: its corpus and its stacks.

    Attributes
    ----------
    texts, tokens : int
        Number of texts that the model has read (`texts`), and of their tokens (`tokens`).
    num_skipped : int
        Number of texts that were not read, because they are empty or too long for the model.
    notes : list of str
        Sentences about the statistics that the view shows.
    siblings : list of list of SiblingStack
        Groups of stacks that are different kinds of layers of one model.
    """

    model: str
    texts: int
    tokens: int
    num_skipped: int
    notes: list[str]
    stacks: list[AtlasStack]
    siblings: list[list[SiblingStack]]


class AtlasRole(TypedDict):
    """Role of a head, with the result of its statistical test.

    A head has a role if its score exceeds the baseline of the role significantly. If the role has
    several baselines, all numbers refer to the one whose test has the larger p value.

    Attributes
    ----------
    role : int
        Index of the role in `AtlasStack.roles`.
    score, standard_error : float
        Mean over texts of the score (`score`), and its standard error. The score of a text is the
        share of the head's attention on the keys of the role, averaged over the queries that have
        such a key.
    baseline, difference : float
        Mean over texts of the baseline (`baseline`), and of the score minus the baseline
        (`difference`). The baseline is the expected score by chance.
    low, high : float
        Bounds of the confidence interval of `difference`, with confidence 1 - `AtlasStack.level`.
    p : float
        P value of the test whether `difference` exceeds `AtlasStack.margin`, corrected for the
        number of heads and roles.
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
    """Statistics and roles of all heads of a stack.

    The statistics are in the order of `AtlasStack.statistics`, and the layers in the order of
    `AtlasStack.layers`.

    Attributes
    ----------
    means, standard_errors : list
        ``means[statistic][layer][head]`` is the mean of a statistic over texts, or None if it is
        defined in no text. `standard_errors` has the standard errors of these means in the same
        form, or None if the statistic is defined in fewer than two texts.
    baselines : list
        ``baselines[statistic][layer][head]`` is the mean over texts of the baseline, or None if it
        is defined in no text. For a statistic without a baseline, ``baselines[statistic]`` is an
        empty list.
    texts : list
        ``texts[statistic][layer][head]`` is the number of texts in which the statistic is defined.
    roles : list
        ``roles[layer][head]`` has the roles of a head, the main role first. Empty for a head
        without a role.
    """

    means: list[list[list[float | None]]]
    standard_errors: list[list[list[float | None]]]
    baselines: list[list[list[float | None]]]
    texts: list[list[list[int]]]
    roles: list[list[list[AtlasRole]]]


class OffsetsHeader(TypedDict):
    """Header of a reply with the mean weights by offset of all heads of a layer.

    The buffer is float32, (heads, bins). `bins` is the number of labels in `AtlasStack.offsets`.
    For an offset, an entry is the mean weight of all query-key pairs with this offset, except pairs
    with the first key. For "first" and "rest", an entry is the total weight on these keys, averaged
    over queries. An entry is NaN if the corpus has no such pair.
    """

    bins: int


class AtlasTokens(TypedDict):
    """Tokens near the queries, or near the keys, of the edges of a stack.

    Each list has one entry per text, in the order of `AtlasTexts.numbers`.

    Attributes
    ----------
    positions : list of list of int
        ``positions[text]`` has the positions of the tokens in the text, ascending.
    tokens : list of list of int
        ``tokens[text]`` has the same tokens as indices into `AtlasTexts.vocabulary`.
    """

    positions: list[list[int]]
    tokens: list[list[int]]


class AtlasTexts(TypedDict):
    """Tokens near the edges of a stack: each query and key, and up to 6 tokens before and after it.

    Attributes
    ----------
    numbers : list of int
        Index in the corpus of each text that has an edge, ascending.
    vocabulary : list of str
        Distinct tokens, as the view displays them.
    queries : AtlasTokens
        Tokens near the queries of edges. If `keys` is None, also the tokens near their keys.
    keys : AtlasTokens or None
        Tokens near the keys of edges. None if queries and keys are the same tokens.
    """

    numbers: list[int]
    vocabulary: list[str]
    queries: AtlasTokens
    keys: AtlasTokens | None


class AtlasEdgeColumns(TypedDict):
    """Edges of all heads of a layer. Entry i of each list belongs to edge i.

    The edges are sorted by head.

    Attributes
    ----------
    head : list of int
        Index of the head in the layer.
    weight : list of float
        Attention weight, rounded to four significant digits.
    text : list of int
        Index of the text in the corpus.
    query, key : list of int
        Position of the query (`query`) and of the key (`key`) in the text.
    """

    head: list[int]
    weight: list[float]
    text: list[int]
    query: list[int]
    key: list[int]


class AtlasEdges(TypedDict):
    """Edges of all heads of a layer: the strongest edges, and a random sample.

    Attributes
    ----------
    strongest : AtlasEdgeColumns
        Edges of each head with the largest weights in the corpus, in descending order of weight
        within a head.
    sampled : AtlasEdgeColumns
        Random sample of the edges of each head. Each query is drawn uniformly from the corpus, and
        its key with a probability proportional to the weight. Therefore the share of a head's
        sampled edges that have a property, such as a key that is the first token, estimates the
        share of the head's attention on such pairs.
    """

    strongest: AtlasEdgeColumns
    sampled: AtlasEdgeColumns

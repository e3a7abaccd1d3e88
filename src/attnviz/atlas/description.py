"""Types of the replies of an atlas: statistics, roles, offsets, edges and tokens.

Layers and heads are identified by their numbers in the model. Large replies are JSON that is
compressed with zlib and sent in parts. ``js/src/client/protocol.ts`` is generated from these types.
Tests in Python and in TypeScript read the same example, ``tests/fixtures/atlas.json``.
"""

from __future__ import annotations

from typing import TypedDict


class AtlasStatistic(TypedDict):
    """Description of a statistic.

    Attributes
    ----------
    unit : str
        Unit: "share" (from 0 to 1) or "nats".
    definition : str
        Definition in one sentence.
    baseline : bool
        Whether the statistic has a baseline, such as its value for uniform attention
        (``docs/heads.md``).
    """

    name: str
    unit: str
    definition: str
    baseline: bool


class AtlasRoleKind(TypedDict):
    """Name of a role for which all heads are tested, and its definition in one sentence."""

    name: str
    definition: str


class AtlasClasses(TypedDict):
    """System of classes of tokens, such as "kind" or a column with the part of speech.

    `values` has the names of the classes. A class is identified by its index in this list.
    """

    name: str
    values: list[str]


class AtlasStack(TypedDict):
    """Description of the statistics of one stack.

    Attributes
    ----------
    heads_per_layer : list of int
        Number of heads of each layer.
    causal : bool
        Whether the attention is causal: queries do not attend to later keys.
    same_tokens : bool
        Whether queries and keys are the same tokens.
    statistics : list of AtlasStatistic
        Statistics of the heads, in the order of `AtlasTable.means`.
    roles : list of AtlasRoleKind
        Roles for which the heads are tested. `AtlasRole.role` is an index into this list.
    margin : float
        A head has a role only if its score exceeds the baseline by more than this number.
    level : float
        False discovery rate of the tests over all heads and roles.
    offsets : list of str
        Labels of the bins of the mean weights by offset. An offset is the position of the key minus
        the position of the query. The labels are "-64" to "64", "first" (the first key of the text)
        and "rest" (all other keys).
    classes : list of AtlasClasses
        Systems of classes of tokens: first the kind of token, then the columns of the corpus.
    strongest, sampled : int
        Maximum number of strongest edges and of sampled edges that a head has. On a page, only the
        edges on the page count.
    strongest_in_all, sampled_in_all : int
        Maximum number of edges of a head in the complete statistics. A page may have fewer edges.
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
        Number of texts that the model has read, and number of their tokens.
    num_skipped : int
        Number of texts that were left out because they are empty or too long for the model.
    """

    model: str
    texts: int
    tokens: int
    num_skipped: int
    notes: list[str]
    stacks: list[AtlasStack]


class AtlasRole(TypedDict):
    """Role of a head, with the result of its test.

    Attributes
    ----------
    role : int
        Index into `AtlasStack.roles`.
    score, standard_error : float
        Mean of the head's score over texts, and its standard error.
    baseline, difference : float
        Mean of the baseline over texts, and mean of the score minus the baseline.
    low, high : float
        Bounds of the confidence interval of `difference`, with confidence 1 - `AtlasStack.level`.
    p : float
        P value of the difference, corrected for the number of heads and roles.
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
    """Statistics and roles of all heads of a stack, as nested lists.

    Attributes
    ----------
    means, standard_errors : list
        ``means[statistic][layer][head]`` is the mean over texts, or null if it is undefined.
        `standard_errors` has the standard errors of these means in the same order.
    baselines : list
        Means of the baselines in the same order. A statistic without a baseline has an empty list.
    texts : list
        Number of texts in each mean, in the same order.
    roles : list
        ``roles[layer][head]`` has the roles of a head, the strongest first. It is an empty list for
        a head without a role.
    """

    means: list[list[list[float | None]]]
    standard_errors: list[list[list[float | None]]]
    baselines: list[list[list[float | None]]]
    texts: list[list[list[int]]]
    roles: list[list[list[AtlasRole]]]


class OffsetsHeader(TypedDict):
    """Header of a reply with mean weights by offset, for all heads of a layer.

    The data of the reply is float32, (heads, bins). The bins have the labels `AtlasStack.offsets`.
    An entry is NaN if no query-key pair of the corpus has the offset.
    """

    bins: int


class ClassesHeader(TypedDict):
    """Header of a reply with the mean weights of a head by class of query and class of key.

    The data of the reply is float32, (classes, classes). Rows are classes of queries, and columns
    are classes of keys. A row is NaN if no query of the corpus has its class.
    """

    classes: int


class AtlasTokens(TypedDict):
    """Tokens near edges, either for queries or for keys.

    Each attribute has one list per text, in the order of `AtlasTexts.numbers`.

    Attributes
    ----------
    positions : list of list of int
        Positions of the tokens in the text, ascending.
    tokens : list of list of int
        Texts of the tokens, as indices into `AtlasTexts.vocabulary`.
    classes : list of list of list of int
        ``classes[system][text]`` has the class of each token, or -1 for a token without a class.
    """

    positions: list[list[int]]
    tokens: list[list[int]]
    classes: list[list[list[int]]]


class AtlasTexts(TypedDict):
    """Tokens near the queries and near the keys of all edges of a stack.

    Attributes
    ----------
    numbers : list of int
        Numbers of the texts in the corpus, ascending.
    vocabulary : list of str
        Texts of all tokens, each only once.
    queries : AtlasTokens
        Tokens of the query texts.
    keys : AtlasTokens or None
        Tokens of the key texts. null if queries and keys are the same tokens.
    """

    numbers: list[int]
    vocabulary: list[str]
    queries: AtlasTokens
    keys: AtlasTokens | None


class AtlasEdgeColumns(TypedDict):
    """Edges of all heads of a layer. Entry i of each list belongs to edge i.

    Attributes
    ----------
    head : list of int
        Numbers of the heads, ascending.
    weight : list of float
        Attention weights.
    text : list of int
        Numbers of the texts in the corpus.
    query, key : list of int
        Positions of query and key in the text.
    """

    head: list[int]
    weight: list[float]
    text: list[int]
    query: list[int]
    key: list[int]


class AtlasEdges(TypedDict):
    """Edges of all heads of a layer.

    Attributes
    ----------
    strongest : AtlasEdgeColumns
        Edges with the largest weights in the corpus. Within a head, the weights descend.
    sampled : AtlasEdgeColumns
        Edges of a random sample. Each edge has a query drawn uniformly from the corpus, and a key
        drawn with a probability proportional to its weight. A share of these edges estimates the
        same share of the head's attention.
    """

    strongest: AtlasEdgeColumns
    sampled: AtlasEdgeColumns

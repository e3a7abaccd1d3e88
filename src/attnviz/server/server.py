"""Server that answers the requests of the views of a record.

A view never receives all weights of a record. It requests the description of the record once, and
then only the weights that it draws. Each kind of request is a class in this module. Its fields are
the arguments, and its method `answer` computes the reply. For all requests:

- The arguments are checked before the computation starts.
- The buffer of a reply has at most one megabyte (`attnviz.server.protocol.MAX_REPLY_BYTES`).
- The size of caches is limited.

A stack is the attention of one kind in all layers, such as "self" or "cross". The answer of a run
of the model is the number that is measured in this run, for example the logit of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from attnviz.analysis.heads import head_scores
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Prediction
from attnviz.server.base import BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.description import (
    Description,
    StackNumbers,
    describe,
    pack_description,
)
from attnviz.server.images import ImageHeader, encode_image
from attnviz.server.protocol import (
    MAX_REPLY_BYTES,
    PartHeader,
    Range,
    Reply,
    Requests,
    check_heads,
    check_reply_size,
    range_slice,
)
from attnviz.server.reads import HEADERS, ReadRequest
from attnviz.server.row_normalizers import CACHE_BYTES, RowNormalizers
from attnviz.server.vectors import VectorsHeader, encode_row_vectors
from attnviz.utils.arguments import existing_number
from attnviz.utils.numbers import finite_lists

RECORD_REQUESTS: Requests[RecordServer] = Requests(
    "The attnviz of the kernel may be older than the view."
)
RECORD_REQUESTS.add("page", PageHeader, live=True)(PageRequest)
RECORD_REQUESTS.add("read", *HEADERS)(ReadRequest)


class RecordServer(BaseServer):
    """Server that answers requests about one record.

    Parameters
    ----------
    record : AttentionRecord
        Record that the requests are about.
    page : callable, optional
        Function that makes the exported page from the state of a view. If omitted, the page cannot
        be exported from the browser.
    interventions : Interventions, optional
        Object that runs the model with changed attention. If omitted, requests that need the model
        raise an error.
    share : int
        Number of servers that share the default cache size `CACHE_BYTES`.

    Examples
    --------
    >>> from attnviz.record.record import AttentionRecord
    >>> server = RecordServer(AttentionRecord.from_weights([[[[1.0]]]], ["a"]))
    >>> server.reply("describe", {}).header["stacks"][0]["layers"]
    [0]
    """

    requests = RECORD_REQUESTS

    def __init__(
        self,
        record: AttentionRecord,
        page: MakePage | None = None,
        *,
        interventions: Interventions | None = None,
        share: int = 1,
    ) -> None:
        super().__init__(page)
        self.record = record
        self._interventions = interventions
        self.row_normalizers = RowNormalizers(CACHE_BYTES // share)
        self.description: Description | bytes | None = None

    def stack(self, name: str) -> AttentionStack:
        """Return a stack of the record, or of a cached run of the model with changed attention."""
        changed = None if self._interventions is None else self._interventions.stack(name)
        return self.record.stack(name) if changed is None else changed

    @property
    def interventions(self) -> Interventions:
        """Object that runs the model. Raise ValueError if the view has no model."""
        if self._interventions is None:
            raise ValueError("this view has no model")
        return self._interventions


# Maximum number of bytes of one score in JSON, including the separator after it.
_SCORE_BYTES = 22


@RECORD_REQUESTS.add("describe", Description, PartHeader)
@dataclass(frozen=True)
class DescribeRequest:
    """Request for the description of the record.

    For a short text, the header of the reply is the `Description`. For a long text, the description
    is JSON, compressed with zlib and divided into parts. The header is then a `PartHeader`, and the
    buffer has the part with the index `part`, from 0.
    """

    part: int = 0

    def answer(self, server: RecordServer) -> Reply:
        if server.description is None:
            description = describe(server.record)
            server.description = pack_description(description) or description
        if not isinstance(server.description, bytes):
            return Reply(server.description)
        packed = server.description
        return server.part(self, lambda: ({}, packed))


class ScoresHeader(TypedDict):
    """Header of a reply with the score of each head for one measure.

    Attributes
    ----------
    scores : list of list of (float or None)
        ``scores[i][head]`` is the score of a head in the layer `StackNumbers.layers[i]`. None if
        the score is undefined or infinite.
    """

    scores: list[list[float | None]]


@RECORD_REQUESTS.add("scores", ScoresHeader)
@dataclass(frozen=True)
class ScoresRequest:
    """Request for the score of each head of a stack for a measure, such as "previous token".

    `pattern` is the name of the measure, from `StackNumbers.patterns`. For long texts, scores are
    estimated from sampled queries (`StackNumbers.sampled`).
    """

    stack: str
    pattern: str

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        count = sum(stack.heads_per_layer)
        check_reply_size(
            f"scores of {count:,} heads", _SCORE_BYTES * count, "Capture fewer layers."
        )
        queries = num_scored_queries(stack)
        scores = head_scores(stack, self.pattern, max_queries=queries)
        return Reply({"scores": finite_lists(scores)})


@RECORD_REQUESTS.add("vectors", VectorsHeader)
@dataclass(frozen=True)
class VectorsRequest:
    """Request for a query vector and some key vectors of a head, with their logits and weights.

    Attributes
    ----------
    token : int
        Position of the query.
    keys : range
        Range of keys.
    """

    stack: str
    layer: int
    head: int
    token: int
    keys: Range

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        return encode_row_vectors(
            stack,
            layer=self.layer,
            head=self.head,
            token=self.token,
            keys=range_slice("keys", self.keys, len(stack.key_tokens)),
        )


@RECORD_REQUESTS.add("image", ImageHeader)
@dataclass(frozen=True)
class ImageRequest:
    """Request for an image in the model's input, by its index in `Description.images`.

    An image that is too large for one reply is scaled down.
    """

    index: int

    def answer(self, server: RecordServer) -> Reply:
        images = server.record.images
        owner = f"the record has {len(images)} images,"
        index = existing_number("index", self.index, range(len(images)), owner)
        return Reply(*encode_image(images[index], MAX_REPLY_BYTES))


class AnswerToken(TypedDict):
    """Token or class that the model predicts. `text` is the displayed text.

    `id` is the id of the token in the vocabulary, or the index of the class.
    """

    text: str
    id: int


class OutcomeHeader(TypedDict):
    """Header of a reply with the effect of changes on the answer.

    The answer is the number that is measured, for example the logit of one token minus the logit of
    another. The noise bounds the rounding error of the effect. It is estimated from runs of the
    unchanged model in which the output of each module is rounded differently. An effect that is not
    larger than the noise shows nothing.

    Attributes
    ----------
    sentence : str
        Sentence for the reader with the answer before and after the changes, and the noise. If the
        request has no changes, the sentence describes the unchanged run. It also has the rank of
        the effect among those of the same change of all heads, tokens or layers, if it is known.
    measure : str
        Description of the answer, such as the two tokens whose logits are compared.
    unranked : str
        The heads, tokens or layers whose effects must be measured to find the rank, such as
        "16 heads". Empty if the rank is known, or if the changes have none.
    is_cheap : bool
        Whether these effects can be measured in about a second.
    candidates_before, candidates_after : list of AnswerToken
        Most probable tokens or classes, in descending order, of the unchanged run
        (`candidates_before`) and of the changed run (`candidates_after`).
    """

    sentence: str
    measure: str
    unranked: str
    is_cheap: bool
    candidates_before: list[AnswerToken]
    candidates_after: list[AnswerToken]


class ChangedStack(TypedDict):
    """Stack of a run with changed attention, and its difference from the unchanged run.

    The names of `after` and `difference` can be used in other requests, for example for weights.

    Attributes
    ----------
    stack : str
        Name of this stack in the record, which has the attention of the unchanged run.
    after : StackNumbers
        Properties of the stack in the changed run.
    difference : StackNumbers
        Properties of the stack of differences: weights of the changed run minus weights of the
        unchanged run.
    predictions : list of Prediction
        Predictions of the changed run for the tokens in `TokenList.predictions`. Empty if there are
        none.
    """

    stack: str
    after: StackNumbers
    difference: StackNumbers
    predictions: list[Prediction]


class ChangedHeader(TypedDict):
    """Header of a reply with the stacks of a run with changed attention."""

    stacks: list[ChangedStack]


class Cut(TypedDict):
    """Effect of one run in which a query-key pair was cut, that is, its attention was removed.

    Attributes
    ----------
    description : str
        Words that say where the pair was cut (in one head, or in several heads or layers), with the
        answer before and after, and whether the effect is larger than the noise.
    measure : str
        Description of the measured answer, as in `OutcomeHeader`.
    """

    description: str
    measure: str


class EdgeHeader(TypedDict):
    """Header of a reply about an edge: the contribution of its key, and the effects of cutting it.

    Cutting an edge removes the attention of the query to the key.

    Attributes
    ----------
    model : {"waits", "ready"}
        Whether the model has run for this view ("ready"), or has not run yet ("waits"). While it is
        "waits", the other values are not known.
    share : float or None
        Contribution of the key to the output of the head for this query: the norm of weight times
        value vector times output projection, divided by the sum of these norms over all keys. None
        if it is not known.
    share_problem : str
        Reason, in words, why `share` is None. "" if `share` is known, or if `model` is "waits".
    cuts : list of Cut
        Effects of earlier runs that cut only this edge, possibly in several heads or layers.
    """

    model: Literal["waits", "ready"]
    share: float | None
    share_problem: str
    cuts: list[Cut]


class Interventions(Protocol):
    """Interface of an object that runs the model of a view with changed attention."""

    def outcome(
        self,
        changes: tuple[Mapping[str, Any], ...],
        measured: tuple[int | str, ...] | None,
        *,
        ranks: bool = False,
    ) -> OutcomeHeader:
        """Run the model with all `changes` together, and return their effect on the answer.

        `measured` and `ranks` are those of `InterveneRequest`. The model does not run if the run
        is cached.
        """
        ...

    def changed(self, changes: tuple[Mapping[str, Any], ...]) -> ChangedHeader:
        """Describe the stacks of the run with `changes`, and cache them for the method `stack`.

        Run the model if the run is not cached.
        """
        ...

    def stack(self, name: str) -> AttentionStack | None:
        """Return the stack `name` of a cached run, or None if no cached run has this stack."""
        ...

    def edge(self, asked: EdgeRequest) -> EdgeHeader:
        """Describe a query-key pair from earlier runs, without running the model."""
        ...


@RECORD_REQUESTS.add("intervene", OutcomeHeader, live=True)
@dataclass(frozen=True)
class InterveneRequest:
    """Request to run the model with changed attention, and to measure the effect on the answer.

    Attributes
    ----------
    changes : list of objects
        Changes of the attention, all made in the same run. Each is an object whose `kind` is the
        name of a Python class, such as "Ablate", and whose other fields are the arguments of this
        class. If the list is empty, the reply describes the unchanged run.
    measured : list of (int or str), or None
        Answer to measure. Two tokens (or classes), by text or id: the logit of the first minus the
        logit of the second. One token: its logit minus that of the most likely other token. An
        empty list: the default answer of `attnviz.intervene` in Python. If omitted, the answer that
        the user chose in Python, which can be a function.
    ranks : bool
        Whether to measure the effects of the same change of all heads, tokens or layers, so that
        the rank of the effect is known.
    """

    changes: tuple[Mapping[str, Any], ...]
    measured: tuple[int | str, ...] | None = None
    ranks: bool = False

    def answer(self, server: RecordServer) -> Reply:
        outcome = server.interventions.outcome(self.changes, self.measured, ranks=self.ranks)
        return Reply(outcome)


@RECORD_REQUESTS.add("changed", ChangedHeader, live=True)
@dataclass(frozen=True)
class ChangedRequest:
    """Request for the stacks of the run with `changes`, and their differences.

    `changes` has the same form as in `InterveneRequest`, but must not be empty. The reply has no
    weights. They are requested separately, by the names of the stacks.
    """

    changes: tuple[Mapping[str, Any], ...]

    def answer(self, server: RecordServer) -> Reply:
        """Describe the stacks. Run the model if the run with `changes` is not cached."""
        return Reply(server.interventions.changed(self.changes))


@RECORD_REQUESTS.add("edge", EdgeHeader, live=True)
@dataclass(frozen=True)
class EdgeRequest:
    """Request for the contribution of a key to a query, and for the effects of cutting this edge.

    The model does not run. The reply has only effects of earlier runs. `query` and `key` are
    positions.
    """

    stack: str
    layer: int
    head: int
    query: int
    key: int

    def answer(self, server: RecordServer) -> Reply:
        """Describe the pair from earlier runs, without running the model."""
        stack = server.record.stack(self.stack)
        check_heads(stack, self.layer, (self.head,))
        stack.query_tokens.position(self.query, "query")
        stack.key_tokens.position(self.key, "key")
        return Reply(server.interventions.edge(self))

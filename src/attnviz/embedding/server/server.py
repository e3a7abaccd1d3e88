"""Answers what a view may ask of a corpus.

What is asked with the number of a text is answered from that text's record, as for any other view;
all else is about the points of the whole corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.server.description import describe_corpus, packed_points
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.embedding.server.weights import aggregate, lines
from attnviz.server.cache import KeptAnswers
from attnviz.server.server import RecordServer, Reply, part_of

__all__ = ["MOST_BINS", "CorpusServer"]

# Texts whose servers are kept: each may hold what rows were divided by.
_TEXTS_KEPT = 4
#: Rows and columns of a mean by position at most.
MOST_BINS = 256
# Plots in parts: a reader has one or two under way.
_PARTS_KEPT = 16_000_000


class CorpusServer:
    """Serves the points of a corpus, and the pieces of its texts.

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    page : callable, optional
        Makes the exported page from a view's state; without it views offer no HTML export.

    Attributes
    ----------
    answers : EmbeddingAnswers
        Plots and figures, with what was computed of them.

    Examples
    --------
    >>> server = CorpusServer(attnviz.Corpus(records))                      # doctest: +SKIP
    >>> server.reply("overview", {"stack": "self", "layers": [0], "way": way})  # doctest: +SKIP
    """

    def __init__(
        self,
        corpus: Corpus,
        page: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None,
    ) -> None:
        self.corpus = corpus
        self.answers = EmbeddingAnswers(corpus)
        # The page goes out in parts as that of any view does; no record of a text knows of it.
        self._pages = RecordServer(corpus.records[0], page=page)
        self._texts: KeptAnswers[RecordServer] = KeptAnswers(_TEXTS_KEPT, lambda _: 1)
        self._points: dict[str, bytes] = {}
        self._parts: KeptAnswers[tuple[dict[str, Any], bytes]] = KeptAnswers(
            _PARTS_KEPT, lambda answer: len(answer[1])
        )
        self._answers: dict[str, Callable[[Mapping[str, Any]], Reply]] = {
            "describe": self._describe,
            "corpus": self._corpus,
            "overview": self._in_parts("overview", self.answers.overview),
            "projection": self._in_parts("projection", self.answers.projection),
            "norms": self._in_parts("norms", self.answers.norms),
            "cancel": self._cancel,
            "trust": self._trust,
            "aggregate": self._aggregate,
            "lines": self._lines,
            "page": lambda arguments: self._pages.reply("page", arguments),
        }

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one request.

        Parameters
        ----------
        name : str
            What is asked for: ``"describe"``, ``"corpus"``, ``"overview"``, ``"projection"``,
            ``"cancel"``, ``"trust"``, ``"norms"``, ``"aggregate"``, ``"lines"`` or ``"page"``;
            with ``text`` among the arguments whatever `attnviz.server.server.RecordServer` knows.
        arguments : mapping
            Its arguments.

        Returns
        -------
        Reply

        Raises
        ------
        KeyError, IndexError, TypeError, ValueError
            If the request makes no sense for this corpus, with what would.
        """
        if arguments.get("text") is not None:
            rest = {key: value for key, value in arguments.items() if key != "text"}
            return self._text(int(arguments["text"])).reply(name, rest)
        if name not in self._answers:
            raise ValueError(
                f"request {name!r} is unknown of a corpus; of one of its texts say which, text=..."
            )
        return self._answers[name](arguments)

    def _text(self, text: int) -> RecordServer:
        count = len(self.corpus.records)
        if not 0 <= text < count:
            raise IndexError(f"text={text}: the corpus has texts 0 to {count - 1}")
        server = self._texts.get(text)
        if server is None:
            server = RecordServer(self.corpus.records[text])
            self._texts[text] = server
        return server

    def _describe(self, arguments: Mapping[str, Any]) -> Reply:
        del arguments
        return Reply(describe_corpus(self.corpus))

    def _corpus(self, arguments: Mapping[str, Any]) -> Reply:
        stack = str(arguments["stack"])
        if stack not in self._points:
            self._points[stack] = packed_points(self.corpus, stack)
        piece, parts = part_of(self._points[stack], int(arguments.get("part", 0)), "a corpus")
        return Reply({"parts": parts}, piece)

    def _in_parts(
        self, name: str, answer: Callable[[Mapping[str, Any]], tuple[dict[str, Any], bytes]]
    ) -> Callable[[Mapping[str, Any]], Reply]:
        """Send an answer in parts, all of the same: a plot on its way moves on in between."""

        def reply(arguments: Mapping[str, Any]) -> Reply:
            part = int(arguments.get("part", 0))
            rest = {key: arguments[key] for key in arguments if key not in {"part", "restart"}}
            key = (name, repr(sorted(rest.items())))
            kept = self._parts.get(key) if part else None
            header, data = answer(arguments) if kept is None else kept
            piece, parts = part_of(data, part, f"the answer to {name!r}")
            if parts > 1:
                self._parts[key] = header, data
            return Reply(header | {"parts": parts}, piece)

        return reply

    def _cancel(self, arguments: Mapping[str, Any]) -> Reply:
        self.answers.cancel(arguments)
        return Reply({})

    def _trust(self, arguments: Mapping[str, Any]) -> Reply:
        return Reply({"heads": self.answers.trust(arguments)})

    def _aggregate(self, arguments: Mapping[str, Any]) -> Reply:
        stack, layer, head = _head_of(arguments)
        size = int(arguments["size"])
        if not 1 <= size <= MOST_BINS:
            raise ValueError(f"size={size} must lie between 1 and {MOST_BINS}")
        found = aggregate(self.corpus, stack, layer, head, size)
        return Reply(found.header(), found.weights.astype("<f4").tobytes())

    def _lines(self, arguments: Mapping[str, Any]) -> Reply:
        stack, layer, head = _head_of(arguments)
        return Reply(lines(self.corpus, stack, layer, head, int(arguments["point"])))


def _head_of(arguments: Mapping[str, Any]) -> tuple[str, int, int]:
    return str(arguments["stack"]), int(arguments["layer"]), int(arguments["head"])

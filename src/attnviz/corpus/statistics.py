"""Head statistics over a corpus: an object of limited size, to which texts are added.

The object has sums over texts and a limited number of edges, but no records (a record has the
attention in one text). The statistics of the parts of a corpus add up to the statistics of the
whole corpus.

A stack is the attention of one kind, such as "self" or "cross", in all layers. A score is a number
for each head and text, such as the weight on the previous token. It is not defined in a text
without the pairs of tokens that it measures. For example, the weight on earlier tokens with the
same text is not defined if all tokens are different. An edge is a pair of a query and a key with
its weight. The offset of a pair is the position of its key minus the position of its query.

A system of classes assigns at most one class to each token. Each corpus has the system "kind",
whose classes are kinds of tokens such as punctuation. Each column that the user passes, such as
parts of speech, is a further system.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.accumulator import Accumulator
from attnviz.corpus.edges import Edge, EdgeColumns, NearTokens
from attnviz.corpus.measuring import OFFSET_LABELS, score_names
from attnviz.corpus.roles import Evidence, Roles, checked_share, score_of_roles
from attnviz.corpus.statistics_file import read_totals, write_totals
from attnviz.corpus.texts import notes_on_left_out
from attnviz.corpus.totals import KIND, ClassTotals, Settings, StackTotals, Totals
from attnviz.record.head_numbers import HeadNumbers
from attnviz.record.record import AttentionRecord
from attnviz.record.table import require_pandas
from attnviz.utils.arguments import as_path, existing_name, format_numbers, whole_number

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]

_SEVERAL_CORPORA = (
    "Sum over corpora that were counted separately: the rarest token of a text was found with the "
    "counts of one corpus."
)


class HeadStatistics:
    """Statistics of every head over many texts: scores, weights by offset and by class, and edges.

    Create the statistics with `attnviz.head_statistics`, or add records one by one with `add`. The
    sum (``+``) of two objects is the statistics of the texts of both. Both objects must have the
    same model, and the same arguments except `frequencies`. If `frequencies` are equal, the objects
    belong to one corpus, and no text may be in both. If `frequencies` differ, the objects belong to
    two corpora. In that case the texts of the second object get new indices after those of the
    first, and the score "rarest token" of a text uses the frequencies of the text's corpus.

    Parameters
    ----------
    model : str, optional
        Name of the model. By default the model's name in the first record.
    weights : str, optional
        Hash of the model's weights, which `attnviz.head_statistics` computes. Statistics with
        different hashes cannot be added.
    edges : int, default 100
        Maximum number of strongest edges, and of sampled edges, that are kept for each head: 0 to
        10,000. The strongest edges have the largest weights. The sampled edges are a random sample.
    seed : int, default 0
        Seed of the sampled edges.
    columns : sequence of str
        Names of additional systems of classes of tokens, such as ``"pos"`` for parts of speech.
    frequencies : mapping of int or str to int, optional
        Number of occurrences of each token in the corpus, for the score "rarest token". The keys
        are token ids, or the texts of tokens if the ids are not known. A token that is not in the
        mapping has the number 0. The rarest tokens of a text are those with the smallest number
        and, among these, those that occur least often in the text itself (`TokenFacts.rarest`).

    Attributes
    ----------
    totals : Totals
        Sums over the texts, from which all statistics are computed (`attnviz.corpus.totals`).

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> statistics = HeadStatistics()
    >>> statistics.add(record)
    >>> [layer.round(6).tolist() for layer in statistics.stack().mean("previous token")]
    [[0.4]]
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        weights: str = "",
        edges: int = 100,
        seed: int = 0,
        columns: Sequence[str] = (),
        frequencies: Mapping[int | str, int] | None = None,
    ) -> None:
        listed = (columns,) if isinstance(columns, str) else tuple(columns)
        settings = Settings(edges, seed, listed, dict(frequencies or {}))
        self.totals = Totals(settings, model, weights)
        self._stacks: dict[str, tuple[StackTotals, StackStatistics]] = {}

    @property
    def model(self) -> str:
        """Name of the model, or "" if the name is not known."""
        return self.totals.model or ""

    @property
    def weights(self) -> str:
        """Hash of the model's weights, or "" if the hash is not known."""
        return self.totals.weights

    @property
    def edges(self) -> int:
        """Maximum number of strongest edges, and of sampled edges, of each head."""
        return self.totals.settings.edges

    @property
    def seed(self) -> int:
        """Seed of the sampled edges."""
        return self.totals.settings.seed

    @property
    def texts(self) -> int:
        """Number of texts that were read. Texts that were left out are not counted."""
        return self.totals.num_texts

    @property
    def tokens(self) -> int:
        """Number of tokens of the texts that were read."""
        return self.totals.tokens

    @property
    def num_skipped(self) -> int:
        """Number of texts that were left out because they are empty or too long for the model."""
        return self.totals.empty + self.totals.too_long

    @property
    def text_numbers(self) -> tuple[tuple[int, int], ...]:
        """Indices of all texts, read or left out, as ascending half-open ranges (start, stop)."""
        return self.totals.texts

    @property
    def notes(self) -> list[str]:
        """Sentences for readers of the statistics, for example on texts that were left out."""
        left_out = notes_on_left_out(self.totals.empty, self.totals.too_long)
        return [*self.totals.remarks, *left_out]

    @property
    def stack_names(self) -> tuple[str, ...]:
        """Names of the stacks, in the order in which they were first added."""
        return tuple(self.totals.stacks)

    @property
    def class_systems(self) -> tuple[str, ...]:
        """Names of the systems of classes of tokens: ``"kind"``, followed by the columns."""
        return self.totals.settings.class_systems

    def roles(self, margin: float = 0.1, level: float = 0.05) -> Roles:
        """Return the roles of the heads if the statistics have only one stack.

        Parameters
        ----------
        margin, level : float
            As in `StackStatistics.roles`.

        Returns
        -------
        Roles

        Raises
        ------
        ValueError
            If the statistics have several stacks. In that case use, for example,
            ``stack("cross").roles()``. Also if no text was added yet.
        """
        if len(self.stack_names) > 1:
            names = " and ".join(f"stack({name!r}).roles()" for name in self.stack_names)
            raise ValueError(
                f"these statistics have several stacks, each with its own roles. Use {names}."
            )
        return self.stack().roles(margin, level)

    def stack(self, name: str | None = None) -> StackStatistics:
        """Return the statistics of one stack. The result does not change if texts are added later.

        Parameters
        ----------
        name : str, optional
            One of `stack_names`. By default the first.

        Returns
        -------
        StackStatistics

        Raises
        ------
        KeyError
            If the stack does not exist. The error lists the valid values.
        ValueError
            If no text was added yet.
        """
        if not self.totals.stacks:
            raise ValueError("the statistics have no texts yet. Add one with add(record).")
        chosen = self.stack_names[0] if name is None else name
        existing_name("stack", chosen, self.stack_names, "these statistics have the stacks")
        totals = self.totals.stacks[chosen]
        # Cache the result, because views call this function often, and `StackStatistics` joins the
        # edges of all texts, which is slow.
        cached = self._stacks.get(chosen)
        if cached is None or cached[0] is not totals:
            stack = StackStatistics(chosen, totals, self.edges, self.class_systems)
            cached = self._stacks[chosen] = totals, stack
        return cached[1]

    def add(
        self,
        record: AttentionRecord,
        text: int | None = None,
        *,
        columns: Mapping[str, Any] | None = None,
        parse: Any = None,
    ) -> None:
        """Add the record of one text.

        Parameters
        ----------
        record : AttentionRecord
            Record with the same model, layers and heads as the records that were added before.
        text : int, optional
            Index of the text. By default one more than the largest index so far, or 0.
        columns : mapping of str to object, optional
            For each column, the class of the text, or a sequence with the class of each of its
            tokens. None means an unknown class. A column that is not passed has unknown classes.
        parse : sequence, optional
            Dependency parse of the text, such as ``(heads, relations)``, as for
            `attnviz.head_statistics`.

        Raises
        ------
        TypeError
            If an argument has a wrong type.
        ValueError
            If the text was added before. If the record has another model, other layers or other
            numbers of heads. If it has signed numbers instead of weights, such as differences. If
            `columns` or `parse` does not fit the tokens. After an error the statistics are
            unchanged.
        """
        following = self.text_numbers[-1][1] if self.text_numbers else 0
        accumulator = Accumulator(self.totals)
        accumulator.add(record, following if text is None else text, columns, parse)
        self.totals = accumulator.result()

    def skip(self, text: int, why: str) -> None:
        """Count a text that was left out.

        Parameters
        ----------
        text : int
            Index of the text.
        why : {"empty", "too long"}
            Reason why the text was left out.

        Raises
        ------
        ValueError
            If the text was added before, or `why` has another value.
        """
        accumulator = Accumulator(self.totals)
        accumulator.skip(text, why)
        self.totals = accumulator.result()

    def __add__(self, other: object) -> HeadStatistics:
        if not isinstance(other, HeadStatistics):
            return NotImplemented
        first, second = self.totals, other.totals
        counts = first.settings.frequencies, second.settings.frequencies
        if counts[0] != counts[1]:
            joined = dict(Counter(counts[0]) + Counter(counts[1]))
            first = replace(first, settings=replace(first.settings, frequencies=joined))
            if first.texts and second.texts:
                # The indices of texts start at 0 in both corpora. Increase those of `second`, so
                # that no two texts have the same index.
                second = second.renumbered(first.texts[-1][1])
                second = replace(second, remarks=(*second.remarks, _SEVERAL_CORPORA))
        return self.of_totals(first.plus(second))

    @classmethod
    def of_totals(cls, totals: Totals) -> Self:
        """Return the statistics of the texts of `totals`.

        Parameters
        ----------
        totals : Totals
            Sums over texts, such as the result of an `attnviz.corpus.accumulator.Accumulator`.

        Returns
        -------
        HeadStatistics
        """
        statistics = cls()
        statistics.totals = totals
        return statistics

    def save(self, path: str | os.PathLike[str]) -> Any:
        """Save the statistics to a file.

        Parameters
        ----------
        path : path-like
            Path of the file. If it ends with ``.parquet``, the file has only the table of scores
            that `to_pandas` returns. Otherwise it is a ``.safetensors`` file, which has all
            statistics and can be read with `load`.

        Returns
        -------
        Path
            Absolute path of the file.

        Raises
        ------
        OSError
            If the file cannot be written.
        ImportError
            If `path` is a ``.parquet`` file and pandas or pyarrow is not installed.
        """
        if as_path("path", path, "file").suffix.lower() == ".parquet":
            table = self.to_pandas()
            target = as_path("path", path, "file").absolute()
            table.to_parquet(target, index=False)
            return target
        return write_totals(path, self.totals)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load statistics that `save` wrote.

        Parameters
        ----------
        path : path-like
            Path of a ``.safetensors`` file.

        Returns
        -------
        HeadStatistics

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If the file is damaged, does not contain statistics, or has a format that this version
            of attnviz does not read.
        """
        totals = read_totals(path)
        return cls.of_totals(totals)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table of scores, with one row for each score of each head.

        Returns
        -------
        DataFrame
            Columns ``stack, layer, head, score, mean, standard_error, baseline, texts``. ``score``
            is the name of the score, and ``texts`` the number of texts in which it is defined.
            ``mean``, ``standard_error`` and ``baseline`` are the results of these methods of
            `StackStatistics`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        require_pandas()
        import pandas as pd

        rows = [
            (name, layer, head, score, *of_head)
            for name in self.stack_names
            for score in self.stack(name).score_names
            for layer, of_layer in self.stack(name)._numbers_by_layer(score)
            for head, of_head in enumerate(of_layer)
        ]
        columns = ["stack", "layer", "head", "score", "mean", "standard_error", "baseline", "texts"]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        of = f" of {self.model}" if self.model else ""
        heads = sum(stack.num_heads for stack in self.totals.stacks.values())
        return (
            f"<HeadStatistics{of}: {heads} head{'' if heads == 1 else 's'} over {self.texts:,} "
            f"text{'' if self.texts == 1 else 's'}, {self.tokens:,} tokens>"
        )


class StackStatistics(HeadNumbers):
    """Statistics of the heads of one stack over many texts. Returned by `HeadStatistics.stack`.

    Methods that return a number for each head return a list with one array, (heads,), for each
    layer.

    Attributes
    ----------
    name : str
        Name of the stack.
    layers : tuple of int
        Numbers of the layers in the model.
    heads_per_layer : tuple of int
        Number of heads of each layer.
    causal : bool
        Whether queries can attend only to keys at the same or an earlier position.
    one_text : bool
        Whether queries and keys are the same tokens.
    linear : bool
        Whether the layers are linear. In this case, all statistics use shares instead of weights:
        the absolute value of a weight, divided by the sum of the absolute weights of its query. Do
        not compare these statistics with those of softmax layers.
    score_names : tuple of str
        Names of the scores that are defined in at least one text.
    offset_labels : tuple of str
        Labels of the columns of `offsets`: "-64" to "64", "first" and "rest".
    class_systems : tuple of str
        Names of the systems of classes of tokens. The first is ``"kind"``, the kinds of tokens.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> stack = av.head_statistics([record] * 5, progress=False).stack()
    >>> stack  # doctest: +ELLIPSIS
    <StackStatistics 'self': layers 0, 1 head, ... scores>
    >>> stack.offsets(0)[0, stack.offset_labels.index("first")].round(6)
    np.float64(0.7)
    >>> edge = stack.strongest(layer=0, head=0)[0]
    >>> edge.query_token, edge.key_token, round(edge.weight, 6)
    ('b', 'b', 0.6)
    """

    def __init__(
        self, name: str, totals: StackTotals, max_edges: int, class_systems: Sequence[str]
    ) -> None:
        self._totals = totals.settled(max_edges)
        self._kept = self._totals.edges[0]
        super().__init__(name, totals.layers, totals.heads_per_layer)
        self.causal, self.one_text, self.linear = totals.causal, totals.one_text, totals.linear
        self.class_systems = tuple(class_systems)
        self._roles: Roles | None = None
        self.offset_labels = OFFSET_LABELS
        defined = {score for score, sums in totals.scores.items() if sums[0, 0].any()}
        others = sorted(defined.difference(score_names()))
        self.score_names = tuple(score for score in (*score_names(), *others) if score in defined)

    def mean(self, score: str) -> list[Numbers]:
        """Return the mean of a score over texts for each head.

        Parameters
        ----------
        score : str
            One of `score_names`.

        Returns
        -------
        list of ndarray of float64
            One array for each layer, (heads,). NaN if the score is not defined in any text.

        Raises
        ------
        KeyError
            If the score does not exist. The error lists the valid values.
        """
        return self._by_layer(self._evidence(score).score)

    def standard_error(self, score: str) -> list[Numbers]:
        """Return the standard error over texts of the mean of a score.

        Parameters
        ----------
        score : str
            One of `score_names`.

        Returns
        -------
        list of ndarray of float64
            One array for each layer, (heads,). NaN if the score is defined in fewer than two texts.

        Raises
        ------
        KeyError
            If the score does not exist.
        """
        return self._by_layer(self._evidence(score).standard_error)

    def baseline(self, score: str) -> list[Numbers] | None:
        """Return the mean baseline of a score for each head.

        The baseline is the score that the head would have by chance, for example if the weights of
        each query were shuffled among its keys (``docs/heads.md``).

        Parameters
        ----------
        score : str
            One of `score_names`.

        Returns
        -------
        list of ndarray of float64, or None
            One array for each layer, (heads,). If a score has several baselines, each head has the
            largest of their means. NaN for a head without a baseline. None if no head has a
            baseline, for example for the score "entropy".

        Raises
        ------
        KeyError
            If the score does not exist.
        """
        # A baseline that is not defined in any text is NaN, and `fmax` ignores NaN.
        baseline = np.fmax.reduce(self._evidence(score).baseline)
        return None if np.isnan(baseline).all() else self._by_layer(baseline)

    def counts(self, score: str) -> list[NDArray[np.int64]]:
        """Return, for each head, the number of texts in which a score is defined.

        Parameters
        ----------
        score : str
            One of `score_names`.

        Returns
        -------
        list of ndarray of int64
            One array for each layer, (heads,).

        Raises
        ------
        KeyError
            If the score does not exist.
        """
        return self._by_layer(self._evidence(score).texts)

    def offsets(self, layer: int) -> Numbers:
        """Return the mean weight of each head by offset.

        The offset of a pair is the position of its key minus the position of its query.

        Parameters
        ----------
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.

        Returns
        -------
        ndarray of float64, (heads, offsets)
            The columns have the labels `offset_labels`. In the column of an offset, an entry is the
            mean weight of all allowed pairs with this offset, except pairs with the first key. In
            the column "first", it is the mean weight on the first key. In the column "rest", it is
            the total weight on all keys that belong to no other column, averaged over the queries
            that may attend to such a key. An entry is NaN if no such pair is allowed. In
            cross-attention, only "first" and "rest" are not NaN.

        Raises
        ------
        IndexError
            If the layer does not exist.
        """
        return _divide(*self._totals.offsets[:, self._head_slice(layer)])

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the kinds of tokens, the classes of the system ``"kind"``."""
        return self.classes_of(KIND)

    def classes_of(self, system: str) -> tuple[str, ...]:
        """Return the names of all classes of a system of classes.

        Parameters
        ----------
        system : str
            One of `class_systems`.

        Returns
        -------
        tuple of str

        Raises
        ------
        KeyError
            If the system does not exist.
        """
        return self._class_totals(system).names

    def class_weights(self, layer: int, system: str = KIND) -> Numbers:
        """Return the mean weight on keys of each class, for queries of each class.

        Parameters
        ----------
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.
        system : str
            One of `class_systems`.

        Returns
        -------
        ndarray of float64, (heads, classes, classes)
            Entry [h, a, b] is the total weight of head h on all keys of class b, averaged over the
            queries of class a whose weights are not all 0. NaN for a class without such queries.

        Raises
        ------
        IndexError, KeyError
            If the layer or the system does not exist.
        """
        totals, heads = self._class_totals(system), self._head_slice(layer)
        return _divide(totals.weights[heads], totals.queries[heads][:, :, None])

    def strongest(self, layer: int, head: int) -> list[Edge]:
        """Return the edges of a head with the largest weights.

        Parameters
        ----------
        layer, head : int
            Numbers of the layer and the head in the model. Negative numbers count from the last
            layer or head.

        Returns
        -------
        list of Edge
            The edge with the largest weight is first. The list has at most one edge of each query
            and four edges of each text. A query that may attend to only one key has no edge:
            without an attention sink, its weight on this key is always 1.

        Raises
        ------
        IndexError
            If the head does not exist.
        """
        return self._edges(self._kept.strongest, layer, head)

    def sampled(self, layer: int, head: int) -> list[Edge]:
        """Return a random sample of the edges of a head.

        Queries are drawn uniformly, without replacement, from all queries of the corpus whose
        weights are not all 0. For each of these queries, one key is drawn with a probability
        proportional to its weight.

        Parameters
        ----------
        layer, head : int
            Numbers of the layer and the head in the model. Negative numbers count from the last
            layer or head.

        Returns
        -------
        list of Edge
            Edges in random order. For example, the share of these edges whose key is the first
            token is an estimate of the share of the head's attention on the first token.

        Raises
        ------
        IndexError
            If the head does not exist.
        """
        return self._edges(self._kept.sampled, layer, head)

    def edge_columns(self, layer: int, *, sampled: bool = False) -> EdgeColumns:
        """Return the edges of all heads of a layer as arrays.

        Parameters
        ----------
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.
        sampled : bool, default False
            Whether to return the sampled edges instead of the strongest.

        Returns
        -------
        EdgeColumns
            Edges sorted by head. The edges of a head are sorted as in `strongest` or `sampled`.
            `EdgeColumns.head` is the index of the head in the layer.

        Raises
        ------
        IndexError
            If the layer does not exist.
        """
        heads = self._head_slice(layer)
        edges = self._kept.sampled if sampled else self._kept.strongest
        of_layer = edges.of_heads(heads.start, heads.stop)
        return replace(of_layer, head=of_layer.head - np.int32(heads.start))

    def with_edges(self, max_edges: int) -> StackStatistics:
        """Return the same statistics with fewer edges, and only the tokens near these edges.

        Parameters
        ----------
        max_edges : int
            Maximum number of strongest edges, and of sampled edges, of each head. The sampled edges
            that are kept are a random sample, too.

        Returns
        -------
        StackStatistics

        Raises
        ------
        TypeError, ValueError
            If `max_edges` is not a whole number of at least 0.

        Examples
        --------
        >>> import attnviz as av
        >>> statistics = av.head_statistics(model, texts)               # doctest: +SKIP
        >>> len(statistics.stack().with_edges(10).sampled(0, 0))        # doctest: +SKIP
        10
        """
        count = whole_number("max_edges", max_edges, 0)
        return StackStatistics(self.name, self._totals, count, self.class_systems)

    @property
    def kept_tokens(self) -> tuple[NearTokens, ...]:
        """Tokens near the edges: at most 6 tokens away from the query or the key of an edge.

        In self-attention the tuple has one item. In cross-attention, it has two items: the first
        has query tokens, and the second has key tokens.
        """
        return self._kept.tokens

    @property
    def words(self) -> tuple[str, ...]:
        """Distinct texts of the tokens in `kept_tokens`, in the order of first occurrence."""
        return self._kept.words

    def roles(self, margin: float = 0.1, level: float = 0.05) -> Roles:
        """Return the roles of the heads, such as "induction", with their statistical tests.

        Parameters
        ----------
        margin : float, default 0.1
            A head has a role only if its score exceeds each baseline by significantly more than
            this number. In [0, 1).
        level : float, default 0.05
            Maximum expected share of false roles among all assigned roles. The confidence intervals
            have confidence ``1 - level``. In [0, 0.5).

        Returns
        -------
        Roles

        Raises
        ------
        TypeError, ValueError
            If an argument is not a number or is out of range.
        """
        margin = checked_share("margin", margin)
        level = checked_share("level", level, below=0.5)
        # Cache the last result, because views call this function often, and testing many heads
        # takes a second.
        if self._roles is None or (self._roles.margin, self._roles.level) != (margin, level):
            scores = score_of_roles(self.score_names)
            evidence = {role: self._evidence(score) for role, score in scores.items()}
            self._roles = Roles(
                self.layers, self.heads_per_layer, evidence, margin=margin, level=level
            )
        return self._roles

    def _evidence(self, score: str) -> Evidence:
        existing_name("score", score, self.score_names, f"stack {self.name!r} has the scores")
        texts, baselines, sums, squares = np.moveaxis(self._totals.scores[score], 1, 0)
        means, errors = _means_and_errors(texts, sums, squares)
        return Evidence(
            texts=texts[0].astype(np.int64),
            baseline_texts=texts[1:].astype(np.int64),
            score=means[0],
            standard_error=errors[0],
            baseline=_divide(baselines, texts)[1:],
            difference=means[1:],
            difference_standard_error=errors[1:],
        )

    def _edges(self, edges: EdgeColumns, layer: int, head: int) -> list[Edge]:
        index = self._head_slice(layer).start + self.head_number(layer, head)
        of_head = edges.of_heads(index, index + 1)
        return [self._kept.edge(of_head, number) for number in range(len(of_head))]

    def _class_totals(self, system: str) -> ClassTotals:
        existing_name("system", system, self.class_systems, "these statistics have the systems")
        return self._totals.classes[system]

    def _numbers_by_layer(self, score: str) -> Iterator[tuple[int, Iterator[tuple[Any, ...]]]]:
        """Yield two items for each layer: its number in the model, and an iterator over its heads.

        The iterator yields a tuple for each head: the mean, the standard error and the baseline of
        the score, and the number of texts in which it is defined.
        """
        means = self.mean(score)
        baselines = self.baseline(score) or [np.full(len(mean), np.nan) for mean in means]
        numbers = (means, self.standard_error(score), baselines, self.counts(score))
        for layer, of_layer in zip(self.layers, zip(*numbers, strict=True), strict=True):
            yield layer, zip(*of_layer, strict=True)

    def _head_slice(self, layer: int) -> slice:
        """Return the slice of the heads of a layer, in an array of the heads of all layers."""
        index = self.layers.index(self.layer_number(layer))
        start = sum(self.heads_per_layer[:index])
        return slice(start, start + self.heads_per_layer[index])

    def _by_layer(self, values: NDArray[Any]) -> list[Any]:
        return np.split(values, np.cumsum(self.heads_per_layer)[:-1])

    def __repr__(self) -> str:
        heads = self._totals.num_heads
        return (
            f"<StackStatistics {self.name!r}: layers {format_numbers(self.layers)}, {heads} "
            f"head{'' if heads == 1 else 's'}, {len(self.score_names)} scores>"
        )


def _divide(sums: Numbers, counts: Numbers) -> Numbers:
    """Divide sums by counts. The result is NaN if a count is 0."""
    return sums / np.where(counts > 0, counts, np.nan)


def _means_and_errors(counts: Numbers, sums: Numbers, squares: Numbers) -> tuple[Numbers, Numbers]:
    """Return the means over texts of several quantities, and the standard errors of these means.

    A quantity is, for example, the score of one head. For each quantity, `counts` has the number of
    texts, `sums` the sum of its values in these texts, and `squares` the sum of their squares. The
    arrays have the same shape.
    """
    means = _divide(sums, counts)
    deviations = squares - counts * means**2
    # For a quantity that is equal in all texts, `deviations` should be 0 but can be positive
    # because of rounding. Set it to 0 if it is at most ``eps * counts * squares``, the largest
    # rounding error of a sum of `counts` squares.
    deviations = np.where(deviations > np.finfo(float).eps * counts * squares, deviations, 0)
    return means, np.sqrt(_divide(deviations, counts - 1) / np.maximum(counts, 1))

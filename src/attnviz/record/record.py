"""The record: what was captured of one example, and the one contract that everything reads.

A record keeps queries and keys (or weights that it was given) and computes the weights of any
layer, head, rows and columns when asked. It never holds the layers x heads x n x n tensor unless
that is what it was made from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.record.given.queries_keys import layers_of_vectors, stack_of_vectors
from attnviz.record.given.tokens import ProjectedKeys
from attnviz.record.given.weights import stacks_of_weights
from attnviz.record.images import checked_image
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.mapped import MappedFile, check_mapped, mapped_files
from attnviz.record.tokens import Tokens
from attnviz.record.words import MERGED_NOTE
from attnviz.utils.arguments import (
    as_list,
    format_numbers,
    resolve_negative,
    short_repr,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    import pandas as pd

    from attnviz.record.sources import Sources

__all__ = ["AttentionRecord", "AttentionStack", "derived_record", "load"]


class AttentionRecord:
    """Everything that was captured of one example.

    Parameters
    ----------
    stacks : mapping of str to AttentionStack
        In the order in which they are offered; the first is the default.
    model : str
        Name of the model, shown as the title of every picture.
    notes : sequence of str
        What a reader of the pictures must be told.
    images : sequence of ndarray
        The pictures that the model saw, uint8, (height, width, 3); tokens say which are patches of
        them (`Tokens.grids`).

    Raises
    ------
    ValueError
        If there is no stack, or tokens are patches of an image that isn't there.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                        # doctest: +SKIP
    >>> record = av.extract(model, "the cat sat", tokenizer=tokenizer)     # doctest: +SKIP
    >>> record.stacks["self"].weights(layer=0, head=3)                     # doctest: +SKIP
    """

    def __init__(
        self,
        stacks: Mapping[str, AttentionStack],
        *,
        model: str = "",
        notes: Sequence[str] = (),
        images: Sequence[Any] = (),
    ) -> None:
        if not stacks:
            raise ValueError("stacks is empty; a record needs at least one AttentionStack")
        self.stacks: Mapping[str, AttentionStack] = MappingProxyType(dict(stacks))
        if not isinstance(model, str):
            raise TypeError(f"model must be a text, the title of pictures; got {model!r}")
        # Half of a surrogate pair is not text: no file could hold the name.
        self.model = model.encode("utf-8", "replace").decode()
        self.notes = tuple(notes)
        #: What others computed from the record and keep with it, by their names; never saved.
        self.computed: dict[str, object] = {}
        #: The files that its numbers are read from when they are needed; none of one in memory.
        self.mapped_files: tuple[MappedFile, ...] = ()
        self.images = tuple(
            checked_image(image, f"images[{index}]") for index, image in enumerate(images)
        )
        for stack in self.stacks.values():
            for grid in (*stack.query_tokens.grids, *stack.key_tokens.grids):
                if grid.image >= len(self.images):
                    raise ValueError(
                        f"stack {stack.name!r} has patches of image {grid.image}, and images has "
                        f"{len(self.images)}; give the picture that the model saw"
                    )

    @classmethod
    def from_weights(
        cls,
        attentions: Any = None,
        tokens: Sequence[str] | Tokens | None = None,
        *,
        key_tokens: Sequence[str] | Tokens | ProjectedKeys | None = None,
        sentence_b_start: int | None = None,
        encoder_attentions: Any = None,
        decoder_attentions: Any = None,
        cross_attentions: Any = None,
        encoder_tokens: Sequence[str] | Tokens | None = None,
        decoder_tokens: Sequence[str] | Tokens | None = None,
        layers: Sequence[int] | None = None,
        model: str = "",
        images: Sequence[Any] = (),
        normalized: bool | None = None,
        signed: bool = False,
        measure: str = "weight",
        stack: str = "self",
    ) -> Self:
        """Make a record from weights that came from anywhere.

        Parameters
        ----------
        attentions : sequence of arrays or array
            One array a layer, each (heads, queries, keys) or (1, heads, queries, keys), as in a
            model's ``outputs.attentions``; or one array (layers, [1,] heads, queries, keys).
            Layers may have different numbers of heads. Tensors, arrays or nested lists.
        tokens : sequence of str or Tokens
            The queries' tokens, and the keys' unless `key_tokens` is given. Entries of a
            vocabulary (``"Ġthe"``, ``"▁the"``) are shown as the text that they stand for;
            `Tokens.of` keeps strings as they are.
        key_tokens : sequence of str, Tokens or ProjectedKeys, optional
            The keys' tokens where queries and keys differ; `ProjectedKeys` names the columns of
            Linformer and of pooled attention.
        sentence_b_start : int, optional
            Where the second text of a pair begins, so that views can tell the two apart.
        encoder_attentions, decoder_attentions, cross_attentions : like `attentions`, optional
            The three kinds of an encoder-decoder model instead of `attentions`, any of them.
        encoder_tokens, decoder_tokens : sequence of str or Tokens, optional
            Their tokens. The cross attention's rows are the decoder's.
        layers : sequence of int, optional
            The model's numbers of the layers given; 0, 1, 2, ... when left out.
        model : str
            Name shown as the title.
        images : sequence of ndarray
            The pictures that the model saw, uint8, (height, width, 3), where `Tokens.grids` says
            which tokens are patches of them.
        normalized : bool, optional
            Whether every row must sum to 1 (or be zero where all is masked), as it must by default
            unless `signed`. With False any weights that are not negative are taken.
        signed : bool, default False
            Whether the numbers are differences, effects or attributions, of any size and either
            sign. Views draw them in two colours around zero.
        measure : str, default "weight"
            What the numbers are, in a word or two, such as ``"difference"``: legends, captions and
            tables use it.
        stack : str, default "self"
            Name of the stack of `attentions`, as in `from_qk`: views show a name that they do not
            know as it is.

        Returns
        -------
        AttentionRecord
            With the stack ``"self"`` (or `stack`), or ``"encoder"``, ``"decoder"`` and ``"cross"``.
            Tensors on the CPU and arrays are not copied: do not change them afterwards.

        Raises
        ------
        TypeError
            If an argument that is needed is missing or is not an array, or `stack` is not a name,
            or names the stacks of an encoder-decoder model.
        ValueError
            If a shape does not fit or a weight is NaN, infinite, negative (unless `signed`) or in
            a row that does not sum to 1; the layer, head and row are named, and what other axes may
            mean. If `normalized` and `signed` are both True, or `measure` is not a word.

        Examples
        --------
        >>> from attnviz import AttentionRecord
        >>> record = AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record
        <AttentionRecord: <self: layers 0, 1 head each, 2 tokens>>
        >>> change = AttentionRecord.from_weights(
        ...     [[[[0.0, 0.0], [-0.3, 0.3]]]], ["a", "b"], signed=True, measure="difference"
        ... )
        >>> round(change.stack().maximum, 2)
        0.3
        """
        stacks, notes = stacks_of_weights(
            {
                "attentions": attentions,
                "encoder_attentions": encoder_attentions,
                "decoder_attentions": decoder_attentions,
                "cross_attentions": cross_attentions,
            },
            {
                "tokens": tokens,
                "key_tokens": key_tokens,
                "encoder_tokens": encoder_tokens,
                "decoder_tokens": decoder_tokens,
            },
            sentence_b_start=sentence_b_start,
            layers=layers,
            normalized=normalized,
            signed=signed,
            measure=measure,
            stack=stack,
        )
        return cls(stacks, model=model, notes=notes, images=images)

    @classmethod
    def from_qk(
        cls,
        queries: Any,
        keys: Any,
        tokens: Sequence[str] | Tokens | None = None,
        *,
        key_tokens: Sequence[str] | Tokens | ProjectedKeys | None = None,
        sentence_b_start: int | None = None,
        scale: float | Sequence[float] | None = None,
        causal: bool = False,
        window: int | Sequence[int | None] | None = None,
        mask: Any = None,
        bias: Any = None,
        softcap: float | Sequence[float | None] | None = None,
        sinks: Any = None,
        layers: Sequence[int] | None = None,
        model: str = "",
        images: Sequence[Any] = (),
        stack: str = "self",
    ) -> Self:
        """Make a record from queries and keys, of any model with a softmax attention.

        Weights are computed from them when they are asked for, so that a record of 131,072 tokens
        is no larger than its queries and keys. The formula is that of `attnviz.record.attention`:
        softmax(cap(scale * q k^T) + bias) over the keys that the mask allows and the sink.

        Parameters
        ----------
        queries, keys : sequence of arrays or array
            One array a layer, (heads, queries, head_dim) and (key heads, keys, head_dim), as the
            attention receives them: after rotary positions and normalisation. A batch of one may
            stand before. Or one array for all layers, with these as its first axis. float32,
            float16 or bfloat16; lists of numbers become float32. Heads may be a multiple of key
            heads: each then serves a group of neighbouring heads.
        tokens : sequence of str or Tokens, optional
            The queries' tokens, and the keys' unless `key_tokens` is given, as in `from_weights`.
            When left out they are named by their places: ``[0]``, ``[1]``, ...
        key_tokens : sequence of str, Tokens or ProjectedKeys, optional
            The keys' tokens where queries and keys differ.
        sentence_b_start : int, optional
            Where the second text of a pair begins.
        scale : float or list of float, optional
            Factor of the products, one for all layers or a list of one a layer;
            1 / sqrt(head_dim) when left out.
        causal : bool, default False
            Whether no query may look ahead. Where there are fewer queries than keys, they are
            the last ones.
        window : int or list of int, optional
            Keys are allowed that are fewer places away: a causal window of w reaches w keys back,
            the query's own counted.
        mask : array or list of arrays, optional
            (queries, keys) or (heads, queries, keys), for all layers, or a list of one a layer
            (None where a layer has none). bool: True where a query may attend to a key, as in
            `torch.nn.functional.scaled_dot_product_attention` and unlike the masks of
            `torch.nn.MultiheadAttention`. Floating point: added to the logits, minus infinity
            where a query may not attend. With `causal` or `window`, both must allow a pair.
        bias : array or list of arrays, optional
            Added to the logits, after the soft cap: (heads, queries, keys), (queries, keys), or
            (heads, 1, keys) where it is the same for every query.
        softcap : float or list of float, optional
            Bound of the soft cap of the scaled products.
        sinks : array or list of arrays, optional
            (heads,), a learned logit a head that takes its share of each row; (layers, heads) or
            a list where layers differ.
        layers : sequence of int, optional
            The model's numbers of the layers given; 0, 1, 2, ... when left out.
        model : str
            Name shown as the title.
        images : sequence of ndarray
            The pictures that the model saw, as in `from_weights`.
        stack : str, default "self"
            Name of the stack: ``"cross"`` is shown as cross-attention, and so on.

        Returns
        -------
        AttentionRecord
            With one stack. Tensors stay where they are, in their dtype, and are not copied: do
            not change them afterwards.

        Raises
        ------
        TypeError
            If an argument is not an array, or has another dtype.
        ValueError
            If axes do not fit, there are several examples, or a number is NaN or infinite; the
            argument is named, with the axes found and those wanted.

        Examples
        --------
        >>> from attnviz import AttentionRecord
        >>> queries = keys = [[[[1.0, 0.0], [0.0, 2.0]]]]
        >>> record = AttentionRecord.from_qk(queries, keys, ["a", "b"], causal=True)
        >>> record.stack().weights(layer=0, head=0).round(2)
        array([[1.  , 0.  ],
               [0.06, 0.94]], dtype=float32)
        """
        attention = layers_of_vectors(
            queries,
            keys,
            layers=layers,
            scale=scale,
            causal=causal,
            window=window,
            mask=mask,
            bias=bias,
            softcap=softcap,
            sinks=sinks,
        )
        made, notes = stack_of_vectors(stack, attention, tokens, key_tokens, sentence_b_start)
        return cls({stack: made}, model=model, notes=notes, images=images)

    def stack(self, name: str | None = None) -> AttentionStack:
        """A stack by name, the first when no name is given.

        Parameters
        ----------
        name : str, optional
            One of `stacks`.

        Returns
        -------
        AttentionStack

        Raises
        ------
        KeyError
            If the stack does not exist; says which exist.
        """
        if name is None:
            return next(iter(self.stacks.values()))
        if name not in self.stacks:
            raise KeyError(
                f"stack={short_repr(name)}: this record has "
                f"{', '.join(map(short_repr, self.stacks))}"
            )
        return self.stacks[name]

    @property
    def tokens(self) -> Tokens:
        """The tokens, where all queries and keys are the same ones.

        Raises
        ------
        ValueError
            If there are several lists; names them.
        """
        distinct: dict[Tokens, str] = {}
        for stack in self.stacks.values():
            for side in ("query_tokens", "key_tokens"):
                name = f'record.stacks["{stack.name}"].{side}'
                distinct.setdefault(getattr(stack, side), name)
        if len(distinct) > 1:
            names = " and ".join(distinct.values())
            raise ValueError(f"this record has several token lists: {names}")
        return next(iter(distinct))

    def only(self, layers: int | Iterable[int]) -> AttentionRecord:
        """The same record with some of its layers; nothing is copied.

        Parameters
        ----------
        layers : int or iterable of int
            The model's numbers; in each stack those that it has are kept. Negative ones count from
            the end of each stack, as in Python.

        Returns
        -------
        AttentionRecord

        Raises
        ------
        TypeError
            If they are not numbers.
        IndexError
            If no stack has one of the layers.
        """
        wanted = list(dict.fromkeys(whole_numbers("layers", as_list(layers))))
        numbers = {
            name: [
                number
                for number in dict.fromkeys(resolve_negative(each, stack.layers) for each in wanted)
                if number in stack.layers
            ]
            for name, stack in self.stacks.items()
        }
        known = {number for stack in self.stacks.values() for number in stack.layers}
        longest = max(stack.num_layers for stack in self.stacks.values())
        missing = [each for each in wanted if each not in known and each not in range(-longest, 0)]
        if missing or not wanted:
            there = format_numbers(sorted(known))
            raise IndexError(f"layers={short_repr(wanted)}: this record has layers {there}")
        kept = {
            name: stack.only(numbers[name]) for name, stack in self.stacks.items() if numbers[name]
        }
        return derived_record(self, kept)

    def merge_words(self) -> AttentionRecord:
        """The same record with tokens merged into words: keys summed, queries averaged.

        Attention to a word is that to all of its tokens, attention from a word the mean of its
        tokens'; rows still sum to 1 (Clark et al. 2019, arXiv 1906.04341, section 4.1). Words are
        the tokenizer's own (`Tokens.words`), which most often cut punctuation off and may cut
        "didn't" in two. Where they are not known, a token that is shown with a space before it
        (``·``) begins a word, and one with ``##`` continues it. Special tokens and the patches of
        an image stay as they are.

        Returns
        -------
        AttentionRecord
            Nothing is copied, and weights are computed when asked for. A note tells readers. The
            record itself where there is nothing to merge, so that twice is the same as once.

        Raises
        ------
        ValueError
            If nothing tells which tokens of a stack are one word.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]
        >>> record = AttentionRecord.from_weights(weights, ["un", "do", "Ġit"])
        >>> record.merge_words().to_pandas(layer=0, head=0).loc["·it"].to_dict()
        {'undo': 0.5, '·it': 0.5}
        """
        merged = {name: stack.merge_words() for name, stack in self.stacks.items()}
        if all(merged[name] is stack for name, stack in self.stacks.items()):
            return self
        notes = [*(note for note in self.notes if note != MERGED_NOTE), MERGED_NOTE]
        return derived_record(self, merged, notes=notes)

    def to_numpy(self, stack: str | None = None) -> list[NDArray[np.float32]]:
        """All weights of a stack, computed now.

        Parameters
        ----------
        stack : str, optional
            The first when left out.

        Returns
        -------
        list of ndarray
            One a layer, in the order of `AttentionStack.layers`, float32, (heads, queries, keys);
            `numpy.stack` joins them where all layers have equally many heads.
        """
        chosen = self.stack(stack)
        return [chosen.weights(layer=number) for number in chosen.layers]

    def to_pandas(
        self,
        layer: int | None = None,
        head: int | None = None,
        stack: str | None = None,
        *,
        top_k: int | None = None,
        min_weight: float | None = None,
    ) -> pd.DataFrame:
        """One head's weights as a matrix, or those of many heads as a tidy table.

        Parameters
        ----------
        layer, head : int, optional
            Which head; -1 is the last layer. With both, and nothing but `stack` beside them, the
            head's matrix. Left out, all of them.
        stack : str, optional
            With `layer`, the first when left out; otherwise all stacks.
        top_k : int, optional
            Of each query the strongest keys alone, so many, the strongest first: of signed numbers
            those of the largest size. Keys without weight are left out.
        min_weight : float, optional
            Only weights of at least so much; signed numbers of at least this size.

        Returns
        -------
        pandas.DataFrame
            Of one head: float32, rows are queries and columns keys, labelled by their tokens.

            Tidy: a row for each pair of query and key that the mask allows, with the columns
            ``stack``, ``layer``, ``head``, ``query``, ``query_token``, ``key``, ``key_token`` and
            ``weight`` (float32), which is called what the stack's numbers are
            (`AttentionStack.measure`). Texts are categories. With `top_k` or `min_weight` also
            ``kept``, the share of its query's weight (of sizes, where numbers are signed) that the
            table has, 0 to 1; a query without any row has none.

        Raises
        ------
        ImportError
            If pandas is not installed.
        IndexError, KeyError
            If the record does not have the layer, head or stack.
        TypeError, ValueError
            If `top_k` or `min_weight` is out of range, a weight is NaN, or the table would have
            more than 20 million rows (half a gigabyte); says which `top_k` would do.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0], [0.4, 0.6]], [[1.0, 0.0], [0.1, 0.9]]]]
        >>> record = AttentionRecord.from_weights(weights, ["a", "b"])
        >>> table = record.to_pandas(layer=0, head=0)
        >>> round(float(table.loc["b", "a"]), 2)
        0.4
        >>> table = record.to_pandas(top_k=1)
        >>> table[["head", "query_token", "key_token", "weight", "kept"]].round(2)
           head query_token key_token  weight  kept
        0     0           a         a     1.0   1.0
        1     0           b         b     0.6   0.6
        2     1           a         a     1.0   1.0
        3     1           b         b     0.9   0.9
        """
        from attnviz.record.table import HeadsOfLayer, check_min_weight, need_pandas, tidy_table

        need_pandas()
        import pandas as pd

        if layer is not None and head is not None and top_k is None and min_weight is None:
            chosen = self.stack(stack)
            return pd.DataFrame(
                chosen.weights(layer=resolve_negative(layer, chosen.layers), head=head),
                index=pd.Index(chosen.query_tokens.text, name="query"),
                columns=pd.Index(chosen.key_tokens.text, name="key"),
            )
        if top_k is not None:
            top_k = whole_number("top_k", top_k, 1, hint="the number of keys of each query")
        if min_weight is not None:
            min_weight = check_min_weight(min_weight)
        named = layer is not None or stack is not None
        stacks = [self.stack(stack)] if named else list(self.stacks.values())
        wanted = []
        for each in stacks:
            layers = each.layers if layer is None else (resolve_negative(layer, each.layers),)
            for number in layers:
                heads = range(each.num_heads(number)) if head is None else (head,)
                # Raises the error of a head that the stack does not have.
                each.weights(layer=number, head=heads[0], rows=slice(0, 0))
                wanted.append(HeadsOfLayer(each, number, tuple(heads)))
        return tidy_table(wanted, top_k=top_k, min_weight=min_weight)

    def sources(self, token: int | str = -1, stack: str | None = None) -> Sources:
        """Where a produced token came from: what all heads attended to while it was chosen.

        The row of the query that predicted the token, in every head of every layer: the mean over
        all heads by key, beside what even attention would give.

        Parameters
        ----------
        token : int or str, default -1
            The produced token: its position among the tokens, or its text where it is produced
            once. Negative numbers count from the end of what was produced, -1 is the last token.
            Of a text that the model did not produce, any token of a causal stack but the first.
        stack : str, optional
            Whose rows; by default the first with produced tokens, else the first.

        Returns
        -------
        Sources
            Arrays, ``str()`` as a summary in words, and `Sources.to_pandas`.

        Raises
        ------
        IndexError, KeyError
            If the record does not have the token or stack.
        TypeError, ValueError
            If the text stands nowhere or several times among the produced tokens, nothing predicts
            the token, or a weight is NaN.

        Notes
        -----
        Weights say what was looked at, not what made a difference (Jain and Wallace 2019, arXiv
        1902.10186; Wiegreffe and Pinter 2019, arXiv 1908.04626). The mean counts every head alike,
        however much its values matter, and takes no account of what other layers did before
        (Abnar and Zuidema 2020, arXiv 2005.00928).

        Examples
        --------
        >>> queries = keys = [[[[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]]]]
        >>> record = AttentionRecord.from_qk(queries, keys, ["a", "b", "c"], causal=True)
        >>> sources = record.sources("c")
        >>> sources.query, sources.means.round(2).tolist(), sources.even.tolist()
        (1, [0.06, 0.94, 0.0], [0.5, 0.5, 0.0])
        """
        from attnviz.record.sources import sources_of_token

        if stack is None:
            producing = [each for each in self.stacks.values() if each.query_tokens.predictions]
            return sources_of_token((producing or list(self.stacks.values()))[0], token)
        return sources_of_token(self.stack(stack), token)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as one safetensors file, a few MB at a time.

        Parameters
        ----------
        path : path-like
            Where to write. ``.safetensors`` is added to a name without a suffix. An existing file
            is replaced once the new one is complete.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        OSError
            If the file cannot be written, or the file that the record was loaded from was made
            shorter since.
        TypeError, ValueError
            If `path` is not a path, or nothing can have such a name. If a stack is only known as
            more than 134 million computed numbers, as the difference of two models with different
            tokenizers may be; save the records that it was made from.
        """
        from attnviz.record.storage.safetensors_file import write_arrays
        from attnviz.record.storage.schema import record_to_arrays

        check_mapped(self.mapped_files)
        header, arrays = record_to_arrays(self)
        return write_arrays(path, header, arrays)

    def __getstate__(self) -> dict[str, Any]:
        # A read-only view of a mapping can be neither copied nor pickled.
        return vars(self) | {"stacks": dict(self.stacks), "computed": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({"computed": {}} | state | {"stacks": MappingProxyType(state["stacks"])})

    def __repr__(self) -> str:
        name = f" of {self.model}" if self.model else ""
        return f"<AttentionRecord{name}: {', '.join(map(repr, self.stacks.values()))}>"


def derived_record(
    record: AttentionRecord,
    stacks: Mapping[str, AttentionStack],
    *,
    model: str | None = None,
    notes: Sequence[str] | None = None,
) -> AttentionRecord:
    """Make a record of other stacks that are read from the same files and show the same images."""
    derived = AttentionRecord(
        stacks,
        model=record.model if model is None else model,
        notes=record.notes if notes is None else notes,
        images=record.images,
    )
    derived.mapped_files = record.mapped_files
    return derived


def load(path: str | os.PathLike[str], *, verify: bool = False) -> AttentionRecord:
    """Read a saved record.

    Queries, keys and weights are mapped, not read: of a record of any size only what is looked at
    comes into memory.

    Parameters
    ----------
    path : path-like
        A file that `AttentionRecord.save` wrote, or a folder that ``attnviz.extract(...,
        spool=folder)`` made.
    verify : bool, default False
        Whether to read everything once and hold it against its checksum. Without, that is done
        where the numbers are 16 MB at most; header, tokens, names, shapes and lengths always are
        checked.

    Returns
    -------
    AttentionRecord

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the folder has no record, as where the writing of it was
        interrupted.
    TypeError
        If `path` is not a path.
    ValueError
        If it is damaged, truncated or no record, or one layer of a folder's record.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.load("x.safetensors")    # doctest: +SKIP
    """
    from attnviz.record.storage.safetensors_file import existing_file, read_arrays
    from attnviz.record.storage.schema import FORMAT, record_from_arrays
    from attnviz.record.storage.spool import INDEX, read_folder
    from attnviz.utils.arguments import as_path

    place = as_path("path", path, "file or folder")
    place = place.parent if place.name == INDEX else existing_file(place)
    read = read_folder if os.path.isdir(place) else read_arrays  # noqa: PTH112 - Path.is_dir raises
    header, arrays = read(place, verify=verify)
    if "kind" in header:
        raise ValueError(
            f"path={str(path)!r} holds {header['kind']}, not a record; load it with "
            "attnviz.HeadStatistics.load(path)"
        )
    if header.get("format") != FORMAT:
        raise ValueError(
            f"path={str(path)!r} has the format {header.get('format')!r}, and this version of "
            f"attnviz reads {FORMAT}: extract the record again, "
            "or load it with the version that saved it"
        )
    try:
        record = record_from_arrays(header, arrays)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"path={str(path)!r} is damaged: its header and its arrays do not fit ({error})"
        ) from error
    record.mapped_files = mapped_files(place)
    return record

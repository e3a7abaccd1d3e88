"""The record: the attention of one example, such as a text, which views and analyses read.

A record consists of stacks. A stack contains the layers whose attention has the same query tokens
and the same key tokens, for example all layers of an encoder. A layer usually stores queries and
keys, from which the weights of selected heads, queries and keys are computed on demand. Other
layers store weights, or compute them from other layers. For example, a layer of a comparison
computes the difference of two layers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.record.from_arrays.queries_keys import create_layers, create_stack
from attnviz.record.from_arrays.weights import create_stacks
from attnviz.record.images import PatchGrid, check_image
from attnviz.record.notes import kind_of, of_kind
from attnviz.record.passages import with_passages
from attnviz.record.stack import AttentionStack, Side
from attnviz.record.storage.safetensors_file import read_arrays, saved_file, write_arrays
from attnviz.record.storage.schema import FORMAT, parts_from_arrays, record_to_arrays
from attnviz.record.storage.spool import INDEX, read_folder
from attnviz.record.table import create_table, require_pandas
from attnviz.record.tokens import Candidate, Tokens, own_tokens, quote
from attnviz.record.words import MERGED_NOTE
from attnviz.utils.arguments import (
    as_list,
    as_path,
    encodable,
    existing_name,
    format_numbers,
    resolve_negative,
    short_repr,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    import pandas as pd


class AttentionRecord:
    """Attention of one example, such as a text, with its tokens, images and notes.

    Parameters
    ----------
    stacks : mapping of str to AttentionStack
        Stacks by name. The menus of views list them in this order. Most views and methods use the
        first stack by default. A stack contains the layers with the same query tokens and key
        tokens. In the record, the name of each stack is its key.
    model : str
        Name of the model, used as the title of views.
    notes : sequence of str
        Sentences that views display, for example about how the weights were computed.
    images : sequence of ndarray
        Images that the model received, uint8, (height, width, 3). The attribute `grids` of the
        stacks' tokens states which tokens are patches of which image.
    classes : sequence of Candidate
        Classes that a classifier predicted for the example, with their probabilities, the most
        probable first. Views show them. Empty for other models.

    Raises
    ------
    TypeError, ValueError
        If `stacks` is empty, `model` is not a string, `images` contains an invalid image, or tokens
        are patches of an image that `images` does not contain.

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
        classes: Sequence[Candidate] = (),
    ) -> None:
        if not stacks:
            raise ValueError("stacks is empty; a record needs at least one AttentionStack")
        if not isinstance(model, str):
            raise TypeError(f"model must be a string; got {model!r}")
        self.model = encodable(str(model))
        if isinstance(notes, str):
            raise TypeError(f"notes must be a sequence of strings; got {short_repr(notes)}")
        self.notes = tuple(notes)
        if not all(isinstance(note, str) for note in self.notes):
            raise TypeError(f"notes must be strings; got {short_repr(self.notes)}")
        self.classes = tuple(classes)
        if not all(isinstance(entry, Candidate) for entry in self.classes):
            raise TypeError(f"classes must be Candidates; got {short_repr(self.classes)}")
        self.images = tuple(
            check_image(image, f"images[{index}]") for index, image in enumerate(images)
        )
        missing = of_kind(self.notes, "no places")
        self.stacks: Mapping[str, AttentionStack] = MappingProxyType(
            {name: stack.in_record(name, self.images, missing) for name, stack in stacks.items()}
        )
        for stack in self.stacks.values():
            for grid in (*stack.query_tokens.grids, *stack.key_tokens.grids):
                if grid.image is not None and grid.image >= len(self.images):
                    raise ValueError(
                        f"stack {stack.name!r} has patches of image {grid.image}, but images has "
                        f"{len(self.images)} images. Pass the image that the model received."
                    )

    @classmethod
    def from_weights(
        cls,
        attentions: Any = None,
        tokens: Sequence[str] | Tokens | None = None,
        *,
        key_tokens: Sequence[str] | Tokens | None = None,
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
        """Create a record from attention weights of any origin.

        Parameters
        ----------
        attentions : sequence of arrays or array
            One array per layer, (heads, queries, keys) or (1, heads, queries, keys), such as a
            model's ``outputs.attentions``. An array of all layers, whose first axis is the layers,
            is also valid. Layers may have different numbers of heads. Arrays may be tensors or
            nested lists.
        tokens : sequence of str or Tokens
            Tokens of the queries, and of the keys unless `key_tokens` is passed. Vocabulary entries
            (``"Ġthe"``, ``"▁the"``) are decoded. Pass ``Tokens.of(strings)`` for strings that must
            not be decoded.
        key_tokens : sequence of str or Tokens, optional
            Tokens of the keys, if they differ from the tokens of the queries.
        sentence_b_start : int, optional
            Position of the first token of the second text, if the tokens are a pair of texts.
        encoder_attentions, decoder_attentions, cross_attentions : like `attentions`, optional
            Weights of an encoder-decoder model. Pass at least one of these arguments instead of
            `attentions`.
        encoder_tokens, decoder_tokens : sequence of str or Tokens, optional
            Tokens of the encoder and of the decoder. In cross-attention, the queries are the
            decoder's tokens and the keys are the encoder's tokens.
        layers : sequence of int, optional
            Number of each layer in the model, by default 0, 1, 2, ...
        model : str
            Name of the model, used as the title of views.
        images : sequence of ndarray
            Images that the model received, uint8, (height, width, 3). The attribute `grids` of
            `tokens` states which tokens are patches of which image.
        normalized : bool, optional
            Whether each row sums to 1, or to 0 if all keys are masked. If True, this is checked
            with a tolerance of 0.005. If False, rows may have any sum. Values are never rescaled.
            The default is True, or False if `signed` is True.
        signed : bool, default False
            Whether the values are differences, effects or attributions, with any size and sign.
            Views draw them in two colours around zero. If False, values must be 0 or larger.
        measure : str, default "weight"
            Short name of the values for legends, captions and tables, such as ``"difference"``.
        stack : str, default "self"
            Name of the stack of `attentions`. In views, the names of the stacks of models, such as
            ``"cross"``, become descriptions, such as cross-attention. Other names are not changed.

        Returns
        -------
        AttentionRecord
            The record has one stack with the name `stack`. For an encoder-decoder model, it has
            those of the stacks ``"encoder"``, ``"decoder"`` and ``"cross"`` whose weights were
            passed. Arrays are copied only if necessary. Do not change them afterwards.

        Raises
        ------
        TypeError
            If a required argument is missing or an argument has the wrong type. Also if `tokens`,
            `key_tokens`, `sentence_b_start` or `stack` is passed for an encoder-decoder model, or
            `encoder_tokens` or `decoder_tokens` with `attentions`.
        ValueError
            If a shape does not fit, or `normalized` and `signed` are both True. If a weight is NaN,
            infinite, or negative (unless `signed` is True), or a row sums to neither 1 nor 0
            (unless `normalized` is False). The message then contains the layer, head and query.
            Also if `measure` is empty, longer than 40 characters or not printable.

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
        stacks = create_stacks(
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
        return cls(stacks, model=model, images=images)

    @classmethod
    def from_qk(
        cls,
        queries: Any,
        keys: Any,
        tokens: Sequence[str] | Tokens | None = None,
        *,
        key_tokens: Sequence[str] | Tokens | None = None,
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
        """Create a record from queries and keys of any model with softmax attention.

        The record stores the queries and keys, and computes weights on demand. Long texts are
        therefore possible, for example of 131,072 tokens. The weights are softmax(cap(scale * q
        k^T) + bias) over the allowed keys and the sink. The arguments below define cap and sink.

        Parameters
        ----------
        queries, keys : sequence of arrays or array
            One array per layer, or one array whose first axis is the layers. Queries of a layer are
            (heads, queries, head_dim) and keys are (key heads, keys, head_dim), as the attention
            receives them: after rotary position embedding and normalization. A batch axis of length
            1 may precede the heads. Arrays of floats keep their dtype, and other numbers become
            float32. The number of heads may be a multiple of the number of key heads: each key head
            then belongs to a group of consecutive heads.
        tokens : sequence of str or Tokens, optional
            Tokens of the queries, and of the keys unless `key_tokens` is passed, as in
            `from_weights`. By default, the tokens are named by position: ``[0]``, ``[1]``, ...
        key_tokens : sequence of str or Tokens, optional
            Tokens of the keys, if they differ from the tokens of the queries.
        sentence_b_start : int, optional
            Position of the first token of the second text, if the tokens are a pair of texts.
        scale : float or list of float, optional
            Factor of the dot products of queries and keys: one number for all layers, or a list
            with one number per layer. The default is 1 / sqrt(head_dim).
        causal : bool, default False
            Whether no query may attend to a later key. If there are fewer queries than keys, the
            last query has the position of the last key.
        window : int or list of int, optional
            Size of a sliding window. A query may attend to a key if the distance of their positions
            is less than `window`. In causal attention, these are `window` keys including the
            query's own position. Pass a list for one size per layer.
        mask : array or list of arrays, optional
            One array for all layers, (queries, keys) or (heads, queries, keys), or a list with one
            array per layer (None for a layer without a mask). A bool array is True if the query may
            attend to the key, as in `torch.nn.functional.scaled_dot_product_attention`. The masks
            of `torch.nn.MultiheadAttention` have the opposite meaning. A floating-point array is
            added to the logits. A pair is forbidden if its number is minus infinity or close to the
            lowest number of the dtype (at most half of it). If `causal` or `window` is also passed,
            a pair is allowed only if all of them allow it.
        bias : array or list of arrays, optional
            Values added to the logits after the soft cap: (heads, queries, keys), (queries, keys),
            or (heads, 1, keys) if they are the same for every query.
        softcap : float or list of float, optional
            Limit c of the soft cap, cap(x) = c tanh(x / c). By default, logits are not capped.
        sinks : array or list of arrays, optional
            One learned logit per head, (heads,). It is one more entry of each softmax of the head,
            so that the weights of a row sum to less than 1. If layers differ, pass (layers, heads)
            or a list with one array per layer.
        layers : sequence of int, optional
            Number of each layer in the model, by default 0, 1, 2, ...
        model : str
            Name of the model, used as the title of views.
        images : sequence of ndarray
            Images that the model received, as in `from_weights`.
        stack : str, default "self"
            Name of the stack, as in `from_weights`.

        Returns
        -------
        AttentionRecord
            The record has one stack. Tensors keep their device and dtype and are not copied. Do not
            change them afterwards.

        Raises
        ------
        TypeError
            If an argument has the wrong type or dtype. Also if `tokens` is passed without
            `key_tokens`, although the numbers of queries and keys differ.
        ValueError
            If axes do not fit, the arrays contain several examples, or a value is invalid, such as
            NaN. The message contains the name of the argument.

        Examples
        --------
        >>> from attnviz import AttentionRecord
        >>> queries = keys = [[[[1.0, 0.0], [0.0, 2.0]]]]
        >>> record = AttentionRecord.from_qk(queries, keys, ["a", "b"], causal=True)
        >>> record.stack().weights(layer=0, head=0).round(2)
        array([[1.  , 0.  ],
               [0.06, 0.94]], dtype=float32)
        """
        attention = create_layers(
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
        attention_stack = create_stack(stack, attention, tokens, key_tokens, sentence_b_start)
        return cls({stack: attention_stack}, model=model, images=images)

    def stack(self, name: str | None = None) -> AttentionStack:
        """Return a stack by name, or the first stack.

        Parameters
        ----------
        name : str, optional
            Name of the stack, by default the first one.

        Returns
        -------
        AttentionStack

        Raises
        ------
        KeyError
            If the stack does not exist. The message lists the existing stacks.
        """
        if name is None:
            return next(iter(self.stacks.values()))
        return self.stacks[existing_name("stack", name, self.stacks, "this record has")]

    @property
    def tokens(self) -> Tokens:
        """Tokens of the record. This requires that the tokens of all rows and columns are the same.

        Raises
        ------
        ValueError
            If the queries and keys of the stacks have different tokens, as in an encoder-decoder
            model. The message lists the attributes to use instead, such as
            ``record.stacks["cross"].key_tokens``.
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
        """Return a record of selected layers, without copying arrays.

        Parameters
        ----------
        layers : int or iterable of int
            Layer numbers of the model. Each stack keeps the selected layers that it has. The result
            omits stacks without selected layers. Negative numbers count from the end of each stack:
            -1 selects the last layer of every stack.

        Returns
        -------
        AttentionRecord

        Raises
        ------
        TypeError
            If `layers` are not integers.
        IndexError
            If no stack has one of the layers, or `layers` is empty.
        """
        requested = whole_numbers("layers", as_list(layers))
        existing = sorted({number for stack in self.stacks.values() for number in stack.layers})
        stacks: dict[str, AttentionStack] = {}
        selected = set[int]()
        for name, stack in self.stacks.items():
            chosen = {n for n in requested if resolve_negative(n, stack.layers) in stack.layers}
            if chosen:
                stacks[name] = stack.only(chosen)
            selected |= chosen
        if not requested or not selected.issuperset(requested):
            raise IndexError(
                f"layers={short_repr(list(requested))}: this record has layers "
                f"{format_numbers(existing)}"
            )
        return derive_record(self, stacks)

    def with_tokens(
        self,
        tokens: Tokens | Sequence[str] | None = None,
        *,
        stack: str | None = None,
        side: Literal["both", "queries", "keys"] = "both",
        special: Sequence[bool] | None = None,
        groups: Sequence[str | None] | None = None,
        grids: Sequence[PatchGrid] | None = None,
        images: Sequence[Any] | None = None,
    ) -> AttentionRecord:
        """Return the record with other names, places, groups or special marks of its tokens.

        Parameters
        ----------
        tokens : sequence of str or Tokens, optional
            Names, one per token, such as dates or numbered residues. They are shown as they are. By
            default, tokens in `grids` are named by their places, and other names do not change.
        stack : str, optional
            Name of the stack, by default the first one.
        side : {"both", "queries", "keys"}, default "both"
            Tokens to change. ``"both"`` needs as many queries as keys.
        special : sequence of bool, optional
            Whether each token is special. By default, this does not change.
        groups : sequence of (str or None), optional
            Name of the group of each token, such as the chain of a protein, or None. Successive
            tokens with the same name are one group, which becomes an entry of `Tokens.grids`. Pass
            the names of images in `grids`.
        grids : sequence of PatchGrid, optional
            Places of the tokens: patches of images, seconds of a sound, steps of a series. They
            replace the places that the tokens have.
        images : sequence of ndarray, optional
            Images that the model received, uint8, (height, width, 3). They replace those of the
            record.

        Returns
        -------
        AttentionRecord
            Record that shares all weights with this one.

        Raises
        ------
        KeyError
            If the record does not have the stack.
        TypeError, ValueError
            If the number of names is not that of the tokens, or a grid does not fit into them. The
            message contains the name of the argument.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0], [0.4, 0.6]]]]
        >>> record = AttentionRecord.from_weights(weights, ["M", "K"])
        >>> named = record.with_tokens(["M97", "K98"], groups=["A", "A"])
        >>> named.tokens.text, named.tokens.grids[0].name
        (('M97', 'K98'), 'A')
        """
        chosen = self.stack(stack)
        sides = {"queries": chosen.query_tokens, "keys": chosen.key_tokens}
        existing_name("side", side, ["both", *sides], "valid names are")
        if side == "both" and len(sides["queries"]) != len(sides["keys"]):
            raise ValueError(
                f"side='both': stack {chosen.name!r} has {len(sides['queries'])} queries and "
                f"{len(sides['keys'])} keys. Pass side='queries' or side='keys'."
            )
        shared = side == "both" and sides["queries"] is sides["keys"]
        for name in ["queries"] if shared else [side] if side in sides else list(sides):
            owner = f"the {'tokens' if shared else name} of stack {chosen.name!r}"
            sides[name] = own_tokens(
                sides[name], tokens, owner, special=special, groups=groups, grids=grids
            )
        changed = chosen.with_tokens(sides["queries"], None if shared else sides["keys"])
        # This note says that tokens have no places. Now they have those of the user.
        old = f"(stack {quote(chosen.name)})."
        notes = [
            note
            for note in self.notes
            if grids is None or kind_of(note) != "no places" or not note.endswith(old)
        ]
        return derive_record(
            self, {**self.stacks, chosen.name: changed}, notes=notes, images=images
        )

    def merge_words(self) -> AttentionRecord:
        """Return the record with tokens merged into words.

        Attention to a word is the sum over its tokens, and attention from a word is the mean over
        its tokens. Rows still sum to 1 (Clark et al. 2019, arXiv 1906.04341, section 4.1). The
        tokenizer defines the words (`Tokens.words`): most tokenizers separate punctuation, and many
        split "didn't" in two. If `Tokens.words` is None, the words are determined from spaces, line
        breaks, tabs and ``##`` in the display texts. Special tokens and image patches are not
        merged.

        Returns
        -------
        AttentionRecord
            Arrays are not copied, and weights are computed on demand. A note of the record explains
            the merging. Stacks with ranks (`AttentionStack.ranks`) are left out. If each token is a
            word, the result is the record itself.

        Raises
        ------
        ValueError
            If the words of a stack's tokens are unknown: `Tokens.words` is None and the display
            texts do not mark words. Also if a row or column of a stack already combines several
            tokens, and at least two of its rows or columns belong to the same word.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]
        >>> record = AttentionRecord.from_weights(weights, ["un", "do", "Ġit"])
        >>> record.merge_words().to_pandas(layer=0, head=0).loc["·it"].to_dict()
        {'undo': 0.5, '·it': 0.5}
        """
        return self._merged(AttentionStack.merge_words, MERGED_NOTE)

    def with_passages(self, passages: Any, stack: str | None = None) -> AttentionRecord:
        """Return the record with named passages of its tokens, such as the documents of a prompt.

        Parameters
        ----------
        passages : mapping of str to (int, int) or str, sequence of (str or None), or str
            - A mapping has the tokens of each passage by its name: the positions (start, stop) of
              its first token and of the token after its last one, or a part of the text. Negative
              positions count from the end. White space, case and accents of the text are ignored.
            - A sequence has the name of the passage of each token, or None. Successive tokens with
              the same name are one passage.
            - ``"paragraphs"``, ``"sentences"`` or ``"texts"`` (images, and the texts of a pair).

            A token that crosses a border belongs to the passage that has its first character. A
            note of the record names such a token.
        stack : str, optional
            Name of the stack with the tokens, by default the first one. Its keys get the passages,
            and all queries and keys of the record that are the same tokens.

        Returns
        -------
        AttentionRecord
            Record that shares all weights with this one. Its passages replace those that it had.

        Raises
        ------
        KeyError
            If the stack does not exist, or `passages` is another string.
        TypeError, ValueError
            If a passage overlaps another one, is empty or outside of the tokens, or its text does
            not occur in the tokens, or occurs several times. The message has the name of the
            passage.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]
        >>> record = AttentionRecord.from_weights(weights, ["Rain", "Ġfalls", "ĠWhy"])
        >>> named = record.with_passages({"fact": (0, 2), "question": "Why"})
        >>> [passage.name for passage in named.tokens.passages]
        ['fact', 'question']
        """
        chosen = self.stack(stack).key_tokens
        tokens, notes = with_passages(chosen, passages)

        def renamed(own: Tokens) -> Tokens:
            is_same = own is chosen or (own.text, own.ids) == (chosen.text, chosen.ids)
            return replace(own, passages=tokens.passages) if is_same else own

        stacks = {}
        for name, own in self.stacks.items():
            queries = renamed(own.query_tokens)
            one_text = own.key_tokens is own.query_tokens
            stacks[name] = own.with_tokens(queries, None if one_text else renamed(own.key_tokens))
        return derive_record(self, stacks, notes=[*self.notes, *notes])

    def merge_passages(self, passages: Any = None, *, side: Side = "both") -> AttentionRecord:
        """Return the record with tokens merged into passages.

        As in `merge_words`, attention to a passage is the sum over its tokens, and attention from a
        passage is the mean over its tokens. Tokens between two passages are merged, too. The first
        token is not merged if it belongs to no passage, because it is an attention sink of many
        heads.

        Parameters
        ----------
        passages : optional
            Passages, as in `with_passages`. By default those that the tokens have.
        side : {"both", "queries", "keys"}, default "both"
            Tokens to merge. ``"keys"`` keeps a row for each token.

        Returns
        -------
        AttentionRecord
            Arrays are not copied, and weights are computed on demand. Stacks without passages do
            not change. Stacks with ranks (`AttentionStack.ranks`) are left out.

        Raises
        ------
        KeyError
            If `side` is invalid.
        TypeError, ValueError
            As for `with_passages`. Also if no stack has passages, or a row or column of a stack
            already combines several tokens of a comparison.

        Examples
        --------
        >>> weights = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]
        >>> record = AttentionRecord.from_weights(weights, ["Rain", "Ġfalls", "ĠWhy"])
        >>> merged = record.merge_passages({"fact": (0, 2), "question": "Why"})
        >>> merged.to_pandas(layer=0, head=0).loc["question"].to_dict()
        {'fact': 0.5, 'question': 0.5}
        """
        if passages is not None:
            return self.with_passages(passages).merge_passages(side=side)
        stacks = self.stacks.values()
        if not any(stack.query_tokens.passages or stack.key_tokens.passages for stack in stacks):
            raise ValueError(
                "passages: the record has no passages. Pass them here, or to attnviz.extract."
            )
        how = {"queries": "queries averaged", "keys": "keys summed"}
        words = how.get(side, "keys summed, queries averaged")
        return self._merged(
            lambda stack: stack.merge_passages(side), f"Tokens merged into passages: {words}."
        )

    def _merged(
        self, merge: Callable[[AttentionStack], AttentionStack], note: str
    ) -> AttentionRecord:
        """Return the record with stacks that `merge` returns, and `note`.

        Stacks with ranks are left out. If no stack changes, return the record itself.
        """
        kept = {name: stack for name, stack in self.stacks.items() if not stack.ranks}
        merged = {name: merge(stack) for name, stack in (kept or self.stacks).items()}
        if all(stack is self.stacks[name] for name, stack in merged.items()):
            return self
        ranks = [quote(name) for name in self.stacks if name not in merged]
        notes = [
            old for old in self.notes if old != note and not any(name in old for name in ranks)
        ]
        left_out = [
            f"Stack {name} is left out, because its ranks belong to single tokens."
            for name in ranks
        ]
        return derive_record(self, merged, notes=[*notes, note, *left_out])

    def to_numpy(self, stack: str | None = None) -> list[NDArray[np.float32]]:
        """Compute all weights of a stack.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, by default the first one.

        Returns
        -------
        list of ndarray
            One array per layer, in the order of `AttentionStack.layers`, float32, (heads, queries,
            keys). `numpy.stack` joins them if all layers have the same number of heads.
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
        """Return the weights of one head as a matrix, or those of several heads as a tidy table.

        Parameters
        ----------
        layer, head : int, optional
            Layer number and head number. Negative numbers count from the end. The default is all
            layers and all heads. If both are passed without `top_k` and `min_weight`, the result is
            the matrix of this head.
        stack : str, optional
            Name of the stack. If `layer` is passed, the default is the first stack, otherwise all
            stacks.
        top_k : int, optional
            Maximum number of keys per query. The table contains the keys with the largest weights
            (for signed values, the largest absolute values) in descending order, without weights of
            0.
        min_weight : float, optional
            Minimum weight, or minimum absolute value for signed values. The table omits pairs with
            smaller weights.

        Returns
        -------
        pandas.DataFrame
            Matrix of one head: float32. The rows are queries and the columns are keys, labelled by
            their tokens.

            Tidy table: one row for each head and each query-key pair that the mask allows, unless
            `top_k` or `min_weight` excludes the pair. The columns are ``stack``, ``layer``,
            ``head``, ``query``, ``query_token``, ``key``, ``key_token`` and ``weight`` (float32).
            If the values of all stacks have the same name (`AttentionStack.measure`, such as
            ``"difference"``), this name replaces ``weight``, unless another column has it. Columns
            of text are categorical. With `top_k` or `min_weight`, the table also has the column
            ``kept``: the sum of this query's weights in the table as a share of the sum of all its
            weights, from 0 to 1. For signed values, these are sums of absolute values.

        Raises
        ------
        ImportError
            If pandas is not installed.
        IndexError, KeyError
            If the record does not have the layer, head or stack.
        TypeError, ValueError
            If `top_k` or `min_weight` is invalid. Also if a weight of the tidy table is NaN or
            infinite, or if the table would exceed 20 million rows (half a gigabyte).

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
        require_pandas()
        import pandas as pd

        if layer is not None and head is not None and top_k is None and min_weight is None:
            chosen = self.stack(stack)
            return pd.DataFrame(
                chosen.weights(layer, head),
                index=pd.Index(chosen.query_tokens.text, name="query"),
                columns=pd.Index(chosen.key_tokens.text, name="key"),
            )
        if top_k is not None:
            top_k = whole_number("top_k", top_k, 1, hint="the number of keys of each query")
        if min_weight is not None and not 0 < min_weight < np.inf:
            raise ValueError(f"min_weight={min_weight!r} must be above 0 and finite, such as 0.05")
        one_stack = layer is not None or stack is not None
        selections = [
            (
                chosen,
                number,
                range(chosen.num_heads(number))
                if head is None
                else (chosen.head_number(number, head),),
            )
            for chosen in ([self.stack(stack)] if one_stack else self.stacks.values())
            for number in (chosen.layers if layer is None else (chosen.layer_number(layer),))
        ]
        return create_table(selections, top_k=top_k, min_weight=min_weight)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record to one safetensors file.

        Parameters
        ----------
        path : path-like
            Path of the file. ``.safetensors`` is added to a name without a suffix. An existing file
            is replaced when the new one is complete.

        Returns
        -------
        Path
            Path of the written file.

        Raises
        ------
        OSError
            If the file cannot be written.
        TypeError, ValueError
            If `path` is not a valid path. Also if the weights that must be computed for the file
            are more than 134 million. These are the weights of layers that store neither weights
            nor queries and keys, such as layers with replaced weights. Linear layers, and merged
            words and differences of stored layers, need no computed weights.
        """
        header, arrays = record_to_arrays(self)
        return write_arrays(path, header, arrays)

    def __getstate__(self) -> dict[str, Any]:
        # A MappingProxyType can be neither copied nor pickled, so store a dict. `__setstate__`
        # restores the MappingProxyType.
        return vars(self) | {"stacks": dict(self.stacks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"stacks": MappingProxyType(state["stacks"])})

    def __repr__(self) -> str:
        name = f" of {self.model}" if self.model else ""
        return f"<AttentionRecord{name}: {', '.join(map(repr, self.stacks.values()))}>"


def derive_record(
    record: AttentionRecord,
    stacks: Mapping[str, AttentionStack],
    *,
    model: str | None = None,
    notes: Sequence[str] | None = None,
    images: Sequence[Any] | None = None,
) -> AttentionRecord:
    """Return a record of `stacks` with the classes of `record`.

    If `model`, `notes` or `images` is None, the result has that of `record`.
    """
    return AttentionRecord(
        stacks,
        model=record.model if model is None else model,
        notes=record.notes if notes is None else notes,
        images=record.images if images is None else images,
        classes=record.classes,
    )


def load(path: str | os.PathLike[str]) -> AttentionRecord:
    """Load a saved record.

    The arrays are memory-mapped: they are read from the disk when they are used.

    Parameters
    ----------
    path : path-like
        File that `AttentionRecord.save` wrote, or folder that
        ``attnviz.extract(..., spool=folder)`` created.

    Returns
    -------
    AttentionRecord

    Raises
    ------
    FileNotFoundError
        If the file does not exist, or the folder has no record, for example after an interrupted
        extraction.
    TypeError
        If `path` is not a path.
    ValueError
        If the file is damaged, truncated, not a record, or of another format version. Also if it is
        one of the files with layers in a folder of ``spool=``. Pass the folder instead.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.load("x.safetensors")    # doctest: +SKIP
    """
    location = as_path("path", path, "file or folder")
    location = location.parent if location.name == INDEX else saved_file(location)
    read = read_folder if os.path.isdir(location) else read_arrays  # noqa: PTH112 - Path.is_dir can raise OSError
    header, arrays = read(location)
    if "kind" in header:
        raise ValueError(
            f"path={str(path)!r} contains {header['kind']}, not a record. Load it with "
            "attnviz.HeadStatistics.load(path)."
        )
    if header.get("format") != FORMAT:
        raise ValueError(
            f"path={str(path)!r} has the format {header.get('format')!r}, but this version of "
            f"attnviz reads {FORMAT}. Extract the record again, or load it with the version that "
            "saved it."
        )
    try:
        record = AttentionRecord(**parts_from_arrays(header, arrays))
    except Exception as error:  # A damaged header can cause any error.
        raise ValueError(
            f"path={str(path)!r} is damaged: its header and its arrays do not fit ({error})"
        ) from error
    return record

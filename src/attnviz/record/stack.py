"""A stack: the layers whose attention has the same query tokens and the same key tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, StoredWeights
from attnviz.record.head_numbers import HeadNumbers
from attnviz.record.images import Interpolation, PatchGrid
from attnviz.record.linear import AbsoluteShares, StateAttention
from attnviz.record.masks import ChosenMask
from attnviz.record.passages import merge_passages
from attnviz.record.patch_maps import Chosen, PatchMaps
from attnviz.record.ranks import Ranks
from attnviz.record.softmax import row_tiles
from attnviz.record.tokens import Tokens, quote
from attnviz.record.units import UnitAttention, in_units
from attnviz.record.words import find_word_starts, merge_tokens
from attnviz.utils.arguments import (
    as_integer,
    as_list,
    check_encodable,
    existing_name,
    existing_numbers,
    format_numbers,
    resolve_slice,
    short_repr,
    whole_numbers,
)
from attnviz.utils.progress import Pace

#: Tokens of a stack that are merged.
Side = Literal["both", "queries", "keys"]

# If the stack has more weights, `AttentionStack.maximum` does not read them, but is an upper bound
# if all layers have one. A core reads or computes this many weights in about a second.
_MAX_WEIGHTS_READ = 1 << 26
# Maximum number of query-key pairs of a head in which `AttentionStack.forced_queries` looks.
_MAX_PAIRS_EXAMINED = 1 << 22
# Maximum number of characters of `AttentionStack.measure`, which must fit into a legend.
_MAX_MEASURE_LENGTH = 40


class AttentionStack(HeadNumbers):
    """Attention of the layers that have the same query tokens and key tokens.

    Parameters
    ----------
    name : str
        Name of the stack, such as ``"self"``, ``"encoder"``, ``"decoder"``, ``"cross"`` or
        ``"vision"``.
    layers : mapping of int to LayerAttention
        Layers by their numbers in the model. Numbers may be missing, for example if other layers of
        the model have no attention. Layers may have different numbers of heads.
    query_tokens : Tokens
        Tokens of the rows.
    key_tokens : Tokens, optional
        Tokens of the columns, by default the tokens of the rows.
    normalized : bool, optional
        Whether each row sums to 1 (less with sinks, 0 if all keys are masked). This is not checked.
        The default is True, or False if `signed` is True.
    signed : bool, default False
        Whether values may be negative, such as differences and effects. Rows of such values may
        have any sum.
    measure : str, default "weight"
        Short name of the values for legends, captions and tables, such as ``"difference"``.
    changed : str, optional
        Words for what was changed in the run of the model, such as ``"“it” (7) hidden"``. Pictures
        show them. Empty if nothing was changed.
    outputs : mapping of int to Tensor, optional
        Results of the method `outputs` for some or all layers, by layer number: (heads, queries,
        axes).
    gates : mapping of int to Tensor, optional
        Results of the method `gates` for some or all layers, by layer number: (heads, queries).

    Attributes
    ----------
    layers : tuple of int
        Numbers of the stack's layers in the model, ascending.
    heads_per_layer : tuple of int
        Number of heads of each layer, in the order of `layers`.
    normalized, signed : bool
        Whether rows sum to 1, and whether values may be negative.
    measure : str
        Short name of the values.
    changed : str
        Words for what was changed in the run of the model.
    images : tuple of ndarray
        Images of the record that the stack belongs to. Empty without a record.

    Raises
    ------
    TypeError
        If `measure` is not a string.
    ValueError
        If `layers` is empty, the shape of a layer or of its gates does not fit the tokens, or both
        `normalized` and `signed` are True. Also if `measure` is empty, longer than 40 characters or
        not printable.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> stack = record.stacks["self"]
    >>> stack.layers, stack.heads_per_layer
    ((0,), (1,))
    >>> stack.weights(layer=0, head=0, rows=slice(1, 2))
    array([[0.4, 0.6]], dtype=float32)
    """

    def __init__(
        self,
        name: str,
        layers: Mapping[int, LayerAttention],
        query_tokens: Tokens,
        key_tokens: Tokens | None = None,
        *,
        normalized: bool | None = None,
        signed: bool = False,
        measure: str = "weight",
        changed: str = "",
        outputs: Mapping[int, torch.Tensor] | None = None,
        gates: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        if not layers:
            raise ValueError(f"stack {short_repr(name)} has no layers; pass at least one")
        check_encodable("name", name)
        self._layers = {as_integer("layers", number): layers[number] for number in sorted(layers)}
        heads = [attention.num_heads for attention in self._layers.values()]
        super().__init__(name, list(self._layers), heads)
        self.query_tokens = query_tokens
        self.key_tokens = query_tokens if key_tokens is None else key_tokens
        self.signed = bool(signed)
        self.normalized = resolve_normalized(normalized=normalized, signed=signed)
        self.measure = _checked_measure(measure)
        check_encodable("changed", changed)
        self.changed = changed
        self.images: tuple[NDArray[np.uint8], ...] = ()
        # Notes of the record that say why tokens have no places.
        self.missing_places: tuple[str, ...] = ()
        self._maximum: float | None = None
        self._outputs = dict(outputs or {})
        self._gates = {number: means.detach().float() for number, means in (gates or {}).items()}
        num_tokens = len(self.query_tokens), len(self.key_tokens)
        for number, attention in self._layers.items():
            shape = attention.num_queries, attention.num_keys
            if shape != num_tokens:
                raise ValueError(
                    f"stack {short_repr(name)}, layer {number}: the attention has {shape[0]} "
                    f"queries and {shape[1]} keys, but query_tokens has {num_tokens[0]} tokens and "
                    f"key_tokens {num_tokens[1]}; pass one token for each"
                )
        for number, means in self._gates.items():
            if means.shape != (self.num_heads(number), num_tokens[0]):
                raise ValueError(
                    f"stack {short_repr(name)}, layer {number}: gates has the shape "
                    f"{tuple(means.shape)}; pass (heads, queries), "
                    f"{(self.num_heads(number), num_tokens[0])}"
                )

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self._layers)

    @property
    def maximum(self) -> float:
        """Largest weight, or largest absolute value if the stack is signed.

        It is 1 if `normalized` is True, although all weights may be smaller. Otherwise, all weights
        are read to find the largest. One exception saves time: if the stack has more than 67
        million weights, and an upper bound is known for all layers, the result is this bound. For
        example, the bound is 1 for the difference of two softmax attentions.
        """
        if self.normalized:
            return 1.0
        if self._maximum is None:
            self._maximum = self._find_maximum()
        return self._maximum

    def _find_maximum(self) -> float:
        num_queries, num_keys = len(self.query_tokens), len(self.key_tokens)
        num_weights = sum(self.heads_per_layer) * num_queries * num_keys
        bounds = [attention.bound for attention in self._layers.values()]
        known_bounds = [bound for bound in bounds if bound is not None]
        if len(known_bounds) == len(bounds) and num_weights > _MAX_WEIGHTS_READ:
            return max(known_bounds)
        pace = Pace("largest weight", num_weights)
        extremes = []
        for attention in self._layers.values():
            for head in range(attention.num_heads):
                for rows in row_tiles(slice(0, num_queries), num_keys):
                    block = attention.block([head], rows)
                    extremes.append(float(block.max()))
                    if self.signed:
                        extremes.append(abs(float(block.min())))
                    pace.advance(block.numel())
        # Use np.max, because max() does not always return NaN if one of the numbers is NaN.
        return float(np.max(extremes))

    @property
    def causal(self) -> bool:
        """Whether all layers are known to forbid attention to later keys."""
        return all(attention.causal for attention in self._layers.values())

    @cached_property
    def forced_queries(self) -> tuple[int, ...]:
        """Queries that may attend to one key only, in all layers and heads.

        The first token of a causal text is the usual example. Their weight is 1, which says nothing
        about the model. Other numbers than weights and ranks do, and so do weights beside a sink,
        so they have no such queries. If only weights are known, these are the queries with weight
        on a single key, which is the same in all layers and heads. In a long text, only the first
        queries are examined.
        """
        originals = [attention.original for attention in self._layers.values()]
        has_sinks = any(getattr(original, "sinks", None) is not None for original in originals)
        if has_sinks or not (self.normalized or self.ranks):
            return ()
        count = min(len(self.query_tokens), max(1, _MAX_PAIRS_EXAMINED // len(self.key_tokens)))
        queries = torch.arange(count)
        # Whether any head with stored weights has weight on a key, (queries, keys).
        used = torch.zeros(count, len(self.key_tokens), dtype=torch.bool)
        for attention in self._layers.values():
            stored = isinstance(attention.original, StoredWeights)
            shared = attention.shares_mask and not stored
            for head in range(1 if shared else attention.num_heads):
                if stored:
                    used |= (attention.block([head], queries)[0] != 0).cpu()
                    keys = used
                else:
                    # The model could have chosen a key that is left out.
                    left_out = attention.left_out([head], queries)
                    keys = (attention.allowed([head], queries) | left_out)[0]
                single = keys.sum(dim=-1).cpu() == 1
                queries, used = queries[single], used[single]
                if not len(queries):
                    return ()
        return tuple(queries.tolist())

    @property
    def merged(self) -> bool:
        """Whether a row or column combines several tokens, such as the tokens of a word."""
        return any(attention.merged for attention in self._layers.values())

    @property
    def linear(self) -> bool:
        """Whether all layers are linear attention or state-space models, without a softmax.

        Negative values of such a stack are weights of the model and not differences.
        """
        return all(isinstance(layer.original, StateAttention) for layer in self._layers.values())

    @property
    def ranks(self) -> bool:
        """Whether the values are ranks of the scores of an indexer, and not weights."""
        return all(isinstance(layer.original, Ranks) for layer in self._layers.values())

    @property
    def has_vectors(self) -> bool:
        """Whether every layer stores queries and keys.

        False if a layer stores weights, or is computed from other layers, such as a difference or
        merged words.
        """
        return all(layer.vectors is not None for layer in self._layers.values())

    def attention(self, layer: int) -> LayerAttention:
        """Return the attention of a layer.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.

        Returns
        -------
        LayerAttention

        Raises
        ------
        IndexError
            If the stack does not have the layer. The message lists the existing layers.
        """
        return self._layers[self.layer_number(layer)]

    def weights(
        self,
        layer: int,
        head: int | None = None,
        *,
        rows: slice | None = None,
        columns: slice | None = None,
    ) -> NDArray[np.float32]:
        """Return attention weights. They are computed unless the stack stores them.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.
        head : int, optional
            Head number. Negative numbers count from the last head of the layer. The default is all
            heads.
        rows, columns : slice, optional
            Positions of the queries and keys, without a step. The default is all.

        Returns
        -------
        ndarray
            float32, (rows, columns) for one head, otherwise (heads, rows, columns).

        Raises
        ------
        IndexError
            If the layer or head does not exist.
        TypeError, ValueError
            If `rows` or `columns` is not a slice or has a step.
        """
        attention = self.attention(layer)
        row_slice = resolve_slice("rows", rows, attention.num_queries)
        column_slice = resolve_slice("columns", columns, attention.num_keys)
        heads = range(attention.num_heads) if head is None else [self.head_number(layer, head)]
        weights: NDArray[np.float32] = attention.block(heads, row_slice, column_slice).cpu().numpy()
        if isinstance(attention, StoredWeights):
            # Copy stored weights, because the caller may change the result.
            weights = weights.copy()
        return weights if head is None else weights[0]

    def image_weights(
        self,
        layer: int,
        heads: int | Iterable[int] | None = None,
        *,
        queries: Chosen = None,
        keys: Chosen = None,
        image: int | None = None,
        interpolation: Interpolation | None = "nearest",
    ) -> NDArray[np.float32]:
        """Return attention weights over an image, in the pixels of the image.

        Patches may be keys, as in vision-language models: pass `queries`, such as a word. They may
        also be queries, as in diffusion models: pass the word as `keys`.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.
        heads : int or iterable of int, optional
            Head, or heads whose mean is returned. By default all heads.
        queries : int, str or sequence of these, optional
            Positions or texts of the queries whose weights on the patches are returned: the mean of
            several queries, as in `AttentionRecord.merge_words`. By default all queries.
        keys : int, str or sequence of these, optional
            Positions or texts of the keys on which the weights of the patches are returned: the sum
            of several keys. Not with `queries`.
        image : int, optional
            Number of the image in the record's `images`, by default the only one of the tokens. The
            joined tiles of an image are one image.
        interpolation : {"nearest", "bilinear"} or None, default "nearest"
            How a pixel gets its value: from the patch at its centre, or interpolated between the
            centres of patches. None returns one value per patch.

        Returns
        -------
        ndarray
            float32. (rows, columns) of patches if `interpolation` is None. Their sum is the share
            of the weight that is on the image, from 0 to 1 (for `queries`), or the number of
            patches times their mean weight on the word (for `keys`).

            Otherwise (height, width) of the image as the user passed it to `attnviz.extract`, or of
            the record's image if this is not known (`PatchGrid.size`). A pixel has the weight of
            its patch, so the sum over pixels has no meaning. Pixels that the processor cropped are
            NaN. The measure ``"region"`` sums weights in a region of the image.

        Raises
        ------
        IndexError
            If the layer, a head, a position or the image does not exist.
        TypeError, ValueError
            If the tokens have no places in an image. Also if they have places in several images and
            `image` is not passed, if no token or several tokens have a text, or if `interpolation`
            is unknown.

        See Also
        --------
        attnviz.analysis.head_scores : measures of maps, such as ``"region"``.

        Examples
        --------
        >>> import attnviz as av
        >>> from attnviz.record import PatchGrid, Tokens
        >>> tokens = Tokens.of(["0,0", "0,1", "cat"], grids=[PatchGrid(0, 0, rows=1, columns=2)])
        >>> picture = np.zeros((1, 4, 3), np.uint8)
        >>> weights = [[[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]]]
        >>> record = av.AttentionRecord.from_weights(weights, tokens, images=[picture])
        >>> record.stack().image_weights(layer=0, queries="cat")
        array([[0.25, 0.25, 0.75, 0.75]], dtype=float32)
        """
        maps = PatchMaps.select(self, queries=queries, keys=keys, image=image)
        if not maps.of_keys and keys is None:
            raise ValueError(
                f"keys: patches are queries of stack {self.name!r}. Pass the token to which they "
                "attend, such as keys=1 or the text of a word."
            )
        attention, grid = self.attention(layer), maps.grid
        owner = f"layer {self.layer_number(layer)} of stack {self.name!r} has heads"
        everything = range(attention.num_heads)
        chosen = (
            everything if heads is None else existing_numbers("heads", heads, everything, owner)
        )
        total = torch.zeros(grid.rows, grid.columns, dtype=torch.float64)
        for part in maps.parts(len(chosen)):
            total += maps.read(attention.block, chosen, part).double().sum((0, 1))
        count = len(chosen) * (len(maps.tokens) if maps.of_keys else 1)
        weights: NDArray[np.float32] = (total / count).float().numpy()
        if interpolation is None:
            return weights
        return grid.in_pixels(weights, self.image_size(grid), interpolation)

    def image_size(self, grid: PatchGrid) -> tuple[int, int]:
        """Return the height and width of the image of a grid, as `image_weights` defines them.

        Parameters
        ----------
        grid : PatchGrid
            Grid of the query tokens or key tokens.

        Returns
        -------
        tuple of int

        Raises
        ------
        ValueError
            If neither the grid has a size nor the stack belongs to a record with the image.

        Examples
        --------
        >>> import attnviz as av
        >>> from attnviz.record import PatchGrid
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().image_size(PatchGrid(0, 0, 1, 2, size=(480, 640)))
        (480, 640)
        """
        if grid.size is not None:
            return grid.size
        if grid.image is None or grid.image >= len(self.images):
            raise ValueError(
                f"stack {self.name!r} belongs to no record with its image. Take it from the stacks "
                "of a record, or pass interpolation=None."
            )
        height, width = self.images[grid.image].shape[:2]
        return height, width

    def in_record(
        self, name: str, images: Sequence[NDArray[np.uint8]], missing_places: Sequence[str]
    ) -> AttentionStack:
        """Return the stack as a part of a record. `AttentionRecord` calls this method.

        Parameters
        ----------
        name : str
            Name of the stack in the record.
        images : sequence of ndarray
            Images of the record.
        missing_places : sequence of str
            Notes of the record that say why tokens have no places.

        Returns
        -------
        AttentionStack
            Stack that shares all arrays with this one, or this stack if nothing changes.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().in_record("decoder", [], [])
        <decoder: layers 0, 1 head each, 2 tokens>
        """
        own_notes = tuple(note for note in missing_places if quote(name) in note)
        if name == self.name and not (images or self.images or own_notes or self.missing_places):
            return self
        stack = self.renamed(name)
        stack.images, stack.missing_places = tuple(images), own_notes
        return stack

    def allowed(
        self,
        *,
        layer: int,
        head: int,
        rows: slice | None = None,
        columns: slice | None = None,
    ) -> NDArray[np.bool_]:
        """Return whether the model's mask allows each pair of query and key.

        Parameters
        ----------
        layer, head : int
            Layer number and head number, as in `weights`.
        rows, columns : slice, optional
            Positions of the queries and keys, without a step. The default is all.

        Returns
        -------
        ndarray
            bool, (rows, columns). All entries are True if no mask is known. If tokens were merged
            into words, word I may attend to word J if any token of I may attend to any token of J.

        Raises
        ------
        IndexError
            If the layer or head does not exist.
        TypeError, ValueError
            If `rows` or `columns` is not a slice or has a step.
        """
        return self._flags(self.attention(layer).allowed, layer, head, rows, columns)

    def left_out(
        self,
        *,
        layer: int,
        head: int,
        rows: slice | None = None,
        columns: slice | None = None,
    ) -> NDArray[np.bool_]:
        """Return whether the model left out each pair of query and key before the softmax.

        Some models (DeepSeek-V3.2) choose a few keys for each query, and compute weights only for
        these. The other keys to which the query could attend are left out. The method `allowed`
        returns False for them, as for masked keys.

        Parameters
        ----------
        layer, head : int
            Layer number and head number, as in `weights`.
        rows, columns : slice, optional
            Positions of the queries and keys, without a step. The default is all.

        Returns
        -------
        ndarray
            bool, (rows, columns). True for pairs that were left out. False for pairs that the mask
            forbids in any case, such as later keys, and for chosen ones. Layers that store weights
            in place of queries and keys do not know the choice: all pairs are False.

        Raises
        ------
        IndexError
            If the layer or head does not exist.
        TypeError, ValueError
            If `rows` or `columns` is not a slice or has a step.
        """
        return self._flags(self.attention(layer).left_out, layer, head, rows, columns)

    def _flags(
        self,
        read: Callable[..., torch.Tensor],
        layer: int,
        head: int,
        rows: slice | None,
        columns: slice | None,
    ) -> NDArray[np.bool_]:
        """Return the flags of one head. `read` is a method of its layer, such as `allowed`."""
        attention = self.attention(layer)
        flags: NDArray[np.bool_] = read(
            [self.head_number(layer, head)],
            resolve_slice("rows", rows, attention.num_queries),
            resolve_slice("columns", columns, attention.num_keys),
        )[0].numpy()
        return flags

    def lost_weight(self, layer: int) -> NDArray[np.float32] | None:
        """Return the total weight that the left-out keys of each query would have.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.

        Returns
        -------
        ndarray or None
            float32, (heads, queries), from 0 to 1: the sum of a query's weights on its left-out
            keys (see `left_out`) in a softmax over all keys to which the query could attend, chosen
            or left out. All 0 if the layer leaves out no key. None unless the layer stores queries
            and keys.

        Raises
        ------
        IndexError
            If the layer does not exist.

        Examples
        --------
        >>> import attnviz as av
        >>> model, tokenizer = av.demos.load("decoder")
        >>> record = av.extract(model, "A short text", tokenizer=tokenizer)
        >>> float(record.stack().lost_weight(0).max())
        0.0
        """
        attention = self.attention(layer).vectors
        if attention is None:
            return None
        everything = range(attention.num_heads), slice(0, attention.num_queries)
        lost: NDArray[np.float32] = attention.lost_weight(*everything).cpu().numpy()
        return lost

    @property
    def chooses_keys(self) -> bool:
        """Whether at least one layer leaves out keys before the softmax (see `left_out`)."""
        return any(
            layer.vectors is not None and isinstance(layer.vectors.mask, ChosenMask)
            for layer in self._layers.values()
        )

    def queries(self, *, layer: int, head: int) -> NDArray[np.float32] | None:
        """Return the query vectors of a head.

        Parameters
        ----------
        layer, head : int
            Layer number and head number, as in `weights`.

        Returns
        -------
        ndarray or None
            float32, (queries, head_dim), as the attention receives them (after rotary position
            embedding and normalization). None unless the layer stores queries and keys.
        """
        number = self.head_number(layer, head)
        attention = self.attention(layer).vectors
        if attention is None:
            return None
        vectors: NDArray[np.float32] = attention.queries[number].float().cpu().numpy().copy()
        return vectors

    def keys(self, *, layer: int, head: int) -> NDArray[np.float32] | None:
        """Return the key vectors that a head reads.

        Parameters
        ----------
        layer, head : int
            Layer number and number of the query head, as in `weights`. In grouped-query attention,
            several heads read the same keys.

        Returns
        -------
        ndarray or None
            float32, (keys, head_dim). None unless the layer stores queries and keys.
        """
        number = self.head_number(layer, head)
        attention = self.attention(layer).vectors
        if attention is None:
            return None
        shared = attention.keys[attention.key_head(number)]
        vectors: NDArray[np.float32] = shared.float().cpu().numpy().copy()
        return vectors

    def outputs(self, layer: int) -> NDArray[np.float32] | None:
        """Return the vector that each head of a layer adds to the residual stream of each query.

        The vectors have other coordinates than the residual stream (see Returns), which keep the
        norms of a head's vectors and the inner products between them.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.

        Returns
        -------
        ndarray or None
            float32, (heads, queries, axes). A head with weights A (queries, keys), values V (keys,
            head_dim) and its rows W (head_dim, hidden size) of the output projection adds row i of
            A V W to query i. This row is a combination of the rows of W. The result contains its
            coordinates in an orthonormal basis of the space that the rows of W span. Each head has
            another basis. The bias of the projection is left out. None unless the record was made
            with ``attnviz.extract(..., outputs=True)`` and the projection is known.
            `AttentionRecord.save` omits outputs.

        Raises
        ------
        IndexError
            If the layer does not exist.
        """
        outputs = self._outputs.get(self.layer_number(layer))
        return None if outputs is None else outputs.numpy()

    @property
    def has_outputs(self) -> bool:
        """Whether the method `outputs` returns the outputs of at least one layer."""
        return bool(self._outputs)

    def gates(self, layer: int) -> NDArray[np.float32] | None:
        """Return the mean gate of each head of a layer at each query.

        Many models multiply the output of a head by a gate, such as the sigmoid of a projection of
        the query's token, before the output projection. A head whose gate is near 0 adds nothing to
        the residual stream, whatever it attends to.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the last layer of the stack.

        Returns
        -------
        ndarray or None
            float32, (heads, queries): the mean of the gate over the dimensions of a head. A gate is
            measured as the output of the head after the gate, divided by the output before it.
            Dimensions in which the output before the gate is 0 are left out of the mean. If all
            dimensions are left out, the mean is NaN. The gate of a word is the mean over its
            tokens. None if the layer has no gate, or if the record was made with neither
            `attnviz.extract` nor `attnviz.left_out`.

        Raises
        ------
        IndexError
            If the layer does not exist.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().gates(layer=0) is None
        True
        """
        gates = self._gates.get(self.layer_number(layer))
        return None if gates is None else gates.numpy().copy()

    @property
    def has_gates(self) -> bool:
        """Whether the method `gates` returns the gates of at least one layer."""
        return bool(self._gates)

    def only(self, layers: int | Iterable[int]) -> AttentionStack:
        """Return a stack of selected layers, without copying arrays.

        Parameters
        ----------
        layers : int or iterable of int
            Layer numbers of the model. Negative numbers count from the last layer of the stack.

        Returns
        -------
        AttentionStack
        """
        numbers = whole_numbers("layers", as_list(layers))
        selected = {self.layer_number(number): self.attention(number) for number in numbers}
        outputs = {number: one for number, one in self._outputs.items() if number in selected}
        return self.derive(selected, keep_gates=True, outputs=outputs)

    def merge_words(self) -> AttentionStack:
        """Return the attention between words instead of tokens.

        Returns
        -------
        AttentionStack
            Weights are computed on demand from the weights of the tokens. If each token is a word,
            the result is the stack itself. Special tokens and image patches count as words.

        Raises
        ------
        ValueError
            If the words of the tokens are unknown: `Tokens.words` is None and the texts do not mark
            words. Also if a row or column already combines several tokens, and at least two of the
            rows or columns belong to the same word, or if the stack has ranks.

        See Also
        --------
        AttentionRecord.merge_words : definition of words, with an example.
        """
        one_text = self.key_tokens is self.query_tokens
        name = f"query_tokens of stack {self.name!r}"
        queries = keys = find_word_starts(self.query_tokens, name)
        if not one_text:
            keys = find_word_starts(self.key_tokens, f"key_tokens of stack {self.name!r}")
        if (len(queries), len(keys)) == (len(self.query_tokens), len(self.key_tokens)):
            return self
        if self.ranks:
            raise ValueError(f"stack {self.name!r} has ranks, which belong to single tokens")
        if self.merged:
            raise ValueError(
                f"stack {self.name!r}: its rows and columns already combine several tokens. Merge "
                "the words of the original records before you compare them."
            )
        return self._merged(
            (queries, keys),
            merge_tokens(self.query_tokens, queries),
            None if one_text else merge_tokens(self.key_tokens, keys),
        )

    def merge_passages(self, side: Side = "both") -> AttentionStack:
        """Return the attention between passages instead of tokens.

        Parameters
        ----------
        side : {"both", "queries", "keys"}, default "both"
            Tokens to merge.

        Returns
        -------
        AttentionStack
            Weights are computed on demand from the weights of the tokens. If no token on this side
            has a passage, the result is the stack itself.

        Raises
        ------
        KeyError
            If `side` is invalid.
        ValueError
            If the stack has ranks, or is a difference whose rows or columns combine several tokens.

        See Also
        --------
        AttentionRecord.merge_passages : definition, with an example.
        """
        existing_name("side", side, ["both", "queries", "keys"], "valid names are")
        one_text = self.key_tokens is self.query_tokens
        tokens, starts = [], []
        for name, own in (("queries", self.query_tokens), ("keys", self.key_tokens)):
            merges = side in ("both", name) and bool(own.passages)
            merged, own_starts = merge_passages(own) if merges else (own, list(range(len(own))))
            tokens.append(merged)
            starts.append(own_starts)
        if tokens[0] is self.query_tokens and tokens[1] is self.key_tokens:
            return self
        if self.ranks:
            raise ValueError(f"stack {self.name!r} has ranks, which belong to single tokens")
        layers = self._layers.values()
        if any(layer.merged and not isinstance(layer, UnitAttention) for layer in layers):
            raise ValueError(
                f"stack {self.name!r}: its rows and columns already combine several tokens. Merge "
                "the passages of the original records before you compare them."
            )
        return self._merged(
            (starts[0], starts[1]), tokens[0], None if one_text and side == "both" else tokens[1]
        )

    def _merged(
        self,
        starts: tuple[Sequence[int], Sequence[int]],
        query_tokens: Tokens,
        key_tokens: Tokens | None,
    ) -> AttentionStack:
        """Return the attention between groups of tokens.

        `starts` has the first token of each group of queries, and of each group of keys.
        """
        query_starts, key_starts = (np.array(side, np.int64) for side in starts)
        return self.derive(
            {
                number: in_units(attention, query_starts, key_starts)
                for number, attention in self._layers.items()
            },
            query_tokens,
            key_tokens,
            gates={
                number: torch.from_numpy(_mean_of_groups(gates.numpy(), query_starts))
                for number, gates in self._gates.items()
            },
        )

    def renamed(self, name: str) -> AttentionStack:
        """Return the same stack with another name.

        Parameters
        ----------
        name : str
            Name of the new stack, which shares all arrays with this stack.

        Returns
        -------
        AttentionStack

        Raises
        ------
        TypeError, ValueError
            If `name` is not a string, or cannot be written as UTF-8.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().renamed("decoder")
        <decoder: layers 0, 1 head each, 2 tokens>
        """
        check_encodable("name", name)
        stack = copy(self)
        stack.name = name
        return stack

    def derive(
        self,
        layers: Mapping[int, LayerAttention],
        query_tokens: Tokens | None = None,
        key_tokens: Tokens | None = None,
        *,
        keep_gates: bool = False,
        **changes: Any,
    ) -> AttentionStack:
        """Return a stack with other layers, and otherwise like this stack.

        Parameters
        ----------
        layers : mapping of int to LayerAttention
            Layers of the new stack.
        query_tokens, key_tokens : Tokens, optional
            Tokens of the rows and columns of the new stack. If `query_tokens` is None, the rows and
            columns keep the tokens of this stack, and `key_tokens` is ignored. If only `key_tokens`
            is None, the columns have the tokens `query_tokens`, like the rows.
        keep_gates : bool, default False
            Whether the layers of the new stack have the gates that this stack has for the layers
            with the same numbers.
        **changes
            Other arguments of `AttentionStack`. By default, `name`, `normalized`, `signed`,
            `measure` and `changed` are those of this stack, and there are no outputs of heads.

        Returns
        -------
        AttentionStack

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> stack = record.stack()
        >>> stack.derive({5: stack.attention(0)}, name="decoder")
        <decoder: layers 5, 1 head each, 2 tokens>
        """
        if query_tokens is None:
            query_tokens = self.query_tokens
            key_tokens = None if self.key_tokens is query_tokens else self.key_tokens
        if keep_gates:
            kept = {number: gates for number, gates in self._gates.items() if number in layers}
            changes = {"gates": kept, **changes}
        kept_names = ("name", "normalized", "signed", "measure", "changed")
        same = {name: getattr(self, name) for name in kept_names}
        stack = AttentionStack(
            layers=layers, query_tokens=query_tokens, key_tokens=key_tokens, **(same | changes)
        )
        stack.images, stack.missing_places = self.images, self.missing_places
        return stack

    def with_tokens(self, query_tokens: Tokens, key_tokens: Tokens | None = None) -> AttentionStack:
        """Return the same stack with other tokens.

        Parameters
        ----------
        query_tokens : Tokens
            Tokens of the rows.
        key_tokens : Tokens, optional
            Tokens of the columns, by default those of the rows.

        Returns
        -------
        AttentionStack
        """
        return self.derive(
            self._layers, query_tokens, key_tokens, keep_gates=True, outputs=self._outputs
        )

    def __repr__(self) -> str:
        heads = sorted(set(self.heads_per_layer))
        per_layer = str(heads[0]) if len(heads) == 1 else f"{heads[0]} to {heads[-1]}"
        rows, columns = len(self.query_tokens), len(self.key_tokens)
        size = f"{rows} tokens" if self.key_tokens is self.query_tokens else f"{rows} x {columns}"
        kind = ", signed" if self.signed else ""
        if self.measure != "weight":
            kind = f", {self.measure}"
        return (
            f"<{self.name}: layers {format_numbers(self.layers)}, {per_layer} "
            f"head{'s' if per_layer != '1' else ''} each, {size}{kind}>"
        )


def sibling_stacks(stacks: Iterable[AttentionStack]) -> list[list[AttentionStack]]:
    """Group the stacks that are different kinds of layers of one model.

    Stacks of a group have the same tokens. At least one of them is linear, and the others have a
    softmax. Stacks of a changed run, whose names contain " · ", are in no group. Return only groups
    of two or more stacks.
    """
    groups: dict[tuple[str, ...], list[AttentionStack]] = {}
    for stack in stacks:
        has_one_text = stack.key_tokens is stack.query_tokens
        if has_one_text and (stack.linear or stack.normalized) and " · " not in stack.name:
            groups.setdefault(tuple(stack.query_tokens.text), []).append(stack)
    return [
        group
        for group in groups.values()
        if len(group) > 1 and any(stack.linear for stack in group)
    ]


def resolve_normalized(*, normalized: bool | None, signed: bool) -> bool:
    """Return `normalized`, or its default if it is None: True unless values are signed.

    Raise ValueError if both arguments are True.
    """
    if signed and normalized:
        raise ValueError(
            "normalized=True and signed=True cannot be combined, because rows of signed values do "
            "not sum to 1. Omit normalized."
        )
    return not signed if normalized is None else bool(normalized)


def _mean_of_groups(gates: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the mean of `gates`, (heads, tokens), over the tokens of each group, (heads, groups).

    `starts` has the first token of each group. Tokens whose gate is NaN are left out.
    """
    known = ~np.isnan(gates)
    sums = np.add.reduceat(np.where(known, gates, 0), starts, axis=1)
    counts = np.add.reduceat(known, starts, axis=1, dtype=np.int64)
    return (sums / np.where(counts > 0, counts, np.nan)).astype(np.float32)


def _checked_measure(measure: str) -> str:
    if not isinstance(measure, str):
        raise TypeError(f'measure={short_repr(measure)} must be a string, such as "difference"')
    word = measure.strip()
    if not word or len(word) > _MAX_MEASURE_LENGTH or not word.isprintable():
        raise ValueError(
            f"measure={short_repr(measure)} must be a short name of the values, such as "
            f'"difference", in one line of at most {_MAX_MEASURE_LENGTH} characters'
        )
    return word


def as_shares(stack: AttentionStack) -> AttentionStack:
    """Return a stack of linear layers with the shares of their absolute weights (`AbsoluteShares`).

    Measures of heads are defined for rows that sum to 1, such as those of a softmax. A stack of
    other layers is returned unchanged.
    """
    if not (stack.linear and stack.signed):
        return stack
    shares = {number: AbsoluteShares(attention) for number, attention in stack._layers.items()}
    return stack.derive(
        shares, normalized=True, signed=False, measure="share of the absolute weight"
    )


def require_weights(stack: AttentionStack, what: str) -> None:
    """Raise ValueError if the values of a stack are signed numbers or ranks instead of weights.

    `what` is the first part of the message: what the caller computes from weights, such as "sources
    of a token". `AttentionStack.ranks` says what ranks are.
    """
    if stack.ranks:
        raise ValueError(
            f"{what} are defined for attention weights, but stack {stack.name!r} has ranks. Pass "
            "another stack."
        )
    if stack.signed:
        remedy = "Use a record of weights, such as a side of the difference."
        if stack.linear:
            remedy = "Its layers have no softmax. Pass a stack of softmax layers, if there is one."
        raise ValueError(
            f"{what} are defined for attention weights, but stack {stack.name!r} has signed values "
            f"({stack.measure}). {remedy}"
        )

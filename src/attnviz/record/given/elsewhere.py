"""The ways into a record for attention that attnviz did not extract itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from attnviz.record.given.projected_keys import ProjectedKeys
from attnviz.record.given.queries_keys import layers_of_vectors, stack_of_vectors
from attnviz.record.given.weights import stacks_of_weights
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

__all__ = ["FromElsewhere"]


class FromElsewhere:
    """What `AttentionRecord` can be made of beside its stacks: weights, or queries and keys."""

    def __init__(
        self,
        stacks: Mapping[str, AttentionStack],
        *,
        model: str = "",
        notes: Sequence[str] = (),
        images: Sequence[Any] = (),
    ) -> None:
        raise NotImplementedError

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
        normalized: bool = True,
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
        normalized : bool, default True
            Whether every row must sum to 1 (or be zero where all is masked). With False any
            weights that are not negative are taken.

        Returns
        -------
        AttentionRecord
            With the stack ``"self"``, or ``"encoder"``, ``"decoder"`` and ``"cross"``. Tensors on
            the CPU and arrays are not copied: do not change them afterwards.

        Raises
        ------
        TypeError
            If an argument that is needed is missing or is no array.
        ValueError
            If a shape does not fit or a weight is NaN, infinite, negative or in a row that does
            not sum to 1; the layer, head and row are named, and what other axes may mean.

        Examples
        --------
        >>> from attnviz import AttentionRecord
        >>> record = AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record
        <AttentionRecord: <self: layers 0, 1 head each, 2 tokens>>
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
            If an argument is no array, or has another dtype.
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

"""Numbers of layers and heads, and negative numbers that count from the last layer or head."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.utils.arguments import existing_number


class HeadNumbers:
    """Base class of objects with data for each head of a stack, such as weights or statistics.

    Attributes
    ----------
    name : str
        Name of the stack.
    layers : tuple of int
        Numbers of the stack's layers in the model, ascending.
    heads_per_layer : tuple of int
        Number of heads of each layer, in the order of `layers`.
    """

    def __init__(self, name: str, layers: Sequence[int], heads_per_layer: Sequence[int]) -> None:
        self.name = name
        self.layers = tuple(layers)
        self.heads_per_layer = tuple(heads_per_layer)

    def layer_number(self, layer: int) -> int:
        """Convert a layer number that may be negative to the model's layer number.

        Parameters
        ----------
        layer : int
            Layer number of the model. Negative numbers count from the end: -1 is the last layer of
            the stack.

        Returns
        -------
        int
            Number of the layer, from 0.

        Raises
        ------
        IndexError
            If the stack does not have the layer. The message lists the existing layers.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().layer_number(-1)
        0
        """
        return existing_number("layer", layer, self.layers, f"stack {self.name!r} has layers")

    def num_heads(self, layer: int) -> int:
        """Return the number of heads of a layer.

        Parameters
        ----------
        layer : int
            Layer number, as in `layer_number`.

        Returns
        -------
        int

        Raises
        ------
        IndexError
            If the stack does not have the layer.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().num_heads(0)
        1
        """
        return self.heads_per_layer[self.layers.index(self.layer_number(layer))]

    def head_number(self, layer: int, head: int) -> int:
        """Convert a head number that may be negative to the number of the head in its layer.

        Parameters
        ----------
        layer : int
            Layer number, as in `layer_number`.
        head : int
            Head number. Negative numbers count from the end: -1 is the last head of the layer.

        Returns
        -------
        int
            Number of the head, from 0.

        Raises
        ------
        IndexError
            If the stack does not have the layer or the head. The message lists those that exist.

        Examples
        --------
        >>> import attnviz as av
        >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
        >>> record.stack().head_number(layer=0, head=-1)
        0
        """
        layer = self.layer_number(layer)
        owner = f"layer {layer} of stack {self.name!r} has heads"
        return existing_number("head", head, range(self.num_heads(layer)), owner)
